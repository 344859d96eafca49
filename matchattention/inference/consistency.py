"""Occlusion and confidence: does a pixel's match point back to it?"""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.geometry.confidence import SCALE
from matchattention.ops import kernels

OCCLUSION_THRESHOLD = 1.5  # px
OCCLUSION_SLOPE = 0.02  # px of slack for each px of displacement: long matches are less exact
_ROWS = 512  # at a time: the intermediates of an 8K field would take gigabytes


def judge(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Occlusion and confidence of the first view from both fields.

    The disagreement of a pixel is |r(x) + r'(x + r(x))|, how far from itself it lands when it follows its match
    there and back. It is infinite where the match lies out of view.

    Args:
        first: (H, W, 2) or (B, H, W, 2) px, first view to second.
        second: the same, second view to first.

    Returns:
        occlusion (H, W) bool and confidence (H, W) fp32 in [0, 1]; or (B, H, W) of both.
    """
    if first.dim() == 3:
        occlusion, confidence = judge(first[None], second[None])
        return occlusion[0], confidence[0]
    if kernels.has_kernel(first):
        from matchattention.runtime.kernels.agreement import agreement

        return agreement(first, second, OCCLUSION_THRESHOLD, OCCLUSION_SLOPE, SCALE)
    # Of a rectified pair nothing leaves its row: half the components, and half the neighbours.
    along_rows = first.device.type == "cpu" and not (first[..., 1].any() or second[..., 1].any())
    parts = [
        _judge_rows(first[:, top : top + _ROWS], second, top, along_rows) for top in range(0, first.shape[1], _ROWS)
    ]
    return torch.cat([part[0] for part in parts], 1), torch.cat([part[1] for part in parts], 1)


def judge_both(field: Tensor) -> tuple[Tensor, Tensor]:
    """`judge` of the first views of stacked fields (2B, H, W, 2): occlusion and confidence, (B, H, W) each."""
    first, second = field.chunk(2)
    return judge(first, second)


def _judge_rows(offset: Tensor, second: Tensor, top: int, along_rows: bool) -> tuple[Tensor, Tensor]:
    """Of rows `top` and on of the first view, whose offsets are (B, h, W, 2)."""
    batch, height, width, _ = second.shape
    rows = offset.shape[1]
    offset_x, offset_y = offset.unbind(-1)
    column = torch.arange(width, device=offset.device, dtype=offset.dtype)
    row = torch.arange(top, top + rows, device=offset.device, dtype=offset.dtype)[:, None]
    x = offset_x + column
    # Half a pixel beyond the last centre is still that pixel; a broken position is neither here nor there.
    visible = (x > -0.5) & (x < width - 0.5)
    x = torch.where(visible, x, 0).clamp_(0, width - 1)
    left = x.floor()
    share_x = x - left
    image = torch.arange(batch, device=offset.device).view(-1, 1, 1) * (height * width)
    if along_rows:
        at = left.long() + (row.long() * width + image)
        values = second[..., 0].reshape(-1)
        back = torch.lerp(values[at], values[_next(at, left, width)], share_x)
        disagreement, length = (offset_x + back).abs_(), offset_x.abs()
    else:
        y = offset_y + row
        inside = (y > -0.5) & (y < height - 0.5)
        visible &= inside
        y = torch.where(inside, y, 0).clamp_(0, height - 1)
        above = y.floor()
        share_y = (y - above).unsqueeze(-1)
        at = left.long() + above.long() * width + image
        down = torch.where(above < height - 1, width, 0)
        values, beside = second.reshape(-1, 2), _next(at, left, width) - at
        share_x = share_x.unsqueeze(-1)
        upper = torch.lerp(values[at], values[at + beside], share_x)
        lower = torch.lerp(values[at + down], values[at + down + beside], share_x)
        disagreement = (offset + torch.lerp(upper, lower, share_y)).norm(dim=-1)
        length = offset.norm(dim=-1)
    slack = OCCLUSION_THRESHOLD + OCCLUSION_SLOPE * length
    agrees = visible & (disagreement <= slack)
    confidence = torch.where(visible, torch.exp(disagreement / -SCALE), 0).nan_to_num_(0)
    return ~agrees, confidence


def _next(at: Tensor, left: Tensor, width: int) -> Tensor:
    """The pixel to the right, or the same one at the end of a row."""
    return at + (left < width - 1)
