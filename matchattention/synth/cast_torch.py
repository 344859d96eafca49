"""The ray caster on torch tensors: the CPU path and the reference of the Triton kernel."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from matchattention.synth import shapes
from matchattention.synth.dialect import as_torch
from matchattention.synth.tables import MISS, SOLIDS, RayTables

_INTERSECT = tuple(as_torch(f) for f in (shapes.hit_card, shapes.hit_box, shapes.hit_ellipsoid, shapes.hit_frustum,
                                         shapes.hit_torus, shapes.hit_terrain))
_PARAMETERS = (4, 0, 0, 1, 1, 2)  # shape parameters that each kind's function takes


def intersect(kind: int, row: list[float], dx: Tensor, dy: Tensor, dz: Tensor | float = 1.0,
              start: tuple[Tensor, Tensor, Tensor] | None = None) -> Tensor:
    """Parameter of the first hit of camera-space rays with one primitive.

    Args:
        kind: index into `tables.KINDS`.
        row: the primitive's 16 numbers.
        dx: ray directions in camera space, any shape (also dy, dz).
        start: ray origins in camera space; the camera's centre by default.
    """
    m = row
    ux = m[0] * dx + m[1] * dy + m[2] * dz
    uy = m[3] * dx + m[4] * dy + m[5] * dz
    uz = m[6] * dx + m[7] * dy + m[8] * dz
    ox, oy, oz = m[9], m[10], m[11]
    if start is not None:
        sx, sy, sz = start
        ox, oy, oz = (o + m[3 * i] * sx + m[3 * i + 1] * sy + m[3 * i + 2] * sz for i, o in enumerate((ox, oy, oz)))
    else:
        ox, oy, oz = (torch.full_like(ux, o) for o in (ox, oy, oz))
    return _INTERSECT[kind](ox, oy, oz, ux, uy, uz, *row[12:12 + _PARAMETERS[kind]])


def cast(tables: RayTables, cameras: Tensor, size: tuple[int, int], offsets: Tensor,
         shift: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """First hits of the rays through every pixel of every view.

    Args:
        tables: the primitives.
        cameras: (B, V, 3) px: focal length and principal point (x, y).
        size: height and width.
        offsets: (S, 2) px, sample positions (x, y) relative to the pixel's centre.
        shift: (B, V, H, W) px added to each pixel's x, or None.

    Returns:
        depth: (B, V, S, H, W) m, `MISS` where nothing is hit.
        hit: (B, V, S, H, W) int32 slot of the primitive, -1 for none.
    """
    height, width = size
    batch, views = tables.rays.shape[:2]
    samples = offsets.shape[0]
    device = tables.rays.device
    depth = torch.full((batch, views, samples, height, width), MISS, device=device)
    hit = torch.full((batch, views, samples, height, width), -1, dtype=torch.int32, device=device)
    rows, bounds = tables.rays.tolist(), tables.bounds.tolist()
    counts, lenses = tables.counts.tolist(), cameras.tolist()
    x_pixel = torch.arange(width, dtype=torch.float32, device=device)
    y_pixel = torch.arange(height, dtype=torch.float32, device=device)
    for b in range(batch):
        for v in range(views):
            focal, cx, cy = lenses[b][v]
            x = x_pixel + offsets[:, :1, None]  # (S, 1, W)
            if shift is not None:
                x = x + shift[b, v][None]
            dx = ((x - cx) / focal).expand(samples, height, width)
            dy = ((y_pixel[:, None] + offsets[:, 1:, None] - cy) / focal).expand(samples, height, width)
            for kind, count in enumerate(counts[b][:len(SOLIDS)]):
                for i in range(tables.slots[kind], tables.slots[kind] + count):
                    low_x, high_x, low_y, high_y = bounds[b][v][i]
                    top, bottom = _pixels(low_y, high_y, focal, cy, height)
                    left, right = (0, width) if shift is not None else _pixels(low_x, high_x, focal, cx, width)
                    if top >= bottom or left >= right:
                        continue
                    window = (slice(None), slice(top, bottom), slice(left, right))
                    t = intersect(kind, rows[b][v][i], dx[window], dy[window])
                    best, which = depth[b, v][window], hit[b, v][window]
                    closer = t < best
                    best.copy_(torch.where(closer, t, best))
                    which.masked_fill_(closer, i)
    return depth, hit


def cast_anywhere(tables: RayTables, scene: int, view: int, start: tuple[Tensor, Tensor, Tensor],
                  direction: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """First hits of single rays of one view: parameter and int64 slot, -1 for none.

    Args:
        start: x, y, z of the origins in camera space, m, (n,) each.
        direction: x, y, z of unit directions, (n,) each.
    """
    depth = torch.full_like(start[0], MISS)
    hit = torch.full_like(depth, -1, dtype=torch.int64)
    for kind, count in enumerate(tables.counts[scene].tolist()[:len(SOLIDS)]):
        first = tables.slots[kind]
        for i, row in enumerate(tables.rays[scene, view, first:first + count].tolist(), first):
            t = intersect(kind, row, *direction, start)
            hit = torch.where(t < depth, i, hit)
            depth = torch.minimum(t, depth)
    return depth, hit


def _pixels(low: float, high: float, focal: float, principal: float, extent: int) -> tuple[int, int]:
    """Range of pixels whose samples may see the bounds, as a half-open interval."""
    if high < low:
        return 0, 0
    first = 0 if low * focal + principal < 0 else math.floor(min(low * focal + principal - 0.5, extent))
    last = extent if high * focal + principal > extent else math.ceil(max(high * focal + principal + 1.5, 0))
    return max(first, 0), min(last, extent)
