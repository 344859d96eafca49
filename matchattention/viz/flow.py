"""Optical flow as colours: the angle is the hue, the length is the strength."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.viz.colormaps import Colours, oklab_to_srgb
from matchattention.viz.scale_bar import INK, load_font, text_size

_HUES = 720
_LIGHTNESS, _CHROMA = 0.72, 0.125  # a ring of equal lightness that sRGB holds all the way round


def flow_picture(flow: NDArray[Any], longest: float | None = None, *, wheel: bool = True) -> Colours:
    """Colours of a flow field: white stands still, right is red, down is yellow-green, left is blue-green.

    Args:
        flow: (H, W, 2) px as (u, v); pixels that are not finite are black.
        longest: length in px of full strength; None: the 99th percentile.
        wheel: whether to draw the wheel of directions with its radius in px into the corner.
    """
    known = np.isfinite(flow).all(-1)
    length = np.where(known, np.linalg.norm(np.where(known[..., None], flow, 0), axis=-1), 0)
    if longest is None:
        longest = float(np.percentile(length[known], 99)) if known.any() else 1.0
    longest = max(longest, 1e-6)
    picture = direction_colours(np.where(known[..., None], flow, 0) / longest)
    picture[~known] = 0
    return _with_wheel(picture, longest) if wheel else picture


def direction_colours(direction: NDArray[Any]) -> Colours:
    """sRGB of vectors whose length 1 is full strength."""
    strength = np.minimum(np.linalg.norm(direction, axis=-1), 1)[..., None]
    angle = np.arctan2(direction[..., 1], direction[..., 0])
    index = np.floor((angle / (2 * np.pi)) % 1 * _HUES).astype(int) % _HUES
    hue = _ring()[index]
    return np.rint(255 * (1 - strength * (1 - hue))).astype(np.uint8)


@cache
def _ring() -> NDArray[np.float64]:
    angle = np.deg2rad(25 + np.arange(_HUES) * 360 / _HUES)
    lab = np.stack([np.full(_HUES, _LIGHTNESS), _CHROMA * np.cos(angle), _CHROMA * np.sin(angle)], -1)
    rgb = np.clip(oklab_to_srgb(lab), 0, 1)
    # Stretched to full saturation: the darkest channel of each hue becomes zero, the brightest one.
    return (rgb - rgb.min(-1, keepdims=True)) / np.ptp(rgb, axis=-1, keepdims=True)


def _with_wheel(picture: Colours, longest: float) -> Colours:
    from PIL import Image, ImageDraw

    height, width = picture.shape[:2]
    radius = min(height, width) // 8
    if radius < 12:
        return picture
    span = np.linspace(-1, 1, 2 * radius + 1)
    vectors = np.stack(np.meshgrid(span, span), -1)
    inside = np.linalg.norm(vectors, axis=-1) <= 1
    corner = picture[height - 2 * radius - 1 :, width - 2 * radius - 1 :]
    corner[inside] = direction_colours(vectors)[inside]
    canvas = Image.fromarray(picture)
    size = text_size(height)
    text, font = f"{longest:.3g} px", load_font(size)
    place = (width - font.getlength(text) - size // 2, height - 2 * radius - 1 - 1.4 * size)
    ImageDraw.Draw(canvas).text(place, text, fill=INK, font=font, stroke_width=2, stroke_fill=(255, 255, 255))
    return np.asarray(canvas)
