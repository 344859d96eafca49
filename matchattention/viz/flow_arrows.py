"""Motion as arrows over the frame: where points of a grid go."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.viz.arrows import SHARPER, draw_arrow
from matchattention.viz.colormaps import Colours
from matchattention.viz.flow import direction_colours
from matchattention.viz.scale_bar import as_picture

SHORTEST = 1.0  # px; less is a dot


def flow_arrows(
    image: NDArray[Any],
    flow: NDArray[Any],
    *,
    occlusion: NDArray[np.bool_] | None = None,
    spacing: int | None = None,
) -> Colours:
    """Arrows from grid points of the first frame to where they are in the second, in the colours of their directions.

    Args:
        image: (H, W) or (H, W, 3) uint8, the first frame.
        flow: (H, W, 2) px.
        occlusion: (H, W) bool; points that the second frame does not show get no arrow.
        spacing: px between arrows; None: some 30 over the longer side.
    """
    from PIL import Image, ImageDraw

    picture = as_picture(image)
    height, width = picture.shape[:2]
    step = spacing or max(12, max(height, width) // 30)
    canvas = Image.fromarray((picture * 0.55 + 30).astype(np.uint8))  # dimmed, so that the arrows stand out
    canvas = canvas.resize((width * SHARPER, height * SHARPER))
    draw = ImageDraw.Draw(canvas)
    for y in range(step // 2, height, step):
        for x in range(step // 2, width, step):
            offset = np.asarray(flow[y, x], np.float64)
            if not np.isfinite(offset).all() or (occlusion is not None and occlusion[y, x]):
                continue
            start, length = np.array([x, y]) * SHARPER, float(np.hypot(*offset))
            red, green, blue = direction_colours(offset[None] / max(length, 1e-9))[0].tolist()
            if length < SHORTEST:
                draw.ellipse([*(start - 2), *(start + 2)], fill=(red, green, blue))
            else:
                draw_arrow(draw, start, offset * SHARPER, (red, green, blue))
    return np.asarray(canvas.resize((width, height), Image.Resampling.BOX))
