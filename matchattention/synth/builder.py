"""Collecting primitives: rigid frames, parts placed in them, and the packed table of a batch of scenes.

World axes: x right, y down, z forward; the ground is y = 0. Rotations are stored by rows: row k is the object's
k-th unit axis in world coordinates.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from matchattention.synth.dice import Dice
from matchattention.synth.tables import KINDS, Slots


class Frame(NamedTuple):
    """Where groups stand: origin (B, n, 3) m, rotation (B, n, 3, 3) by rows, scale (B, n)."""

    origin: Tensor
    rotation: Tensor
    scale: Tensor


class Primitives(NamedTuple):
    """The packed primitives of a batch of scenes in world space; slots by kind.

    Attributes:
        axes: (B, N, 3, 3) rows are unit axes.
        centre: (B, N, 3) m.
        half: (B, N, 3) m.
        shape: (B, N, 4) shape parameters.
        material: (B, N) int64 index into the scene's palette.
        group: (B, N) fp32 number of the rigid group.
        counts: (B, 6) int32.
        slots: first slot of each kind, then N.
    """

    axes: Tensor
    centre: Tensor
    half: Tensor
    shape: Tensor
    material: Tensor
    group: Tensor
    counts: Tensor
    slots: Slots


def yaw_rotation(angle: Tensor) -> Tensor:
    """(..., 3, 3) rotation about the vertical; x turns towards z."""
    c, s, o = torch.cos(angle), torch.sin(angle), torch.zeros_like(angle)
    i = torch.ones_like(angle)
    return torch.stack((c, o, s, o, i, o, -s, o, c), dim=-1).unflatten(-1, (3, 3))


def pitch_rotation(angle: Tensor) -> Tensor:
    """(..., 3, 3) rotation about x; positive tips the z axis down."""
    c, s, o = torch.cos(angle), torch.sin(angle), torch.zeros_like(angle)
    i = torch.ones_like(angle)
    return torch.stack((i, o, o, o, c, -s, o, s, c), dim=-1).unflatten(-1, (3, 3))


def roll_rotation(angle: Tensor) -> Tensor:
    """(..., 3, 3) rotation about z."""
    c, s, o = torch.cos(angle), torch.sin(angle), torch.zeros_like(angle)
    i = torch.ones_like(angle)
    return torch.stack((c, s, o, -s, c, o, o, o, i), dim=-1).unflatten(-1, (3, 3))


def random_rotation(dice: Dice, *shape: int) -> Tensor:
    """(B, *shape, 3, 3) uniform over all orientations."""
    q = torch.stack([dice.normal(0.0, 1.0, *shape) for _ in range(4)], dim=-1)
    w, x, y, z = (q / q.norm(dim=-1, keepdim=True)).unbind(-1)
    return torch.stack((1 - 2 * (y * y + z * z), 2 * (x * y + z * w), 2 * (x * z - y * w),
                        2 * (x * y - z * w), 1 - 2 * (x * x + z * z), 2 * (y * z + x * w),
                        2 * (x * z + y * w), 2 * (y * z - x * w), 1 - 2 * (x * x + y * y)), dim=-1).unflatten(-1, (3, 3))


def towards(direction: Tensor) -> Tensor:
    """(..., 3, 3) rotation whose third axis is the given (..., 3) direction."""
    z = direction / direction.norm(dim=-1, keepdim=True).clamp(min=1e-9)
    helper = torch.where(z[..., 1:2].abs() > 0.9, torch.tensor([1.0, 0.0, 0.0], device=z.device),
                         torch.tensor([0.0, 1.0, 0.0], device=z.device))
    x = torch.linalg.cross(helper.expand_as(z), z)
    x = x / x.norm(dim=-1, keepdim=True)
    return torch.stack((x, torch.linalg.cross(z, x), z), dim=-2)


def vector(*components: float | Tensor) -> Tensor:
    """Stack scalars and tensors of one shape into (..., 3)."""
    like = next(c for c in components if isinstance(c, Tensor))
    shape = torch.broadcast_shapes(*(c.shape for c in components if isinstance(c, Tensor)))
    return torch.stack([c.expand(shape) if isinstance(c, Tensor) else like.new_full(shape, c) for c in components], -1)


class Builder:
    """Gathers parts of a batch of scenes and packs them by kind.

    Args:
        batch: scenes.
        device: of all tensors.
    """

    def __init__(self, batch: int, device: torch.device) -> None:
        self.batch, self.device = batch, device
        self.upright = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]], device=device)
        self.identity = torch.eye(3, device=device)
        self.on_wall = torch.tensor([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]], device=device)
        self._rows: dict[str, list[tuple[Tensor, ...]]] = {kind: [] for kind in KINDS}
        self._groups = 0

    def frame(self, origin: Tensor, rotation: Tensor | None = None, scale: Tensor | float = 1.0) -> Frame:
        """A rigid frame for groups: (B, n, 3) origins."""
        n = origin.shape[1]
        if rotation is None:
            rotation = self.identity
        if not isinstance(scale, Tensor):
            scale = origin.new_full((self.batch, n), scale)
        return Frame(origin, rotation.expand(self.batch, n, 3, 3), scale.expand(self.batch, n))

    def add(self, kind: str, frame: Frame, centre: Tensor, half: Tensor, axes: Tensor | None = None,
            shape: tuple[float | Tensor, ...] = (), material: Tensor | int = 0,
            active: Tensor | None = None) -> None:
        """Place one part in each of the frame's groups.

        Args:
            kind: one of `tables.KINDS`.
            frame: n groups.
            centre: (B, n, 3) or (3,), in the group's own coordinates.
            half: (B, n, 3) or (3,), half extents before the group's scale.
            axes: rotation of the part inside the group, (B, n, 3, 3) or (3, 3).
            shape: up to four shape parameters, numbers or (B, n).
            material: palette index.
            active: (B, n) bool; parts of inactive groups do not exist.
        """
        n = frame.origin.shape[1]
        lead = (self.batch, n)
        axes = (self.identity if axes is None else axes).expand(*lead, 3, 3)
        columns = [torch.as_tensor(s, dtype=torch.float32, device=self.device).expand(lead) for s in shape]
        columns += [frame.scale.new_zeros(lead)] * (4 - len(columns))
        world = frame.origin + frame.scale[..., None] * (centre.expand(*lead, 3)[..., None, :] @ frame.rotation)[..., 0, :]
        if active is None:
            active = torch.ones(lead, dtype=torch.bool, device=self.device)
        index = material if isinstance(material, Tensor) else torch.full(lead, material, device=self.device)
        group = self._groups + torch.arange(n, dtype=torch.float32, device=self.device).expand(lead)
        self._groups += n
        self._rows[kind].append((axes @ frame.rotation, world, half.expand(*lead, 3) * frame.scale[..., None],
                                 torch.stack(columns, -1), index.expand(lead), group, active.expand(lead)))

    def pack(self, capacity: dict[str, int]) -> Primitives:
        """Move the existing parts of each kind to the front of its slots and drop what exceeds the capacity."""
        packed: list[tuple[Tensor, ...]] = []
        counts, slots = [], [0]
        for kind in KINDS:
            room = capacity[kind]
            rows = self._rows[kind]
            if rows:
                joined = [torch.cat(column, dim=1) for column in zip(*rows)]
                active = joined[-1]
                order = torch.argsort((~active).to(torch.uint8), dim=1, stable=True)[:, :room]
                taken = [torch.gather(c, 1, order.reshape(*order.shape, *(1,) * (c.dim() - 2)).expand(
                    *order.shape, *c.shape[2:])) for c in joined[:-1]]
                count = active.sum(1).clamp(max=room)
                missing = room - order.shape[1]
                if missing > 0:
                    taken = [torch.cat((c, c.new_zeros((c.shape[0], missing, *c.shape[2:]))), 1) for c in taken]
            else:
                taken = [torch.zeros((self.batch, room, *s), device=self.device) for s in ((3, 3), (3,), (3,), (4,), ())]
                taken += [torch.zeros((self.batch, room), device=self.device)]
                taken[4] = taken[4].long()
                count = torch.zeros(self.batch, dtype=torch.int64, device=self.device)
            packed.append(tuple(taken))
            counts.append(count)
            slots.append(slots[-1] + room)
        columns = [torch.cat(column, dim=1) for column in zip(*packed)]
        return Primitives(*columns, torch.stack(counts, 1).to(torch.int32), tuple(slots))
