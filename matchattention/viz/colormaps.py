"""Colour maps computed, not copied: paths through OKLab walked at constant perceptual speed.

A path is given by a few colours as (lightness, chroma, hue). It is interpolated, pulled into what sRGB can show,
and resampled so that equal steps of the value are equal steps of perceived colour (OKLab distance). Lightness
rises monotonically in the sequential maps: they also read in print and without colour vision.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.errors import InputError

Colours = NDArray[np.uint8]

# (lightness 0…1, chroma, hue in degrees); hue runs on without wrapping so that it interpolates.
_PATHS = {
    # Dark violet, magenta, orange, pale yellow: far to near.
    "dusk": [(0.13, 0.04, 290), (0.35, 0.19, 310), (0.56, 0.22, 372), (0.76, 0.17, 415), (0.97, 0.08, 465)],
    # Deep blue, teal, green, yellow: calm, for confidence and depth.
    "reef": [(0.20, 0.09, 285), (0.42, 0.12, 250), (0.60, 0.11, 195), (0.77, 0.17, 150), (0.95, 0.15, 108)],
    # White to dark red: errors, where most should stay white.
    "ember": [(0.20, 0.07, 15), (0.42, 0.16, 25), (0.62, 0.20, 38), (0.83, 0.12, 75), (1.0, 0.0, 90)],
    # Blue, white, red: signed values around zero.
    "balance": [(0.40, 0.17, 260), (0.72, 0.10, 245), (0.98, 0.0, 130), (0.72, 0.13, 35), (0.42, 0.17, 27)],
}
NAMES = tuple(_PATHS)
_LEVELS = 1024


def colormap(name: str) -> Colours:
    """The table of a map, (1024, 3) sRGB.

    Args:
        name: "dusk", "reef", "ember" (sequential, dark to light) or "balance" (diverging).
    """
    if name not in _PATHS:
        raise InputError(f"There is no colour map '{name}': use {', '.join(NAMES)}.")
    return _table(name)


def colourise(
    values: NDArray[Any],
    low: float | None = None,
    high: float | None = None,
    name: str = "dusk",
    *,
    unknown: tuple[int, int, int] = (0, 0, 0),
) -> Colours:
    """Colours (H, W, 3) of values (H, W).

    Args:
        values: what to show; pixels that are not finite get the colour `unknown`.
        low: value of the map's first colour; None: the 1st percentile.
        high: value of its last colour; None: the 99th percentile.
        name: of the colour map.
        unknown: sRGB.
    """
    low, high = value_range(values, low, high)
    known = np.isfinite(values)
    share = (np.where(known, values, low) - low) / max(high - low, 1e-12)
    index = np.clip(np.rint(share * (_LEVELS - 1)), 0, _LEVELS - 1).astype(np.int64)
    picture = colormap(name)[index]
    picture[~known] = unknown
    return picture


def value_range(values: NDArray[Any], low: float | None = None, high: float | None = None) -> tuple[float, float]:
    """(low, high), each as given or as the 1st and 99th percentile of the finite values."""
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return (0.0 if low is None else low), (1.0 if high is None else high)
    return (
        float(np.percentile(finite, 1)) if low is None else low,
        float(np.percentile(finite, 99)) if high is None else high,
    )


def oklab_to_srgb(lab: NDArray[Any]) -> NDArray[np.float64]:
    """OKLab (…, 3) to sRGB in [0, 1] where it exists, outside where it does not."""
    to_lms = np.array(
        [
            [1.0, 0.3963377774, 0.2158037573],
            [1.0, -0.1055613458, -0.0638541728],
            [1.0, -0.0894841775, -1.2914855480],
        ]
    )
    to_linear = np.array(
        [
            [4.0767416621, -3.3077115913, 0.2309699292],
            [-1.2684380046, 2.6097574011, -0.3413193965],
            [-0.0041960863, -0.7034186147, 1.7076147010],
        ]
    )
    linear = (lab @ to_lms.T) ** 3 @ to_linear.T
    curved = 1.055 * np.abs(linear) ** (1 / 2.4) - 0.055
    return np.where(linear <= 0.0031308, 12.92 * linear, curved)


@cache
def _table(name: str) -> Colours:
    anchors = np.array(_PATHS[name], dtype=np.float64)
    where = np.linspace(0, 1, 4 * _LEVELS)
    lightness, chroma, hue = (_smooth(where, column) for column in anchors.T)
    angle = np.deg2rad(hue)
    chroma = np.minimum(chroma, _largest_chroma(lightness, angle))
    # The gamut's corners would show as lines: widen each dip, then round it off.
    reach = _LEVELS // 5
    dips = np.lib.stride_tricks.sliding_window_view(np.pad(chroma, reach, mode="edge"), 2 * reach + 1).min(-1)
    chroma = np.convolve(np.pad(dips, reach, mode="edge"), np.hanning(2 * reach + 1) / reach, mode="valid")
    lab = np.stack([lightness, chroma * np.cos(angle), chroma * np.sin(angle)], -1)
    steps = np.linalg.norm(np.diff(lab, axis=0), axis=1)
    travelled = np.concatenate([[0], np.cumsum(steps)])
    even = np.linspace(0, travelled[-1], _LEVELS)
    resampled = np.stack([np.interp(even, travelled, column) for column in lab.T], -1)
    return np.rint(np.clip(oklab_to_srgb(resampled), 0, 1) * 255).astype(np.uint8)


def _largest_chroma(lightness: NDArray[np.float64], angle: NDArray[np.float64]) -> NDArray[np.float64]:
    """The strongest colour of each lightness and hue that sRGB can show, by bisection."""
    inside, outside = np.zeros_like(lightness), np.full_like(lightness, 0.4)
    for _ in range(20):
        middle = (inside + outside) / 2
        rgb = oklab_to_srgb(np.stack([lightness, middle * np.cos(angle), middle * np.sin(angle)], -1))
        shown = ((rgb > -1e-3) & (rgb < 1 + 1e-3)).all(-1)
        inside, outside = np.where(shown, middle, inside), np.where(shown, outside, middle)
    return inside


def _smooth(where: NDArray[np.float64], anchors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Piecewise cubic through equally spaced anchors that never overshoots them (monotone Hermite)."""
    count = len(anchors)
    slopes = np.diff(anchors)
    tangents = np.zeros(count)
    inner = slopes[:-1] * slopes[1:]
    tangents[1:-1] = np.where(inner > 0, 2 * inner / np.where(inner > 0, slopes[:-1] + slopes[1:], 1), 0)
    tangents[0], tangents[-1] = slopes[0], slopes[-1]
    place = where * (count - 1)
    index = np.minimum(place.astype(int), count - 2)
    t = place - index
    return (
        (2 * t**3 - 3 * t**2 + 1) * anchors[index]
        + (t**3 - 2 * t**2 + t) * tangents[index]
        + (3 * t**2 - 2 * t**3) * anchors[index + 1]
        + (t**3 - t**2) * tangents[index + 1]
    )
