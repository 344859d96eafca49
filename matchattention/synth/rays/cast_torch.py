"""The ray caster on torch tensors: the CPU path and the reference of the Triton kernel."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import torch
from torch import Tensor

from matchattention.synth.rays.dialect import as_torch
from matchattention.synth.rays.dispatch import SOLIDS
from matchattention.synth.rays.primitives import PRIMITIVES
from matchattention.synth.rays.tables import MISS, RayTables

_INTERSECT = tuple(as_torch(primitive.hit) for primitive in PRIMITIVES.values())
TILE_HEIGHT, TILE_WIDTH = 96, 128  # px; enough rays for all of torch's threads, few enough for the processor's cache
_PARAMETERS = tuple(len(primitive.parameters) for primitive in PRIMITIVES.values())


def intersect(
    kind: int,
    row: list[float],
    dx: Tensor,
    dy: Tensor,
    dz: Tensor | float = 1.0,
    start: Sequence[Tensor] | None = None,
) -> Tensor:
    """Parameter of the first hit of camera-space rays with one primitive.

    Args:
        kind: index into `dispatch.KINDS`.
        row: the primitive's 16 numbers.
        dx: ray directions in camera space, any shape (also dy, dz).
        start: ray origins in camera space; the camera's centre by default.
    """
    m = row
    ux = m[0] * dx + m[1] * dy + m[2] * dz
    uy = m[3] * dx + m[4] * dy + m[5] * dz
    uz = m[6] * dx + m[7] * dy + m[8] * dz
    if start is None:
        origin = [torch.full_like(ux, o) for o in m[9:12]]
    else:
        sx, sy, sz = start
        origin = [m[9 + i] + m[3 * i] * sx + m[3 * i + 1] * sy + m[3 * i + 2] * sz for i in range(3)]
    return _INTERSECT[kind](*origin, ux, uy, uz, *row[12 : 12 + _PARAMETERS[kind]])


def cast(
    tables: RayTables, cameras: Tensor, size: tuple[int, int], offsets: Tensor, shift: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """First hits of the rays through every pixel of every view.

    Args:
        tables: the primitives.
        cameras: (B, V, 3) px: focal length and principal point (x, y).
        size: height and width.
        offsets: (S, 2) px, sample positions (x, y) relative to the pixel's centre.
        shift: (B, V, 2, H, W) px added to each pixel's x and y, or None.

    Returns:
        depth: (B, V, S, H, W) m, `MISS` where nothing is hit.
        hit: (B, V, S, H, W) int32 slot of the primitive, -1 for none.
    """
    height, width = size
    batch, views = tables.rays.shape[:2]
    samples = offsets.shape[0]
    device = tables.rays.device
    depth = torch.empty((batch, views, samples, height, width), device=device)
    hit = torch.empty((batch, views, samples, height, width), dtype=torch.int32, device=device)
    bounds, lenses = tables.bounds.tolist(), cameras.tolist()
    solids = [
        [
            (kind, i)
            for kind, count in enumerate(counts[: len(SOLIDS)])
            for i in range(tables.slots[kind], tables.slots[kind] + count)
        ]
        for counts in tables.counts.tolist()
    ]
    rows = tables.rays.tolist()

    tiles = itertools.product(range(batch), range(views), range(0, height, TILE_HEIGHT), range(0, width, TILE_WIDTH))
    for b, v, top, left in tiles:
        focal, cx, cy = lenses[b][v]
        tile = (slice(None), slice(top, top + TILE_HEIGHT), slice(left, left + TILE_WIDTH))
        shape = depth[b, v][tile].shape
        x = torch.arange(left, left + shape[2], dtype=torch.float32, device=device) + offsets[:, :1, None]
        y = torch.arange(top, top + shape[1], dtype=torch.float32, device=device)[:, None] + offsets[:, 1:, None]
        if shift is not None:
            x = x + shift[b, v, 0][tile[1:]]
            y = y + shift[b, v, 1][tile[1:]]
        dx = ((x - cx) / focal).expand(shape)
        dy = ((y - cy) / focal).expand(shape)
        depth[b, v][tile], hit[b, v][tile] = _tile(solids[b], rows[b][v], bounds[b][v], dx, dy)
    return depth, hit


def _tile(
    solids: list[tuple[int, int]], rows: list[list[float]], bounds: list[list[float]], dx: Tensor, dy: Tensor
) -> tuple[Tensor, Tensor]:
    """First hits of camera rays (dx, dy, 1), (S, H, W), with the solids whose bounds meet theirs."""
    depth = torch.full(dx.shape, MISS, device=dx.device)
    hit = torch.full(dx.shape, -1, dtype=torch.int32, device=dx.device)
    columns, lines = _Range(dx.transpose(1, 2)), _Range(dy)
    for kind, i in solids:
        low_x, high_x, low_y, high_y = bounds[i]
        part = (slice(None), lines.between(low_y, high_y), columns.between(low_x, high_x))
        nearest = depth[part]
        if nearest.numel():
            t = intersect(kind, rows[i], dx[part], dy[part])
            hit[part].masked_fill_(t < nearest, i)
            depth[part] = torch.minimum(t, nearest)
    return depth, hit


class _Range:
    """Which lines of a tile a bound can meet, by the least and the largest coordinate on each, (S, lines, …)."""

    def __init__(self, coordinate: Tensor) -> None:
        # Rays that were shifted are in no order: a line then counts for all those behind or before it.
        self._largest = coordinate.amax((0, 2)).cummax(0).values.tolist()
        self._least = coordinate.amin((0, 2)).flip(0).cummin(0).values.flip(0).tolist()

    def between(self, low: float, high: float) -> slice:
        return slice(bisect_right(self._largest, low), bisect_left(self._least, high))


def cast_anywhere(
    tables: RayTables,
    scene: int,
    view: int,
    start: Sequence[Tensor],
    direction: Sequence[Tensor],
) -> tuple[Tensor, Tensor]:
    """First hits of single rays of one view: parameter and int64 slot, -1 for none.

    Args:
        start: x, y, z of the origins in camera space, m, (n,) each.
        direction: x, y, z of unit directions, (n,) each.
    """
    depth = torch.full_like(start[0], MISS)
    hit = torch.full_like(depth, -1, dtype=torch.int64)
    for kind, count in enumerate(tables.counts[scene].tolist()[: len(SOLIDS)]):
        first = tables.slots[kind]
        for i, row in enumerate(tables.rays[scene, view, first : first + count].tolist(), first):
            t = intersect(kind, row, direction[0], direction[1], direction[2], start)
            hit = torch.where(t < depth, i, hit)
            depth = torch.minimum(t, depth)
    return depth, hit
