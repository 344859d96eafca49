"""Motion blur along the true motion of every pixel, after the frame is rendered.

A pixel collects light from its neighbours on a line along the fastest motion around it (McGuire et al., *A
Reconstruction Filter for Plausible Motion Blur*, I3D 2012): from those in front whose own motion sweeps over it, and,
where it moves itself, from what it uncovers behind. Fast things smear over a still background and still things stay
sharp before a moving one. Long exposures are rendered at several moments, and each is blurred over its part of the
time only (`stream.render`). The shutter is open symmetrically around the frame's moment, so labels need no change.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

TILE = 16  # px
LONGEST = 24.0  # px to either side; the neighbouring tiles reach no farther
SAMPLES = 9
SAME_DEPTH = 1.02  # depths within 2 % count as one surface


def motion_blur(image: Tensor, field: Tensor, depth: Tensor, shutter: Tensor, samples: int = SAMPLES) -> Tensor:
    """Blur both frames of flow pairs.

    Args:
        image: (B, 2, 3, H, W) linear light.
        field: (B, 2, H, W, 2) px, from each frame to the other one.
        depth: (B, 2, H, W), smaller is nearer.
        shutter: (B,) share of the time between the frames for which the shutter is open; zero leaves a pair as it is.
        samples: taken along the motion.
    """
    batch, _, _, height, width = image.shape
    reach = (0.5 * shutter[:, None, None, None, None] * field).flatten(0, 1)  # (2B, H, W, 2), to either side
    length = reach.norm(dim=-1)
    shorter = (LONGEST / length.clamp(min=1e-6)).clamp(max=1.0)
    reach, length = reach * shorter[..., None], length * shorter
    line = _fastest_around(reach, length)
    along = line.norm(dim=-1)
    own_depth = depth.flatten(0, 1)
    planes = torch.cat((image.flatten(0, 1), length[:, None], own_depth[:, None]), 1)
    x = torch.arange(width, device=field.device, dtype=torch.float32)
    y = torch.arange(height, device=field.device, dtype=torch.float32)[:, None]
    total = torch.zeros_like(planes[:, :3])
    weights = torch.zeros_like(length)
    for step in torch.linspace(-1.0, 1.0, samples).tolist():
        column = (x + step * line[..., 0]) * 2 / max(width - 1, 1) - 1
        row = (y + step * line[..., 1]) * 2 / max(height - 1, 1) - 1
        grid = torch.stack((column, row), -1)
        seen = F.grid_sample(planes, grid, mode="nearest", padding_mode="border", align_corners=True)
        away = abs(step) * along
        sweeps = (seen[:, 3] - away + 1).clamp(0, 1)  # the sample's motion reaches this pixel
        leaves = (length - away + 1).clamp(0, 1)  # this pixel's own motion uncovers the sample
        in_front = seen[:, 4] < own_depth * SAME_DEPTH
        weight = torch.where(in_front, sweeps, leaves)
        total += seen[:, :3] * weight[:, None]
        weights += weight
    return (total / weights[:, None]).unflatten(0, (batch, 2))


def _fastest_around(reach: Tensor, length: Tensor) -> Tensor:
    """(N, H, W, 2): the longest of all reaches in a pixel's tile and the eight around it."""
    height, width = length.shape[1:]
    padded = F.pad(length[:, None], (0, -width % TILE, 0, -height % TILE), value=-1.0)
    vectors = F.pad(reach.movedim(-1, 1), (0, -width % TILE, 0, -height % TILE))

    def longest(size: Tensor, vector: Tensor, side: int, step: int, padding: int) -> tuple[Tensor, Tensor]:
        pooled, index = F.max_pool2d(size, side, step, padding, return_indices=True)
        picked = vector.flatten(2).gather(2, index.flatten(2).expand(-1, 2, -1))
        return pooled, picked.unflatten(2, pooled.shape[-2:])

    tiles = longest(padded, vectors, TILE, TILE, 0)
    _, around = longest(*tiles, 3, 1, 1)
    wide = around.repeat_interleave(TILE, -2).repeat_interleave(TILE, -1)
    return wide[..., :height, :width].movedim(1, -1)
