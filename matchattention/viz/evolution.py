"""How the field comes about: from the estimate at 1/32 through every block to full resolution."""

from __future__ import annotations

import os

import numpy as np

from matchattention.data.atomic import replacing
from matchattention.models.network import Matches
from matchattention.viz.colormaps import Colours, colourise, value_range
from matchattention.viz.flow import flow_picture
from matchattention.viz.scale_bar import captioned

_COARSEST = 32  # px a token of the initial estimate


def evolution_frames(matches: Matches, *, task: str = "stereo", view: int = 0) -> list[tuple[str, Colours]]:
    """A caption and a picture (H, W, 3) of the field after every step, all on the final field's colour scale.

    Args:
        matches: of one pair.
        task: "stereo" draws disparity, "flow" the colour wheel.
        view: 0 for the left view or first frame, 1 for the other.
    """
    final = matches.field[view].cpu().numpy()
    height, width = final.shape[:2]
    sign = -1 if view == 0 else 1
    low, high = value_range(sign * final[..., 0])
    longest = float(np.percentile(np.linalg.norm(final, axis=-1), 99))

    def picture(field: np.ndarray) -> Colours:
        if task == "flow":
            return flow_picture(field, longest, wheel=False)
        return colourise(sign * field[..., 0], low, high)

    def enlarged(position: np.ndarray, scale: int) -> np.ndarray:
        """Tokens as blocks of pixels, without the network's padding on top and on the right."""
        blocks = np.repeat(np.repeat(position * scale, scale, axis=0), scale, axis=1)
        return blocks[blocks.shape[0] - height :, :width]

    frames = [("1/32, initial estimate", picture(enlarged(matches.initial.position[view].cpu().numpy(), _COARSEST)))]
    block: dict[int, int] = {}
    for step in matches.steps:
        if step.kind == "cross":
            block[step.scale] = block.get(step.scale, 0) + 1
            caption = f"1/{step.scale}, block {block[step.scale]}: cross"
        else:
            started = step.scale == _COARSEST or step.scale in block or frames[-1][0] == f"1/{step.scale}, enlarged"
            caption = (
                f"1/{step.scale}, block {block.get(step.scale, 0) + 1}: self"
                if started
                else (f"1/{step.scale}, enlarged")
            )
        frames.append((caption, picture(enlarged(step.position[view].cpu().numpy(), step.scale))))
    frames.append(("full resolution", picture(final)))
    return frames


def evolution_strip(matches: Matches, *, task: str = "stereo", view: int = 0, columns: int = 3) -> Colours:
    """One picture: the initial estimate, the last field of every scale, and the result, with captions."""
    frames = evolution_frames(matches, task=task, view=view)
    scales = [caption.split(",")[0] for caption, _ in frames]
    chosen = [
        index
        for index, scale in enumerate(scales)
        if index == 0 or index == len(frames) - 1 or scales[index + 1] != scale
    ]
    tiles = [captioned(picture, caption) for caption, picture in (frames[index] for index in chosen)]
    blank = np.full_like(tiles[0], 255)
    tiles += [blank] * (-len(tiles) % columns)
    rows = [np.concatenate(tiles[start : start + columns], axis=1) for start in range(0, len(tiles), columns)]
    return np.concatenate(rows, axis=0)


def write_evolution_gif(
    path: str | os.PathLike[str], matches: Matches, *, task: str = "stereo", view: int = 0, milliseconds: int = 120
) -> None:
    """An animation of every step; the result stays for two seconds."""
    from PIL import Image

    frames = evolution_frames(matches, task=task, view=view)
    pictures = [Image.fromarray(captioned(picture, caption)) for caption, picture in frames]
    durations = [milliseconds] * (len(pictures) - 1) + [2000]
    with replacing(path) as temporary:
        pictures[0].save(temporary, format="GIF", save_all=True, append_images=pictures[1:], duration=durations, loop=0)
