"""The ray caster as one Triton kernel: a program casts all samples of a tile of pixels."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth.rays.dialect import jit, tl
from matchattention.synth.rays.dispatch import SOLID_KINDS, hit_of
from matchattention.synth.rays.primitives import MISS
from matchattention.synth.rays.tables import RayTables

TILE_HEIGHT = 8
TILE_WIDTH = 16


@jit
def worth_a_look(bounds, first, end, left, right, top, bottom, CULL: tl.constexpr):
    """Which of the 32 primitives from `first` on have bounds that meet the tile's, as bits of a scalar.

    Testing them side by side in the lanes of a warp takes as long as testing one, and the loop that follows visits
    hits only.
    """
    lane = tl.arange(0, 32)
    look = first + lane < end
    if CULL:
        p = bounds + (first + lane) * 4
        look = look & (tl.load(p, mask=look, other=0.0) < right) & (tl.load(p + 1, mask=look, other=0.0) > left)
        look = look & (tl.load(p + 2, mask=look, other=0.0) < bottom) & (tl.load(p + 3, mask=look, other=0.0) > top)
    return tl.sum(tl.where(look, 1 << lane, 0))


@jit
def lowest(bits):
    """Number of the lowest set bit: the exponent of that power of two as a float."""
    power = (bits & -bits).to(tl.float32)
    return ((power.to(tl.int32, bitcast=True) >> 23) & 255) - 127


@jit
def to_object(p, ox, oy, oz, dx, dy, dz):
    """A camera-space ray in a primitive's object space; `p` points at its row."""
    a = tl.load(p)
    b = tl.load(p + 1)
    c = tl.load(p + 2)
    ux = a * dx + b * dy + c * dz
    ax = a * ox + b * oy + c * oz + tl.load(p + 9)
    a = tl.load(p + 3)
    b = tl.load(p + 4)
    c = tl.load(p + 5)
    uy = a * dx + b * dy + c * dz
    ay = a * ox + b * oy + c * oz + tl.load(p + 10)
    a = tl.load(p + 6)
    b = tl.load(p + 7)
    c = tl.load(p + 8)
    uz = a * dx + b * dy + c * dz
    az = a * ox + b * oy + c * oz + tl.load(p + 11)
    return ax, ay, az, ux, uy, uz


@jit
def nearest(
    rays,
    bounds,
    counts,
    ox,
    oy,
    oz,
    dx,
    dy,
    dz,
    left,
    right,
    top,
    bottom,
    CULL: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """First hit of a block of rays with one scene's solids: parameter and slot.

    Args:
        rays: the view's table.
        bounds: the view's bounds, compared with the block's (`left` ... `bottom`, ratios to z) where CULL.
        counts: solids of each kind.
        ox: origins in camera space (also oy, oz); dx, dy, dz directions.
        SLOTS: first slot of each kind.
    """
    best = 0.0 * dx + MISS
    which = (0.0 * dx).to(tl.int32) - 1
    for kind in tl.static_range(SOLID_KINDS):
        count = tl.load(counts + kind)
        first = SLOTS[kind] + 0 * count
        end = first + count
        while first < end:
            bits = worth_a_look(bounds, first, end, left, right, top, bottom, CULL)
            while bits != 0:
                i = first + lowest(bits)
                bits = bits & (bits - 1)
                p = rays + i * 16
                ax, ay, az, ux, uy, uz = to_object(p, ox, oy, oz, dx, dy, dz)
                t = hit_of(kind, p, ax, ay, az, ux, uy, uz)
                which = tl.where(t < best, i, which)
                best = tl.minimum(t, best)
            first += 32
    return best, which


@jit
def cast_kernel(
    rays,
    bounds,
    counts,
    cameras,
    offsets,
    shift,
    depth,
    hit,
    height,
    width,
    views,
    total,
    SLOTS: tl.constexpr,
    SAMPLES: tl.constexpr,
    SHIFTED: tl.constexpr,
    TILE_H: tl.constexpr,
    TILE_W: tl.constexpr,
):
    """Cast every sample of one tile of one view; grid (tiles, B * V)."""
    view = tl.program_id(1)
    scene = view // views
    tiles_x = tl.cdiv(width, TILE_W)
    tile_y = tl.program_id(0) // tiles_x
    tile_x = tl.program_id(0) % tiles_x
    lane = tl.arange(0, SAMPLES * TILE_H * TILE_W)
    sample = lane // (TILE_H * TILE_W)
    row = tile_y * TILE_H + (lane // TILE_W) % TILE_H
    column = tile_x * TILE_W + lane % TILE_W
    inside = (row < height) & (column < width)
    focal = tl.load(cameras + view * 3)
    cx = tl.load(cameras + view * 3 + 1)
    cy = tl.load(cameras + view * 3 + 2)
    x = column.to(tl.float32) + tl.load(offsets + sample * 2)
    y = row.to(tl.float32) + tl.load(offsets + sample * 2 + 1)
    if SHIFTED:
        place = (view * 2 * height + row) * width + column
        x += tl.load(shift + place, mask=inside, other=0.0)
        y += tl.load(shift + place + height * width, mask=inside, other=0.0)
    dx = (x - cx) / focal
    dy = (y - cy) / focal
    best, which = nearest(
        rays + view * total * 16,
        bounds + view * total * 4,
        counts + scene * (SOLID_KINDS + 1),
        0.0,
        0.0,
        0.0,
        dx,
        dy,
        1.0,
        tl.min(dx),
        tl.max(dx),
        tl.min(dy),
        tl.max(dy),
        True,
        SLOTS,
    )
    place = ((view * SAMPLES + sample) * height + row) * width + column
    tl.store(depth + place, best, mask=inside)
    tl.store(hit + place, which, mask=inside)


def cast(
    tables: RayTables, cameras: Tensor, size: tuple[int, int], offsets: Tensor, shift: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """First hits of the rays through every pixel; see `cast_torch.cast`. The number of samples is a power of two."""
    height, width = size
    batch, views, total = tables.rays.shape[:3]
    samples = offsets.shape[0]
    shape = (batch, views, samples, height, width)
    depth = torch.empty(shape, device=tables.rays.device)
    hit = torch.empty(shape, dtype=torch.int32, device=tables.rays.device)
    tile_height, tile_width = (TILE_HEIGHT, TILE_WIDTH) if samples > 1 else (2 * TILE_HEIGHT, 2 * TILE_WIDTH)
    tiles = -(-height // tile_height) * -(-width // tile_width)
    cast_kernel[(tiles, batch * views)](
        tables.rays,
        tables.bounds,
        tables.counts,
        cameras.contiguous(),
        offsets.contiguous(),
        depth if shift is None else shift.contiguous(),
        depth,
        hit,
        height,
        width,
        views,
        total,
        tables.slots,
        samples,
        shift is not None,
        tile_height,
        tile_width,
        num_warps=4,
    )
    return depth, hit
