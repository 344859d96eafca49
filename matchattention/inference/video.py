"""Video: each frame starts from the last one's matches, so that the result is quick to settle and steady."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from matchattention.errors import InputError
from matchattention.inference.carried import expected_next
from matchattention.inference.images import Image, read_pair
from matchattention.inference.prediction import Prediction
from matchattention.inference.predictor import Predictor

_REFRESH = 30  # frames after which matches are found anew, so that a slow error cannot live on
_CUT = 0.12  # mean change of a thumbnail's grey levels, as a share of white, that counts as a new scene
_WORSE = 0.1  # share of pixels more that lose their partner before a warm start counts as failed


class VideoPredictor:
    """Predicts frame after frame, carrying the matches along.

    Flow is carried along its own motion: pairs are to be frames t and t + 1, then t + 1 and t + 2. A warm start
    replaces the search over the whole row or image, so it must not be trusted blindly: the search is
    repeated at a cut, every 30 frames, and when clearly more pixels than before have lost their partner.

    Args:
        predictor: of one pair.
        refresh: frames after which to search anew.
    """

    def __init__(self, predictor: Predictor, refresh: int = _REFRESH) -> None:
        self.predictor = predictor
        self.refresh = refresh
        self.searches = 0
        self._last: Prediction | None = None
        self._thumbnail: np.ndarray | None = None
        self._age = 0
        self._lost = 0.0

    def __call__(self, left: Any, right: Any) -> Prediction:
        """The next frame; images as in `Predictor.__call__`. Only the first frame is checked for its geometry."""
        first = self._last is None
        images = read_pair(left, right)
        if first and self.predictor.check:
            return self._searched(*images, self.predictor(*images))
        thumbnail = _thumbnail(images[0])
        last = self._last
        same_size = last is not None and last.occlusion.shape == images[0].shape[:2]
        if last is None or not same_size or self._age >= self.refresh or self._cut(thumbnail):
            return self._searched(*images, self.predictor.match(*images))
        result = self.predictor.match(*images, initial=expected_next(last))
        if result.occlusion.mean() > self._lost + _WORSE:
            return self._searched(*images, self.predictor.match(*images))
        self._last, self._thumbnail, self._age = result, thumbnail, self._age + 1
        return result

    def restart(self) -> None:
        """Forget the last frame: the next one does not follow it."""
        self._last = None

    def frames(self, pairs: Iterable[tuple[Any, Any]]) -> Iterator[Prediction]:
        """Predict every pair of an iterable."""
        for left, right in pairs:
            yield self(left, right)

    def _searched(self, left: Image, right: Image, result: Prediction) -> Prediction:
        self.searches += 1
        self._last, self._thumbnail, self._age = result, _thumbnail(left), 0
        self._lost = float(result.occlusion.mean())
        return result

    def _cut(self, thumbnail: np.ndarray) -> bool:
        return self._thumbnail is None or float(np.abs(thumbnail - self._thumbnail).mean()) > _CUT


def _thumbnail(image: Image) -> np.ndarray:
    """About 32x32 grey levels in [0, 1], enough to tell a cut from motion."""
    height, width = image.shape[:2]
    step_y, step_x = max(1, height // 32), max(1, width // 32)
    grey = image[: height // step_y * step_y, : width // step_x * step_x].mean(axis=2, dtype=np.float32)
    blocks = grey.reshape(height // step_y, step_y, width // step_x, step_x)
    return blocks.mean(axis=(1, 3)) / 255


class SteadyRange:
    """The value range of a video's colours: follows the frames slowly, so that colours do not flicker.

    Args:
        inertia: share of the old range kept each frame.
    """

    def __init__(self, inertia: float = 0.9) -> None:
        if not 0 <= inertia < 1:
            raise InputError(f"inertia must be in [0, 1), not {inertia:g}.")
        self.inertia = inertia
        self._range: tuple[float, float] | None = None

    def update(self, values: np.ndarray) -> tuple[float, float]:
        """The range (low, high) to colour this frame with: 1st and 99th percentile, smoothed over time."""
        finite = values[np.isfinite(values)]
        if finite.size == 0:
            return self._range or (0.0, 1.0)
        low, high = (float(value) for value in np.percentile(finite, (1, 99)))
        if self._range is not None:
            keep = self.inertia
            low = keep * self._range[0] + (1 - keep) * low
            high = keep * self._range[1] + (1 - keep) * high
        self._range = (low, high)
        return self._range
