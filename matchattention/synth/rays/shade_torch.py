"""Shading on torch tensors: the CPU path and the reference of the Triton kernel."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from matchattention.synth.rays import shading
from matchattention.synth.rays.cast_torch import cast_anywhere
from matchattention.synth.rays.dialect import as_torch
from matchattention.synth.rays.dispatch import KINDS
from matchattention.synth.rays.materials import COLUMNS
from matchattention.synth.rays.tables import MISS, RayTables, ShadeTables

_shade = as_torch(shading.shade)
_through_pane = as_torch(shading.through_pane)
CLEAR, MIRROR = COLUMNS.index("clear"), COLUMNS.index("mirror")
RUN = 131072  # pixels shaded at once: enough for all of torch's threads, few enough for the processor's cache


def shade(
    tables: ShadeTables, solids: RayTables, cameras: Tensor, offsets: Tensor, depth: Tensor, hit: Tensor
) -> Tensor:
    """Colours of all pixels, averaged over their samples.

    Args:
        tables: surfaces, materials, light.
        solids: the caster's tables; mirrors and clear surfaces cast again.
        cameras: (B, V, 3) px: focal length and principal point.
        offsets: (S, 2) px sample positions.
        depth: (B, V, S, H, W) m from the caster.
        hit: (B, V, S, H, W) int32 from the caster.

    Returns:
        (B, V, 3, H, W) linear light.
    """
    batch, views, samples, height, width = depth.shape
    image = torch.zeros((batch, views, 3, height * width), device=depth.device)
    x_pixel = torch.arange(width, dtype=torch.float32, device=depth.device).expand(height, width).reshape(-1)
    y_pixel = torch.arange(height, dtype=torch.float32, device=depth.device)[:, None].expand(height, width).reshape(-1)
    lenses = cameras.tolist()

    for b, v, first in itertools.product(range(batch), range(views), range(0, height * width, RUN)):
        run = slice(first, first + RUN)
        focal, cx, cy = lenses[b][v]
        for s in range(samples):
            dx = (x_pixel[run] + offsets[s, 0] - cx) / focal
            dy = (y_pixel[run] + offsets[s, 1] - cy) / focal
            t, which = depth[b, v, s].reshape(-1)[run], hit[b, v, s].reshape(-1)[run]
            image[b, v, :, run] += _one_sample(tables, solids, b, v, focal, dx, dy, t, which) / samples
    return image.reshape(batch, views, 3, height, width)


def _one_sample(
    tables: ShadeTables,
    solids: RayTables,
    b: int,
    v: int,
    focal: float,
    dx: Tensor,
    dy: Tensor,
    depth: Tensor,
    hit: Tensor,
) -> Tensor:
    """(3, n) radiance along camera rays (dx, dy, 1) that hit `hit` at `depth`."""
    missed = hit < 0
    t = torch.where(missed, 1.0, depth)
    length = (dx * dx + dy * dy + 1.0).sqrt()
    point = (t * dx, t * dy, t)
    direction = (dx / length, dy / length, 1.0 / length)
    colour, normal = _surface(tables, solids, b, v, focal, point, direction, t * length, missed, hit)
    clear, mirror = (tables.material[b, hit.clamp(min=0).long(), column] for column in (CLEAR, MIRROR))
    onward = torch.where(missed, 0.0, torch.maximum(clear, mirror))
    lanes = onward.nonzero().flatten()
    if len(lanes):
        colour = colour * (1.0 - onward)
        p, d, n = ([c[lanes] for c in vector] for vector in (point, direction, normal))
        fold = torch.where(clear[lanes] > 0.0, 0.0, -2.0 * (d[0] * n[0] + d[1] * n[1] + d[2] * n[2]))
        away = [c + fold * m for c, m in zip(d, n)]
        further, struck = cast_anywhere(solids, b, v, p, away)
        lost = struck < 0
        further = torch.where(lost, 1.0, further)
        there = [c + further * a for c, a in zip(p, away)]
        seen, _ = _surface(tables, solids, b, v, focal, there, away, (t * length)[lanes] + further, lost, struck)
        colour[:, lanes] += onward[lanes] * seen
    pane = KINDS.index("pane")
    red, green, blue = colour
    for slot in range(solids.slots[pane], solids.slots[pane] + int(solids.counts[b, pane])):
        red, green, blue = _through_pane(
            solids.rays[b, v, slot].tolist(),
            tables.material[b, slot].tolist(),
            tables.ambience[b, v].tolist(),
            red,
            green,
            blue,
            torch.where(missed, MISS, depth),
            dx,
            dy,
        )
    return torch.stack((red, green, blue))


def _surface(
    tables: ShadeTables,
    solids: RayTables,
    b: int,
    v: int,
    focal: float,
    point: Sequence[Tensor],
    direction: Sequence[Tensor],
    travelled: Tensor,
    missed: Tensor,
    hit: Tensor,
) -> tuple[Tensor, Tensor]:
    """(3, n) radiance and (3, n) normals of points on the primitives `hit`."""
    slot = hit.clamp(min=0).long()
    photos = tables.photos
    *colour, nx, ny, nz = _shade(
        _Columns(solids.rays[b, v], slot),
        tables.kinds[slot],
        _Columns(tables.surface[b], slot),
        _Columns(tables.material[b], slot),
        tables.ambience[b, v].tolist(),
        tables.shadow[b, min(v, tables.shadow.shape[1] - 1)].reshape(-1),
        *point,
        *direction,
        travelled,
        missed,
        focal,
        photos.texels,
        photos.starts,
        tables.shadow.shape[-1],
        photos.size,
        photos.levels,
    )
    return torch.stack(colour), torch.stack((nx, ny, nz))


class _Columns:
    """Rows of a table gathered per lane, one column at a time when asked for."""

    def __init__(self, table: Tensor, slot: Tensor) -> None:
        self.table, self.slot = table, slot

    def __getitem__(self, column: int) -> Tensor:
        return self.table[:, column][self.slot]
