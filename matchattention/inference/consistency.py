"""Occlusion and confidence: does a pixel's match point back to it?"""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.geometry.confidence import SCALE
from matchattention.layers.consistency import sample_at
from matchattention.layers.tokens import pixel_grid

OCCLUSION_THRESHOLD = 1.5  # px
OCCLUSION_SLOPE = 0.02  # px of slack for each px of displacement: long matches are less exact
_ROWS = 512  # at a time: the intermediates of an 8K field would take gigabytes


def judge(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Occlusion and confidence of the first view from both fields.

    The disagreement of a pixel is |r(x) + r'(x + r(x))|, how far from itself it lands when it follows its match
    there and back. It is infinite where the match lies out of view.

    Args:
        first: (H, W, 2) px, first view to second.
        second: (H, W, 2) px, second view to first.

    Returns:
        occlusion (H, W) bool and confidence (H, W) fp32 in [0, 1].
    """
    height, width = first.shape[:2]
    grid = pixel_grid(height, width, first.device)
    corner = torch.tensor([width - 1, height - 1], device=first.device)
    occlusions, confidences = [], []
    for rows in torch.arange(height, device=first.device).split(_ROWS):
        offset = first[rows]
        there = (grid[rows] + offset).nan_to_num(-1e6, 1e6, -1e6)  # a broken position is out of view
        # Half a pixel beyond the last centre is still that pixel.
        visible = ((there > -0.5) & (there < corner + 0.5)).all(-1)
        back = sample_at(second[None], there.clamp(min=0).minimum(corner)[None])[0]
        disagreement = (offset + back).norm(dim=-1)
        slack = OCCLUSION_THRESHOLD + OCCLUSION_SLOPE * offset.norm(dim=-1)
        occlusions.append(~(visible & (disagreement <= slack)))
        confidences.append(torch.where(visible, torch.exp(-disagreement / SCALE), 0).nan_to_num(0))
    return torch.cat(occlusions), torch.cat(confidences)
