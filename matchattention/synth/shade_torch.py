"""Shading on torch tensors: the CPU path and the reference of the Triton kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth import shading
from matchattention.synth.dialect import as_torch
from matchattention.synth.tables import ShadeTables

_shade = as_torch(shading.shade)


def shade(tables: ShadeTables, rays: Tensor, cameras: Tensor, offsets: Tensor, depth: Tensor, hit: Tensor) -> Tensor:
    """Colours of all pixels, averaged over their samples.

    Args:
        tables: surfaces, materials, light.
        rays: (B, V, N, 16) the caster's table.
        cameras: (B, V, 3) px: focal length and principal point.
        offsets: (S, 2) px sample positions.
        depth: (B, V, S, H, W) m from the caster.
        hit: (B, V, S, H, W) int32 from the caster.

    Returns:
        (B, V, 3, H, W) linear light.
    """
    batch, views, samples, height, width = depth.shape
    image = torch.empty((batch, views, 3, height, width), device=depth.device)
    x_pixel = torch.arange(width, dtype=torch.float32, device=depth.device).expand(height, width).reshape(-1)
    y_pixel = torch.arange(height, dtype=torch.float32, device=depth.device)[:, None].expand(height, width).reshape(-1)
    size, photos = tables.shadow.shape[-1], tables.photos
    for b in range(batch):
        for v in range(views):
            focal, cx, cy = cameras[b, v].tolist()
            ambience = tables.ambience[b, v].tolist()
            total = torch.zeros((3, height * width), device=depth.device)
            for s in range(samples):
                slot = hit[b, v, s].reshape(-1).long()
                missed = slot < 0
                slot = slot.clamp(min=0)
                dx = (x_pixel + offsets[s, 0] - cx) / focal
                dy = (y_pixel + offsets[s, 1] - cy) / focal
                colour = _shade(_columns(rays[b, v], slot), tables.kinds[slot], _columns(tables.surface[b], slot),
                                _columns(tables.material[b], slot), ambience, tables.shadow[b].reshape(-1),
                                depth[b, v, s].reshape(-1), missed, dx, dy, focal, photos.texels,
                                photos.starts, size, photos.size, photos.levels)
                total += torch.stack(colour)
            image[b, v] = (total / samples).reshape(3, height, width)
    return image


class _columns:
    """Rows of a table gathered per lane, one column at a time when asked for."""

    def __init__(self, table: Tensor, slot: Tensor) -> None:
        self.table, self.slot = table, slot

    def __getitem__(self, column: int) -> Tensor:
        return self.table[:, column][self.slot]
