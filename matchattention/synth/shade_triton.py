"""Shading as one Triton kernel: a program shades all samples of a row segment of pixels and averages them."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth.dialect import jit, tl
from matchattention.synth.shading import shade as shade_lanes
from matchattention.synth.tables import ShadeTables

BLOCK = 128


@jit
def shade_kernel(rays, kinds, surface, material, ambience, shadow, cameras, offsets, depth, hit, image, photos, starts,
                 height, width, views, total, columns, ambience_columns,
                 SAMPLES: tl.constexpr, SHADOW_SIZE: tl.constexpr, PHOTO_SIZE: tl.constexpr, LEVELS: tl.constexpr,
                 BLOCK: tl.constexpr):
    view = tl.program_id(1)
    scene = view // views
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < height * width
    focal = tl.load(cameras + view * 3)
    cx = tl.load(cameras + view * 3 + 1)
    cy = tl.load(cameras + view * 3 + 2)
    x = (pixel % width).to(tl.float32)
    y = (pixel // width).to(tl.float32)
    red = tl.zeros([BLOCK], tl.float32)
    green = tl.zeros([BLOCK], tl.float32)
    blue = tl.zeros([BLOCK], tl.float32)
    for sample in range(SAMPLES):
        place = (view * SAMPLES + sample) * height * width + pixel
        t = tl.load(depth + place, mask=inside, other=1.0)
        slot = tl.load(hit + place, mask=inside, other=0)
        missed = slot < 0
        slot = tl.maximum(slot, 0)
        dx = (x + tl.load(offsets + sample * 2) - cx) / focal
        dy = (y + tl.load(offsets + sample * 2 + 1) - cy) / focal
        r, g, b = shade_lanes(rays + (view * total + slot) * 16, tl.load(kinds + slot),
                              surface + (scene * total + slot) * 4,
                              material + (scene * total + slot) * columns, ambience + view * ambience_columns,
                              shadow + scene * SHADOW_SIZE * SHADOW_SIZE, t, missed, dx, dy, focal, photos, starts,
                              SHADOW_SIZE, PHOTO_SIZE, LEVELS)
        red += r
        green += g
        blue += b
    target = image + view * 3 * height * width + pixel
    tl.store(target, red / SAMPLES, mask=inside)
    tl.store(target + height * width, green / SAMPLES, mask=inside)
    tl.store(target + 2 * height * width, blue / SAMPLES, mask=inside)


def shade(tables: ShadeTables, rays: Tensor, cameras: Tensor, offsets: Tensor, depth: Tensor, hit: Tensor) -> Tensor:
    """Colours of all pixels, averaged over their samples; see `shade_torch.shade`."""
    batch, views, samples, height, width = depth.shape
    image = torch.empty((batch, views, 3, height, width), device=depth.device)
    blocks = -(-height * width // BLOCK)
    shade_kernel[(blocks, batch * views)](
        rays, tables.kinds, tables.surface, tables.material, tables.ambience, tables.shadow,
        cameras.contiguous(), offsets.contiguous(), depth, hit, image, tables.photos.texels, tables.photos.starts,
        height, width, views, rays.shape[2],
        tables.material.shape[-1], tables.ambience.shape[-1],
        samples, tables.shadow.shape[-1], tables.photos.size, tables.photos.levels, BLOCK, num_warps=4)
    return image
