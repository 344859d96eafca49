"""What stereo and flow benchmarks measure, as pure functions of the errors at the evaluated pixels.

A prediction that is missing (NaN or inf) is always an outlier: it counts in every ``bad`` and ``D1``
figure, and in averages as if zero displacement had been predicted, so leaving pixels out never helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchattention.data.formats import known_pixels

BAD_THRESHOLDS = (0.5, 1.0, 2.0, 3.0, 4.0)
QUANTILES = (50, 90, 95, 99)
STEREO_METRICS = ("bad0.5", "bad1", "bad2", "bad3", "bad4", "d1", "epe", "rms", "a50", "a90", "a95", "a99")
SPEEDS = ("s0-10", "s10-40", "s40+")  # px a frame, Sintel's classes
FLOW_METRICS = ("bad0.5", "bad1", "bad2", "bad3", "bad4", "fl", "epe", "rms", "a50", "a90", "a95", "a99")


class PixelErrors(NamedTuple):
    """Errors at the ``N`` evaluated pixels."""

    distance: NDArray[np.float64]  # (N,) px between prediction and truth
    magnitude: NDArray[np.float64]  # (N,) px, length of the true displacement
    missing: NDArray[np.bool_]  # (N,) nothing was predicted


def pixel_errors(prediction: NDArray[Any], truth: NDArray[Any], mask: NDArray[np.bool_] | None = None) -> PixelErrors:
    """Errors of a disparity ``(H, W)`` or flow ``(H, W, 2)`` where the truth is known and ``mask`` is set.

    The distance of two flow vectors is Euclidean.
    """
    if prediction.shape != truth.shape:
        raise ValueError(f"prediction {prediction.shape} and truth {truth.shape} differ in shape")
    evaluated = known_pixels(truth) if mask is None else known_pixels(truth) & mask
    missing = ~known_pixels(prediction)[evaluated]
    components = 1 if truth.ndim == 2 else truth.shape[2]
    true = truth[evaluated].astype(np.float64).reshape(-1, components)  # (N, 1 or 2)
    predicted = prediction[evaluated].astype(np.float64).reshape(-1, components)
    predicted[missing] = 0
    return PixelErrors(
        distance=np.linalg.norm(predicted - true, axis=-1),
        magnitude=np.linalg.norm(true, axis=-1),
        missing=missing,
    )


def bad(errors: PixelErrors, threshold: float) -> float:
    """Per cent of pixels off by more than ``threshold`` px."""
    return _percent((errors.distance > threshold) | errors.missing)


def outliers(errors: PixelErrors, pixels: float = 3.0, fraction: float = 0.05) -> float:
    """KITTI's D1 and Fl: per cent off by more than 3 px and by more than 5 % of the true displacement."""
    far = (errors.distance > pixels) & (errors.distance > fraction * errors.magnitude)
    return _percent(far | errors.missing)


def end_point_error(errors: PixelErrors) -> float:
    """Mean distance in px."""
    return float(errors.distance.mean()) if errors.distance.size else float("nan")


def root_mean_square(errors: PixelErrors) -> float:
    """Root of the mean squared distance in px."""
    return float(np.sqrt(np.mean(errors.distance**2))) if errors.distance.size else float("nan")


def quantiles(errors: PixelErrors, percents: Sequence[int] = QUANTILES) -> list[float]:
    """Middlebury's A50 … A99: the distances in px that these shares of the pixels do not exceed.

    Each is the smallest error that at least so many pixels stay within; nothing is interpolated.
    """
    count = errors.distance.size
    if not count:
        return [float("nan")] * len(percents)
    ranks = [max(-(-percent * count // 100), 1) - 1 for percent in percents]
    ordered = np.partition(errors.distance, ranks)
    return [float(ordered[rank]) for rank in ranks]


def measure(
    prediction: NDArray[Any],
    truth: NDArray[Any],
    non_occluded: NDArray[np.bool_] | None = None,
    foreground: NDArray[np.bool_] | None = None,
) -> dict[str, dict[str, float]]:
    """Every metric on every mask that can be formed.

    Args:
        prediction: disparity ``(H, W)`` or flow ``(H, W, 2)``.
        truth: the same shape, unknown = inf.
        non_occluded: adds the masks ``noc`` and ``occ``.
        foreground: adds the masks ``fg`` and ``bg`` (D1-fg is ``["fg"]["d1"]``).
            Flow always adds the masks ``s0-10``, ``s10-40`` and ``s40+``, by true speed.

    Returns:
        ``{mask: {metric: value}}`` with ``pixels`` (evaluated) and ``missing`` (per cent not predicted) as
        well; a mask without a pixel has NaN in every metric.
    """
    masks: dict[str, NDArray[np.bool_] | None] = {"all": None}
    if non_occluded is not None:
        masks |= {"noc": non_occluded, "occ": ~non_occluded}
    if foreground is not None:
        masks |= {"bg": ~foreground, "fg": foreground}
    outlier_name = "fl" if truth.ndim == 3 else "d1"
    if truth.ndim == 3:
        masks |= speed_masks(truth)
    return {name: _all_metrics(pixel_errors(prediction, truth, mask), outlier_name) for name, mask in masks.items()}


def speed_masks(truth: NDArray[Any]) -> dict[str, NDArray[np.bool_]]:
    """Sintel's classes of true speed in px per frame: below 10, from 10 to 40, above 40."""
    known = known_pixels(truth)
    speed = np.linalg.norm(np.where(known[..., None], truth, 0), axis=-1)
    return dict(zip(SPEEDS, (speed < 10, (speed >= 10) & (speed <= 40), speed > 40)))


def _all_metrics(errors: PixelErrors, outlier_name: str) -> dict[str, float]:
    values = {f"bad{threshold:g}": bad(errors, threshold) for threshold in BAD_THRESHOLDS}
    values[outlier_name] = outliers(errors)
    values["epe"] = end_point_error(errors)
    values["rms"] = root_mean_square(errors)
    values |= {f"a{percent}": value for percent, value in zip(QUANTILES, quantiles(errors))}
    values["pixels"] = errors.distance.size
    values["missing"] = _percent(errors.missing)
    return values


def _percent(selected: NDArray[np.bool_]) -> float:
    return 100.0 * float(selected.mean()) if selected.size else float("nan")
