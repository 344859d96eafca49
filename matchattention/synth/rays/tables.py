"""The scene as numbers: the tables that the ray caster and the shader read.

A batch of scenes is a table of primitives (B, N, ...) sorted by kind. Each kind owns a fixed range of slots,
filled from its start, so kernels loop over one kind at a time without branching per ray.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from matchattention.synth.rays import primitives


def number(constant: Any) -> float:
    """The plain value of a constant of the dialect."""
    return getattr(constant, "value", constant)


MISS = number(primitives.MISS)
Slots = tuple[int, ...]


class RayTables(NamedTuple):
    """What casting needs, per view: everything is in the object space of each primitive.

    Attributes:
        rays: (B, V, N, 16) fp32: 3x3 camera-to-object matrix by rows, camera centre in object space, four shape
            parameters.
        bounds: (B, V, N, 4) fp32 least and greatest x/z, least and greatest y/z of the primitive as seen by the view.
        counts: (B, kinds) int32 primitives of each of `dispatch.KINDS`.
        slots: first slot of each kind and N at the end.
    """

    rays: Tensor
    bounds: Tensor
    counts: Tensor
    slots: Slots


@cache
def _corners(device: torch.device) -> Tensor:
    """(8, 3) corners of the cube that holds every primitive."""
    return torch.tensor([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)], device=device)


def ray_tables(
    axes: Tensor,
    centre: Tensor,
    half: Tensor,
    shape: Tensor,
    counts: Tensor,
    slots: Slots,
    view_rotation: Tensor,
    view_position: Tensor,
) -> RayTables:
    """Express every primitive in every view.

    Args:
        axes: (B, V, N, 3, 3) rows are the object's unit axes in world space (they may differ per view: motion).
        centre: (B, V, N, 3) m, world.
        half: (B, N, 3) m, half extents along the axes.
        shape: (B, N, 4) shape parameters.
        counts: (B, kinds) int32.
        slots: first slot of each kind, then N.
        view_rotation: (B, V, 3, 3) world to camera.
        view_position: (B, V, 3) m, camera centres in the world.
    """
    batch, views, total = centre.shape[:3]
    scale = half[:, None].clamp(min=1e-5)
    to_camera = torch.einsum("bvij,bvnkj->bvnki", view_rotation, axes)  # rows: object axes in camera space
    offset = centre - view_position[:, :, None]
    camera_centre = torch.einsum("bvij,bvnj->bvni", view_rotation, offset)
    matrix = to_camera / scale[..., None]
    origin = -torch.einsum("bvnij,bvnj->bvni", to_camera, camera_centre) / scale
    rays = torch.cat((matrix.flatten(-2), origin, shape[:, None].expand(batch, views, total, 4)), dim=-1)
    reach = _corners(centre.device) * scale[..., None, :]  # (B, V, N, 8, 3)
    corners = camera_centre[..., None, :] + reach @ to_camera
    depth = corners[..., 2]
    ratio = corners[..., :2] / depth[..., None].clamp(min=1e-3)
    low, high = ratio.amin(-2), ratio.amax(-2)
    crosses = depth.amin(-1, keepdim=True) < 0.05  # the box reaches the camera plane: no finite bound
    behind = depth.amax(-1, keepdim=True) < 0.0
    low = torch.where(crosses, -MISS, low)
    high = torch.where(crosses, MISS, high)
    high = torch.where(behind, -MISS, high)
    bounds = torch.stack((low[..., 0], high[..., 0], low[..., 1], high[..., 1]), dim=-1)
    return RayTables(rays.contiguous(), bounds.contiguous(), counts, slots)


@cache
def slot_kinds(slots: Slots, device: torch.device) -> Tensor:
    """(N,) int32 kind of each slot."""
    ranges = zip(slots, slots[1:])
    return torch.cat([torch.full((b - a,), k, dtype=torch.int32) for k, (a, b) in enumerate(ranges)]).to(device)


class Photos(NamedTuple):
    """A pyramid of square photos.

    Attributes:
        texels: flat int32, red in the lowest byte; all photos of a level follow each other.
        starts: (levels,) int32 first texel of each level.
        size: px, side of the largest level.
        levels: of the pyramid.
        amount: of photos.
    """

    texels: Tensor
    starts: Tensor
    size: int
    levels: int
    amount: int


def photo_pyramid(bank: Tensor | None, device: torch.device) -> Photos:
    """Halve the photos of a (T, 3, S, S) uint8 bank down to 4 px; a black dot stands for no bank."""
    if bank is None:
        zero = torch.zeros(2, dtype=torch.int32, device=device)
        return Photos(zero, zero, 1, 2, 0)
    level = bank.to(device)
    size = level.shape[-1]
    texels, starts, first = [], [], 0
    while level.shape[-1] >= 4:
        whole = level.to(torch.int32)
        texels.append((whole[:, 0] | (whole[:, 1] << 8) | (whole[:, 2] << 16)).flatten())
        starts.append(first)
        first += len(texels[-1])
        # Levels are averaged in linear light, as a lens would.
        level = torch.cat(
            [
                (255.0 * torch.nn.functional.avg_pool2d((part.float() / 255.0) ** 2.2, 2) ** (1.0 / 2.2))
                .round_()
                .byte()
                for part in level.split(256)
            ]
        )
    return Photos(
        torch.cat(texels), torch.tensor(starts, dtype=torch.int32, device=device), size, len(texels), bank.shape[0]
    )


class ShadeTables(NamedTuple):
    """What shading needs besides the caster's tables and its hits.

    Attributes:
        kinds: (N,) int32 kind of each slot.
        surface: (B, N, 4) fp32 half extents in m and the object's number.
        material: (B, N, C) fp32, columns of `materials.COLUMNS`.
        ambience: (B, V, A) fp32, columns of `shading.AMBIENCE`.
        shadow: (B, M, S, S) fp32 m, depth maps of the key light: one for all views (M = 1) or one for each.
        photos: texels of the photo bank.
    """

    kinds: Tensor
    surface: Tensor
    material: Tensor
    ambience: Tensor
    shadow: Tensor
    photos: Photos
