"""A look at each scene: what was seen, what is true, what was predicted, and where it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.data.datasets.sample import FlowSample, StereoSample
from matchattention.viz.colormaps import value_range
from matchattention.viz.fields import disparity_picture, error_picture, write_picture
from matchattention.viz.flow import flow_picture
from matchattention.viz.scale_bar import captioned

Colours = NDArray[np.uint8]


def write_pictures(
    folder: Path, sample: StereoSample | FlowSample, prediction: NDArray[np.float32], caption: str = "error"
) -> None:
    """Write ``NAME.png``, four pictures side by side, and ``NAME_error.png``, the error map with its legend."""
    stem = sample.name.replace("/", "_")
    prediction = np.where(np.isfinite(prediction), prediction, np.float32(np.nan))
    write_picture(folder / f"{stem}.png", side_by_side(sample, prediction, caption))
    write_picture(folder / f"{stem}_error.png", error_picture(prediction, _truth(sample)))


def side_by_side(sample: StereoSample | FlowSample, prediction: NDArray[np.float32], caption: str = "error") -> Colours:
    """Image and truth above, prediction and error below; truth and prediction share their colours' range.

    Args:
        sample: with ground truth.
        prediction: disparity ``(H, W)`` or flow ``(H, W, 2)``.
        caption: what is written above the error map.
    """
    truth = _truth(sample)
    image = sample.left if isinstance(sample, StereoSample) else sample.frame1
    pictures = {
        sample.name: image,
        "ground truth": _coloured(truth, truth),
        "prediction": _coloured(prediction, truth),
        caption: error_picture(prediction, truth, bar=False),
    }
    first, second, third, fourth = (captioned(picture, text) for text, picture in pictures.items())
    return np.concatenate([np.concatenate([first, second], axis=1), np.concatenate([third, fourth], axis=1)], axis=0)


def _truth(sample: StereoSample | FlowSample) -> NDArray[np.float32]:
    truth = sample.disparity if isinstance(sample, StereoSample) else sample.flow
    if truth is None:
        raise ValueError(f"{sample.name} has no ground truth to show")
    return truth


def _coloured(field: NDArray[Any], truth: NDArray[Any]) -> Colours:
    """Disparity or flow in colours whose range the truth gives."""
    if truth.ndim == 2:
        low, high = value_range(truth)
        return disparity_picture(field, low, high, bar=False)
    lengths = np.linalg.norm(truth[np.isfinite(truth).all(axis=-1)], axis=-1)
    return flow_picture(field, float(np.percentile(lengths, 99)) if lengths.size else None)
