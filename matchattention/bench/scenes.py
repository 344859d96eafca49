"""Inputs that behave like real ones: fields with smooth parts and jumps, images that match along them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def smooth_field(height: int, width: int, device: torch.device, reach: float = 32.0, seed: int = 0) -> Tensor:
    """(H, W) disparity: slanted surfaces with depth steps between them, from 0 to `reach`.

    Random plane pieces are laid over each other as rectangles; within a piece neighbours differ by a small slope, at
    its border by a jump, as in a rendered or real disparity map.
    """
    generator = torch.Generator().manual_seed(seed)
    y = torch.linspace(0, 1, height, device=device).view(-1, 1)
    x = torch.linspace(0, 1, width, device=device).view(1, -1)
    field = 0.2 * reach * (0.5 + 0.5 * y) + 0 * x
    for _ in range(24):
        left, top, wide, tall, level, slope_x, slope_y = torch.rand(7, generator=generator).tolist()
        inside = (x >= left) & (x < left + 0.1 + 0.3 * wide) & (y >= top) & (y < top + 0.1 + 0.3 * tall)
        plane = reach * (0.15 + 0.6 * level + 0.2 * (slope_x - 0.5) * (x - left) + 0.2 * (slope_y - 0.5) * (y - top))
        field = torch.where(inside, plane, field)
    return field.clamp(0, reach)


def relative_positions(
    kind: str, batch: int, height: int, width: int, heads: int, device: torch.device, seed: int = 0
) -> Tensor:
    """(B, H, W, heads, 2) fp32: "smooth" as in a disparity field, or "random", where neighbours look anywhere."""
    if kind == "smooth":
        disparity = smooth_field(height, width, device, reach=min(32.0, width / 4), seed=seed)
        offset = torch.stack((-disparity, 0.05 * disparity), -1)
        return offset.view(1, height, width, 1, 2).expand(batch, height, width, heads, 2).contiguous()
    generator = torch.Generator(device=device).manual_seed(seed)
    target = torch.rand((batch, height, width, heads, 2), generator=generator, device=device)
    target = target * torch.tensor([width, height], device=device)
    y = torch.arange(height, device=device).view(1, -1, 1, 1)
    x = torch.arange(width, device=device).view(1, 1, -1, 1)
    return target - torch.stack(torch.broadcast_tensors(x, y), -1)


def image_pair(height: int, width: int, device: torch.device, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Two uint8 images (1, 3, H, W) and the left disparity (H, W): a texture and its shifted copy."""
    generator = torch.Generator().manual_seed(seed)
    texture = torch.zeros(1, 3, height, width, device=device)
    for scale in (1, 2, 4, 16):
        noise = torch.rand(1, 3, -(-height // scale), -(-width // scale), generator=generator).to(device)
        texture += F.interpolate(noise, size=(height, width), mode="bilinear", align_corners=False) / 4
    disparity = smooth_field(height, width, device, reach=min(64.0, width / 8), seed=seed)
    # The left view is read from the right one, so that its disparity is exact.
    x = torch.arange(width, device=device).view(1, -1) - disparity
    y = torch.arange(height, device=device).view(-1, 1).expand(height, width)
    grid = torch.stack((2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1), -1)[None].float()
    left = F.grid_sample(texture, grid, padding_mode="border", align_corners=True)
    return (left * 255).round().to(torch.uint8), (texture * 255).round().to(torch.uint8), disparity
