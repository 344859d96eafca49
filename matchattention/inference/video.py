"""Video: each frame starts from the last one's matches, so that the result is quick to settle and steady."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from matchattention.errors import InputError
from matchattention.inference.carried import expected_next
from matchattention.inference.images import Image, read_pair, two_views
from matchattention.inference.prediction import Prediction
from matchattention.inference.predictor import Predictor

_REFRESH = 30  # frames after which the search restarts without a start field, so that a slow error cannot live on
_CUT = 0.12  # mean change of a thumbnail's grey levels, as a share of white, that counts as a new scene
_WORSE = 0.1  # share of pixels more that lose their partner before a warm start counts as failed


class _Frame(NamedTuple):
    """A pair of arrays, its thumbnail, and where there is a GPU its views there and when they have arrived.

    Or tensors on that GPU, and nothing else.
    """

    images: tuple[Any, Any]
    thumbnail: np.ndarray | None = None
    views: tuple[torch.Tensor, torch.Tensor] | None = None
    copied: torch.cuda.Event | None = None


class VideoPredictor:
    """Predicts frame after frame, carrying the matches along.

    Flow is carried along its own motion: pairs are to be frames t and t + 1, then t + 1 and t + 2. A warm start
    replaces the search over the whole row or image, so it must not be trusted blindly: the search is
    repeated at a cut, every 30 frames, and when clearly more pixels than before have lost their partner.

    Args:
        predictor: of one pair.
        refresh: frames after which to search without the last field.
    """

    def __init__(self, predictor: Predictor, refresh: int = _REFRESH) -> None:
        self.predictor = predictor
        self.refresh = refresh
        self.searches = 0
        self._last: Prediction | None = None
        self._thumbnail: np.ndarray | None = None
        self._age = 0
        self._lost = 0.0
        # Images are copied to a GPU beside what computes there; an exported network has no such device.
        device = getattr(predictor, "device", None)
        on_gpu = device is not None and device.type == "cuda"
        self._copies = torch.cuda.Stream(device) if on_gpu else None

    def __call__(self, left: Any, right: Any) -> Prediction:
        """The next frame; images as in `Predictor.__call__`. Only the first frame is checked for its geometry."""
        return self._next(self._read(left, right))

    def restart(self) -> None:
        """Forget the last frame: the next one does not follow it."""
        self._last = None

    def frames(self, pairs: Iterable[tuple[Any, Any]]) -> Iterator[Prediction]:
        """Predict every pair of an iterable; the next one is read and uploaded meanwhile, in a thread."""
        with contextlib.closing(_one_ahead(self._read(*two_views(pair)) for pair in pairs)) as uploads:
            for frame in uploads:
                yield self._next(frame)

    def _read(self, left: Any, right: Any) -> _Frame:
        if _stays(left, self.predictor) and _stays(right, self.predictor):
            return _Frame((left, right))  # nothing of it is waited for beside a capture
        images = read_pair(left, right)
        if self._copies is None:
            return _Frame(images, _thumbnail(images[0]))
        with torch.cuda.stream(self._copies):
            views, copied = self.predictor.upload([images]), self._copies.record_event()
        return _Frame(images, _thumbnail(images[0]), views, copied)

    def _next(self, frame: _Frame) -> Prediction:
        if self._last is None and self.predictor.check:
            return self._searched(frame, self.predictor(*frame.images))
        last, thumbnail = self._last, _thumbnail_of(frame)
        same_size = last is not None and last.size == _extent(frame.images[0])[::-1]
        if last is None or not same_size or self._age >= self.refresh or self._cut(thumbnail):
            return self._searched(frame, self._match(frame))
        result = self._match(frame, expected_next(last))
        if _lost(result) > self._lost + _WORSE:
            return self._searched(frame, self._match(frame))
        self._last, self._thumbnail, self._age = result, thumbnail, self._age + 1
        return result

    def _match(self, frame: _Frame, initial: Prediction | None = None) -> Prediction:
        if isinstance(frame.images[0], torch.Tensor):
            return self.predictor(*frame.images, initial=initial)
        if frame.views is None or frame.copied is None:
            return self.predictor.match(*frame.images, initial=initial)
        computing = torch.cuda.current_stream(self.predictor.device)
        computing.wait_event(frame.copied)
        for view in frame.views:
            view.record_stream(computing)
        return self.predictor.match_uploaded(frame.views, frame.images[0], initial)

    def _searched(self, frame: _Frame, result: Prediction) -> Prediction:
        self.searches += 1
        self._last, self._thumbnail, self._age = result, _thumbnail_of(frame), 0
        self._lost = _lost(result)
        return result

    def _cut(self, thumbnail: np.ndarray) -> bool:
        if self._thumbnail is None or self._thumbnail.shape != thumbnail.shape:
            return True
        return float(np.abs(thumbnail - self._thumbnail).mean()) > _CUT


def _lost(result: Prediction) -> float:
    """Share of pixels without a partner; one number from the device, not the whole image."""
    return float(result.tensors.occlusion.float().mean())


def _one_ahead(frames: Iterator[_Frame]) -> Generator[_Frame]:
    """The same items, each made in a thread while the one before it is used; errors come where the item would."""
    ready: queue.Queue[_Frame | BaseException | None] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def hand_over(item: _Frame | BaseException | None) -> bool:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return True
        return False

    def read() -> None:
        try:
            for frame in frames:
                if not hand_over(frame):
                    return
        except BaseException as error:
            hand_over(error)
        else:
            hand_over(None)

    thread = threading.Thread(target=read, name="frames", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()


def _stays(image: Any, predictor: Predictor) -> bool:
    """Whether an image is a tensor on the predictor's GPU: nothing of it is read or copied ahead."""
    device = getattr(predictor, "device", None)  # an exported network has none
    if not isinstance(image, torch.Tensor) or image.dim() != 3 or device is None:
        return False
    return device.type == image.device.type != "cpu"


def _extent(image: Image | torch.Tensor) -> tuple[int, int]:
    """Height and width."""
    height, width = image.shape[-2:] if isinstance(image, torch.Tensor) else image.shape[:2]
    return height, width


def _thumbnail_of(frame: _Frame) -> np.ndarray:
    return _thumbnail(frame.images[0]) if frame.thumbnail is None else frame.thumbnail


def _thumbnail(image: Image | torch.Tensor) -> np.ndarray:
    """About 32x32 grey levels in [0, 1], each the mean of 16 pixels: enough to tell a cut from motion."""
    height, width = _extent(image)
    down, across = (slice(None, None, max(1, size // 128)) for size in (height, width))
    if isinstance(image, torch.Tensor):
        white = 255 if image.is_floating_point() else 1
        few = white * image.detach()[:, down, across].movedim(0, -1).cpu().numpy()
    else:
        few = image[down, across]
    points = few.astype(np.float32) @ np.full(3, 1 / 3, np.float32)
    rows, columns = (max(1, size // 4) for size in points.shape)
    blocks = points[: rows * 4, : columns * 4] if min(points.shape) >= 4 else points[:1, :1]
    return blocks.reshape(rows, -1, columns, blocks.shape[1] // columns).mean(axis=(1, 3)) / 255


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
