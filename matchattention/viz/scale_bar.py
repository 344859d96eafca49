"""A legend with numbers beside a picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.viz.colormaps import Colours, colormap

BACKGROUND = (255, 255, 255)
INK = (30, 30, 30)


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) inside [low, high], at most `most`."""
    if not high > low:
        return [low]
    rough = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    ticks = [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]
    # A short bar over a narrow range may hold no round number: its ends say more than nothing.
    return ticks or [low, high][:most]


def with_scale_bar(
    picture: Colours,
    low: float,
    high: float,
    label: str,
    name: str = "dusk",
    *,
    ticks: list[float] | None = None,
    words: Callable[[float], str] = "{:g}".format,
) -> Colours:
    """The picture with a vertical bar on its right: high values on top, round numbers, a label.

    Args:
        picture: (H, W, 3) uint8.
        low: value at the bar's foot.
        high: value at its top.
        label: what is shown and its unit, written above the bar.
        name: of the colour map.
        ticks: values to mark; None: round numbers.
        words: turns a tick's value into its text.

    Returns:
        (H, W + margin, 3) uint8.
    """
    from PIL import Image, ImageDraw

    height, width = picture.shape[:2]
    size = text_size(height)
    font = load_font(size)
    ticks = nice_ticks(low, high, most=max(2, min(7, height // (3 * size)))) if ticks is None else ticks
    texts = [words(tick) for tick in ticks]
    bar, gap = max(8, size), max(4, size // 2)
    longest = max(font.getlength(text) for text in [*texts, label])
    margin = int(gap + max(bar + gap + max(font.getlength(text) for text in texts), longest) + gap)
    canvas = Image.new("RGB", (width + margin, height), BACKGROUND)
    canvas.paste(Image.fromarray(picture), (0, 0))
    draw = ImageDraw.Draw(canvas)
    top, bottom = 2 * size + gap, max(2 * size + gap + 2, height - size)
    draw.text((width + gap, gap // 2), label, fill=INK, font=font)
    shades = colormap(name)[np.linspace(1023, 0, bottom - top).astype(int)]
    canvas.paste(Image.fromarray(np.repeat(shades[:, None], bar, axis=1)), (width + gap, top))
    for tick, text in zip(ticks, texts):
        share = 0.0 if high <= low else (tick - low) / (high - low)
        y = bottom - 1 - share * (bottom - top - 1)
        x = width + gap + bar
        draw.line([(x, y), (x + gap // 2, y)], fill=INK)
        draw.text((x + gap, y - size * 0.6), text, fill=INK, font=font)
    return np.asarray(canvas)


def text_size(height: int) -> int:
    """Readable letter height in px for a picture of this height."""
    return int(np.clip(height // 28, 10, 64))


def load_font(size: int) -> Any:
    """Pillow's own font: the same on every machine."""
    from PIL import ImageFont

    return ImageFont.load_default(size=size)


def captioned(picture: Colours, caption: str) -> Colours:
    """The picture with a line of text above it."""
    from PIL import Image, ImageDraw

    size = text_size(picture.shape[0])
    canvas = Image.new("RGB", (picture.shape[1], picture.shape[0] + 2 * size), BACKGROUND)
    canvas.paste(Image.fromarray(picture), (0, 2 * size))
    ImageDraw.Draw(canvas).text((size // 2, size // 3), caption, fill=INK, font=load_font(size))
    return np.asarray(canvas)


def as_picture(image: NDArray[Any]) -> Colours:
    """Grey or colour uint8 image as (H, W, 3)."""
    return np.repeat(image[..., None], 3, axis=2) if image.ndim == 2 else np.ascontiguousarray(image[..., :3])
