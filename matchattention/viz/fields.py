"""Pictures of a prediction: disparity, depth, confidence, occlusion, error. One function each."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.data.atomic import replacing
from matchattention.viz.colormaps import Colours, colourise, value_range
from matchattention.viz.scale_bar import nice_ticks, with_scale_bar

Values = NDArray[Any]

_ERROR_STEPS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # px


def disparity_picture(
    disparity: Values, low: float | None = None, high: float | None = None, *, bar: bool = True
) -> Colours:
    """Disparity (H, W) in px: near is bright, far is dark, unknown is black."""
    low, high = value_range(disparity, low, high)
    picture = colourise(disparity, low, high, "dusk")
    return with_scale_bar(picture, low, high, "px", "dusk") if bar else picture


def depth_colour_range(depth: Values, low: float | None = None, high: float | None = None) -> tuple[float, float]:
    """Metres of the first and the last colour of `depth_picture`."""
    low, high = value_range(np.where(np.isfinite(depth) & (depth > 0), depth, np.nan), low, high)
    return max(low, 1e-3), max(high, 1.001e-3)


def depth_picture(depth: Values, low: float | None = None, high: float | None = None, *, bar: bool = True) -> Colours:
    """Depth (H, W) in metres on a logarithmic scale: far is bright, unknown is black."""
    finite = np.where(np.isfinite(depth) & (depth > 0), depth, np.nan)
    low, high = depth_colour_range(depth, low, high)
    with np.errstate(invalid="ignore"):
        logarithm = np.log10(finite)
    picture = colourise(logarithm, np.log10(low), np.log10(high), "reef")
    if not bar:
        return picture
    ticks = nice_ticks(low, high, 8) if high < 8 * low else [value for value in _log_ticks() if low <= value <= high]
    return with_scale_bar(
        picture, np.log10(low), np.log10(high), "m", "reef",
        ticks=[float(np.log10(value)) for value in ticks], words=lambda value: f"{10**value:.3g}",
    )  # fmt: skip


def confidence_picture(confidence: Values, *, bar: bool = True) -> Colours:
    """Confidence (H, W) in [0, 1]: sure is bright."""
    picture = colourise(confidence, 0.0, 1.0, "reef")
    return with_scale_bar(picture, 0.0, 1.0, "confidence", "reef") if bar else picture


def occlusion_overlay(image: Values, occlusion: Values, colour: tuple[int, int, int] = (255, 60, 60)) -> Colours:
    """The image with occluded pixels (H, W) bool tinted."""
    picture = np.repeat(image[..., None], 3, axis=2) if image.ndim == 2 else image[..., :3].copy()
    tint = np.array(colour, np.float32)
    picture[occlusion] = (0.35 * picture[occlusion] + 0.65 * tint).astype(np.uint8)
    return picture


def error_picture(predicted: Values, truth: Values, *, bar: bool = True) -> Colours:
    """Error against ground truth in px, doubling from colour to colour; unknown is blue-grey.

    Args:
        predicted: disparity (H, W) or flow (H, W, 2).
        truth: the same, unknown pixels not finite.
        bar: whether to add the legend.
    """
    difference = np.asarray(predicted, np.float32) - np.asarray(truth, np.float32)
    error = np.abs(difference) if difference.ndim == 2 else np.linalg.norm(difference, axis=-1)
    low, high = np.log2(_ERROR_STEPS[0]), np.log2(_ERROR_STEPS[-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = np.log2(np.maximum(error, 1e-6))
    # Light is good: the map runs from dark to light, so the scale is turned round.
    picture = colourise(-logarithm, -high, -low, "ember", unknown=(96, 110, 130))
    if not bar:
        return picture
    ticks = [-float(np.log2(step)) for step in _ERROR_STEPS]
    return with_scale_bar(picture, -high, -low, "error, px", "ember", ticks=ticks, words=lambda value: f"{2**-value:g}")


def write_picture(path: str | os.PathLike[str], picture: Values) -> None:
    """Write (H, W) or (H, W, 3) uint8, or (H, W) bool as black and white, in the format of the suffix."""
    from PIL import Image

    if picture.dtype == bool:
        picture = picture.astype(np.uint8) * 255
    with replacing(path) as temporary:
        Image.fromarray(np.ascontiguousarray(picture)).save(temporary)


def _log_ticks() -> list[float]:
    return [factor * 10.0**power for power in range(-3, 5) for factor in (1, 2, 5)]
