"""Do the two views agree? Sampling one field where the other one points."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.layers.tokens import pixel_grid, swap_views


def sample_at(field: Tensor, position: Tensor) -> Tensor:
    """Bilinear sampling with zeros outside, by gathering: exact positions in fp32 and exportable.

    Args:
        field: (B, H, W, C).
        position: (B, h, w, 2) as (x, y) in pixels of ``field``.

    Returns:
        (B, h, w, C).
    """
    batch, height, width, channels = field.shape
    base = position.detach().floor()
    x_share, y_share = (position - base).unbind(-1)
    x0, y0 = base.unbind(-1)
    flat = field.reshape(batch * height * width, channels)
    image = torch.arange(batch, device=field.device).view(batch, 1, 1) * (height * width)
    total = torch.zeros(*position.shape[:-1], channels, dtype=field.dtype, device=field.device)
    for dy, wy in ((0, 1 - y_share), (1, y_share)):
        for dx, wx in ((0, 1 - x_share), (1, x_share)):
            x, y = x0 + dx, y0 + dy
            inside = (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)
            index = image + y.clamp(0, height - 1).long() * width + x.clamp(0, width - 1).long()
            corner = flat.index_select(0, index.reshape(-1)).view(*index.shape, channels)
            total = total + corner * (wx * wy * inside).unsqueeze(-1)
    return total


def disagreement(cross_position: Tensor) -> Tensor:
    """cross_0 + cross_1 at the match, for both views: zero where they agree.

    Args:
        cross_position: (2B, H, W, 2), the two views stacked.

    Returns:
        (2B, H, W, 2).
    """
    height, width = cross_position.shape[1:3]
    grid = pixel_grid(height, width, cross_position.device, cross_position.dtype)
    there = sample_at(swap_views(cross_position), cross_position + grid)
    return cross_position + there
