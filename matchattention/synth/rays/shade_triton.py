"""Shading as one Triton kernel: a program shades all samples of a run of pixels and averages them."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth.rays.cast_triton import nearest
from matchattention.synth.rays.dialect import any_lane, jit, tl
from matchattention.synth.rays.dispatch import PANE
from matchattention.synth.rays.materials import CLEAR, MIRROR
from matchattention.synth.rays.shading import shade as shade_lanes
from matchattention.synth.rays.shading import through_pane
from matchattention.synth.rays.tables import RayTables, ShadeTables

BLOCK = 128


@jit
def shade_kernel(
    rays,
    counts,
    kinds,
    surface,
    material,
    ambience,
    shadow,
    cameras,
    offsets,
    depth,
    hit,
    image,
    photos,
    starts,
    height,
    width,
    views,
    total,
    columns,
    ambience_columns,
    shadows,
    SLOTS: tl.constexpr,
    SAMPLES: tl.constexpr,
    SHADOW_SIZE: tl.constexpr,
    PHOTO_SIZE: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Shade a run of pixels of one view; grid (runs, B * V)."""
    view = tl.program_id(1)
    scene = view // views
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < height * width
    focal = tl.load(cameras + view * 3)
    cx = tl.load(cameras + view * 3 + 1)
    cy = tl.load(cameras + view * 3 + 2)
    x = (pixel % width).to(tl.float32)
    y = (pixel // width).to(tl.float32)
    rays += view * total * 16
    counts += scene * (PANE + 1)
    surface += scene * total * 4
    material += scene * total * columns
    ambience += view * ambience_columns
    shadow += (scene * shadows + tl.minimum(view % views, shadows - 1)) * SHADOW_SIZE * SHADOW_SIZE
    red = tl.zeros([BLOCK], tl.float32)
    green = tl.zeros([BLOCK], tl.float32)
    blue = tl.zeros([BLOCK], tl.float32)
    for sample in range(SAMPLES):
        place = (view * SAMPLES + sample) * height * width + pixel
        first = tl.load(depth + place, mask=inside, other=1.0)
        slot = tl.load(hit + place, mask=inside, other=0)
        dx = (x + tl.load(offsets + sample * 2) - cx) / focal
        dy = (y + tl.load(offsets + sample * 2 + 1) - cy) / focal
        length = tl.sqrt(dx * dx + dy * dy + 1.0)
        t = tl.where(slot < 0, 1.0, first)
        px = t * dx
        py = t * dy
        pz = t
        vx = dx / length
        vy = dy / length
        vz = 1.0 / length
        travelled = t * length
        weight = tl.full([BLOCK], 1.0, tl.float32)
        sum_r = tl.zeros([BLOCK], tl.float32)
        sum_g = tl.zeros([BLOCK], tl.float32)
        sum_b = tl.zeros([BLOCK], tl.float32)
        # Surface, then what it mirrors or lets through: one body for both keeps the kernel small.
        bounce = 0 * view
        while bounce < 2:
            missed = slot < 0
            slot = tl.maximum(slot, 0)
            r, g, b, nx, ny, nz = shade_lanes(
                rays + slot * 16,
                tl.load(kinds + slot),
                surface + slot * 4,
                material + slot * columns,
                ambience,
                shadow,
                px,
                py,
                pz,
                vx,
                vy,
                vz,
                travelled,
                missed,
                focal,
                photos,
                starts,
                SHADOW_SIZE,
                PHOTO_SIZE,
                LEVELS,
            )
            clear = tl.load(material + slot * columns + CLEAR)
            onward = tl.maximum(clear, tl.load(material + slot * columns + MIRROR))
            onward = tl.where(missed | (bounce > 0), 0.0, onward)
            direct = weight * (1.0 - onward)
            sum_r += direct * r
            sum_g += direct * g
            sum_b += direct * b
            weight = weight * onward
            bounce += 1
            if any_lane(weight > 0.0):
                fold = tl.where(clear > 0.0, 0.0, -2.0 * (vx * nx + vy * ny + vz * nz))
                vx = vx + fold * nx
                vy = vy + fold * ny
                vz = vz + fold * nz
                further, slot = nearest(rays, rays, counts, px, py, pz, vx, vy, vz, 0.0, 0.0, 0.0, 0.0, False, SLOTS)
                further = tl.where(slot < 0, 1.0, further)
                px = px + further * vx
                py = py + further * vy
                pz = pz + further * vz
                travelled = travelled + further
            else:
                bounce += 2
        pane = SLOTS[PANE] + 0 * bounce
        end = pane + tl.load(counts + PANE)
        while pane < end:
            sum_r, sum_g, sum_b = through_pane(
                rays + pane * 16, material + pane * columns, ambience, sum_r, sum_g, sum_b, first, dx, dy
            )
            pane += 1
        red += sum_r
        green += sum_g
        blue += sum_b
    target = image + view * 3 * height * width + pixel
    tl.store(target, red / SAMPLES, mask=inside)
    tl.store(target + height * width, green / SAMPLES, mask=inside)
    tl.store(target + 2 * height * width, blue / SAMPLES, mask=inside)


def shade(
    tables: ShadeTables, solids: RayTables, cameras: Tensor, offsets: Tensor, depth: Tensor, hit: Tensor
) -> Tensor:
    """Colours of all pixels, averaged over their samples; see `shade_torch.shade`."""
    batch, views, samples, height, width = depth.shape
    image = torch.empty((batch, views, 3, height, width), device=depth.device)
    blocks = -(-height * width // BLOCK)
    photos = tables.photos
    shade_kernel[(blocks, batch * views)](
        solids.rays,
        solids.counts,
        tables.kinds,
        tables.surface,
        tables.material,
        tables.ambience,
        tables.shadow,
        cameras.contiguous(),
        offsets.contiguous(),
        depth,
        hit,
        image,
        photos.texels,
        photos.starts,
        height,
        width,
        views,
        solids.rays.shape[2],
        tables.material.shape[-1],
        tables.ambience.shape[-1],
        tables.shadow.shape[1],
        solids.slots,
        samples,
        tables.shadow.shape[-1],
        photos.size,
        photos.levels,
        BLOCK,
        num_warps=4,
    )
    return image
