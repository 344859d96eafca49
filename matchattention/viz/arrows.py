"""Where tokens look in their own view: the arrows of the paper's figure 4."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.viz.colormaps import Colours
from matchattention.viz.scale_bar import as_picture

_TOKEN = 4  # px a token of the finest scale
SHARPER = 2  # drawn at twice the size and reduced: Pillow's lines are not smooth
_COLOURS = ((255, 196, 0), (0, 200, 255), (255, 90, 140), (120, 230, 90))  # one a head, repeated beyond four


def self_position_arrows(
    image: NDArray[Any],
    self_position: NDArray[Any],
    *,
    occlusion: NDArray[np.bool_] | None = None,
    spacing: int = 24,
    shortest: float = 2.0,
    head: int | None = None,
) -> Colours:
    """Arrows from pixels to where their token looks in its own view.

    In occlusions they should point to visible neighbours of the same surface: from there the match is copied.

    Args:
        image: (H, W) or (H, W, 3) uint8, the view the tokens belong to.
        self_position: (h, w, heads, 2) in tokens of 1/4, one view of `Matches.self_position` (padded as the network
            pads: on top and on the right).
        occlusion: (H, W) bool; with it arrows start in occluded pixels only.
        spacing: px between arrows.
        shortest: px; shorter arrows are left out.
        head: which head to draw; None: the mean over the heads.
    """
    from PIL import Image, ImageDraw

    picture = as_picture(image)
    height, width = picture.shape[:2]
    offsets = np.asarray(self_position, np.float32) * _TOKEN
    offsets = offsets.mean(axis=2) if head is None else offsets[:, :, head]
    padding_top = offsets.shape[0] * _TOKEN - height
    canvas = Image.fromarray((picture * 0.6 + 80).astype(np.uint8))  # paler, so that the arrows stand out
    canvas = canvas.resize((width * SHARPER, height * SHARPER))
    draw = ImageDraw.Draw(canvas)
    colour = _COLOURS[0 if head is None else head % len(_COLOURS)]
    for y in range(spacing // 2, height, spacing):
        for x in range(spacing // 2, width, spacing):
            if occlusion is not None and not occlusion[y, x]:
                continue
            offset = offsets[(y + padding_top) // _TOKEN, x // _TOKEN]
            length = float(np.hypot(*offset))
            if length < shortest:
                continue
            draw_arrow(draw, np.array([x, y]) * SHARPER, offset * SHARPER, colour)
    return np.asarray(canvas.resize((width, height), Image.Resampling.BOX))


def draw_arrow(draw: Any, start: NDArray[Any], offset: NDArray[Any], colour: tuple[int, int, int]) -> None:
    """An arrow on a Pillow drawing, px of the drawing."""
    end = start + offset
    length = float(np.hypot(*offset))
    along = offset / length
    across = np.array([-along[1], along[0]])
    tip = min(10.0, 0.6 * length)
    draw.line([tuple(start), tuple(end - along * tip * 0.8)], fill=colour, width=3)
    barbs = [end, end - along * tip + across * tip * 0.5, end - along * tip - across * tip * 0.5]
    draw.polygon([tuple(float(value) for value in barb) for barb in barbs], fill=colour)
    draw.ellipse([*(start - 2), *(start + 2)], fill=colour)
