"""Collecting primitives: rigid frames, parts placed in them, and the packed table of a batch of scenes.

World axes: x right, y down, z forward; the ground is y = 0. Rotations are stored by rows: row k is the object's
k-th unit axis in world coordinates.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from matchattention.synth.dice import Dice
from matchattention.synth.rays.dispatch import KINDS
from matchattention.synth.rays.primitives import PRIMITIVES
from matchattention.synth.rays.tables import Slots

CARD_THICKNESS = 1e-3  # m; cards are flat, but their bounds and matrices need a third extent


class Frame(NamedTuple):
    """Where groups stand: origin (B, n, 3) m, rotation (B, n, 3, 3) by rows, scale (B, n), number (n,).

    Groups with number 0 belong to the world that stands still; parts of any other number move together.
    """

    origin: Tensor
    rotation: Tensor
    scale: Tensor
    group: Tensor


class Primitives(NamedTuple):
    """The packed primitives of a batch of scenes in world space; slots by kind.

    Attributes:
        axes: (B, N, 3, 3) rows are unit axes.
        centre: (B, N, 3) m.
        half: (B, N, 3) m.
        shape: (B, N, 4) shape parameters.
        material: (B, N) int64 index into the scene's palette.
        number: (B, N) fp32, of the part: seeds its texture.
        group: (B, N) int64, of the rigid group, 0 for what stands still.
        pivot: (B, N, 3) m, the group's origin.
        counts: (B, kinds) int32.
        slots: first slot of each kind, then N.
    """

    axes: Tensor
    centre: Tensor
    half: Tensor
    shape: Tensor
    material: Tensor
    number: Tensor
    group: Tensor
    pivot: Tensor
    counts: Tensor
    slots: Slots


@cache
def _number(value: float, device: torch.device) -> Tensor:
    return torch.tensor(float(value), device=device)


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


@cache
def _from_quaternion(device: torch.device) -> Tensor:
    """(16, 9): products of a unit quaternion's (w, x, y, z) to its rotation by rows."""
    w, x, y, z = range(4)
    entries = [
        [(y, y, -2.0), (z, z, -2.0)], [(x, y, 2.0), (z, w, 2.0)], [(x, z, 2.0), (y, w, -2.0)],
        [(x, y, 2.0), (z, w, -2.0)], [(x, x, -2.0), (z, z, -2.0)], [(y, z, 2.0), (x, w, 2.0)],
        [(x, z, 2.0), (y, w, 2.0)], [(y, z, 2.0), (x, w, -2.0)], [(x, x, -2.0), (y, y, -2.0)],
    ]  # fmt: skip
    table = torch.zeros(4, 4, 9)
    for entry, products in enumerate(entries):
        for first, second, factor in products:
            table[first, second, entry] = factor
    return table.reshape(16, 9).to(device)


def random_rotation(dice: Dice, *shape: int) -> Tensor:
    """(B, *shape, 3, 3) uniform over all orientations."""
    q = torch.stack([dice.normal(0.0, 1.0, *shape) for _ in range(4)], dim=-1)
    products = (q[..., :, None] * q[..., None, :] / q.square().sum(-1)[..., None, None]).flatten(-2)
    turned = (products @ _from_quaternion(q.device)).unflatten(-1, (3, 3))
    turned.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return turned


def towards(direction: Tensor) -> Tensor:
    """(..., 3, 3) rotation whose third axis is the given (..., 3) direction; any rotation for none."""
    length = direction.norm(dim=-1, keepdim=True)
    z = torch.where(length > 1e-6, direction / length.clamp(min=1e-6), _number(3.0**-0.5, direction.device))
    helper = torch.zeros_like(z)
    steep = z[..., 1].abs() > 0.9
    helper[..., 0] = steep
    helper[..., 1] = ~steep
    x = torch.linalg.cross(helper, z)
    x = x / x.norm(dim=-1, keepdim=True)
    return torch.stack((x, torch.linalg.cross(z, x), z), dim=-2)


def vector(*components: float | Tensor) -> Tensor:
    """Stack scalars and tensors of one shape into (..., 3)."""
    like = next(c for c in components if isinstance(c, Tensor))
    tensors = [c if isinstance(c, Tensor) else _number(float(c), like.device) for c in components]
    if all(t.shape == like.shape or t.dim() == 0 for t in tensors):
        return torch.stack([t if t.shape == like.shape else t.expand(like.shape) for t in tensors], -1)
    return torch.stack(torch.broadcast_tensors(*tensors), -1)


class _Part(NamedTuple):
    """One part in each of n groups, not yet placed in the world."""

    frame: Frame
    centre: Tensor
    half: Tensor
    axes: Tensor
    shape: tuple[Tensor, ...]
    material: Tensor
    number: Tensor
    active: Tensor


class Builder:
    """Gathers parts of a batch of scenes and packs them by kind.

    Parts are only noted when they are added and placed all at once in `pack`: with hundreds of parts the number
    of tensor operations is what drawing a scene costs.

    Args:
        batch: scenes.
        device: of all tensors.
    """

    def __init__(self, batch: int, device: torch.device) -> None:
        self.batch, self.device = batch, device
        self.upright = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]], device=device)
        self.overturned = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]], device=device)
        self.side_down = torch.tensor([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], device=device)
        self.identity = torch.eye(3, device=device)
        self.on_wall = torch.tensor([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]], device=device)
        self._parts: dict[str, list[_Part]] = {kind: [] for kind in KINDS}
        self._bars: list[tuple[_Part, Tensor, Tensor]] = []
        self._constants: dict[float, Tensor] = {}
        self._wide_constants: dict[tuple[float, int], Tensor] = {}
        self._numbers = torch.arange(4096, dtype=torch.float32, device=device)
        self._still = torch.zeros((), device=device)
        self._parts_noted = 0
        self._yes = torch.ones((), dtype=torch.bool, device=device)
        self.groups = 1

    def constant(self, value: float) -> Tensor:
        """A number as a tensor, made once."""
        if value not in self._constants:
            self._constants[value] = torch.tensor(float(value), device=self.device)
        return self._constants[value]

    def _wide_constant(self, value: float, n: int) -> Tensor:
        """(B, n) of one number, made once."""
        if (value, n) not in self._wide_constants:
            self._wide_constants[value, n] = self.constant(value).expand(self.batch, n)
        return self._wide_constants[value, n]

    def point(self, x: float, y: float, z: float) -> Tensor:
        """A constant vector."""
        return torch.stack((self.constant(x), self.constant(y), self.constant(z)))

    def frame(
        self, origin: Tensor, rotation: Tensor | None = None, scale: Tensor | float = 1.0, moves: bool = False
    ) -> Frame:
        """A rigid frame for groups: (B, n, 3) origins; `moves` makes each a body of its own in a second frame."""
        n = origin.shape[1]
        if rotation is None:
            rotation = self.identity
        if not isinstance(scale, Tensor):
            scale = self.constant(scale)
        group = self._numbers[self.groups : self.groups + n] if moves else self._still.expand(n)
        self.groups += n if moves else 0
        return Frame(origin, rotation.expand(self.batch, n, 3, 3), scale.expand(self.batch, n), group)

    def _note(
        self,
        frame: Frame,
        centre: Tensor,
        half: Tensor,
        axes: Tensor | None,
        shape: tuple[float | Tensor, ...],
        material: Tensor | int,
        active: Tensor | None,
    ) -> _Part:
        n = frame.origin.shape[1]
        lead = (self.batch, n)
        columns = [
            s.expand(lead) if isinstance(s, Tensor) else self._wide_constant(s, n)
            for s in (*shape, *(0.0,) * (4 - len(shape)))
        ]
        index = material.expand(lead) if isinstance(material, Tensor) else self._wide_constant(material, n)
        number = self._numbers[self._parts_noted : self._parts_noted + n].expand(lead)
        self._parts_noted += n
        return _Part(
            frame,
            centre.expand(*lead, 3),
            half.expand(*lead, 3),
            (self.identity if axes is None else axes).expand(*lead, 3, 3),
            tuple(columns),
            index,
            number,
            (self._yes if active is None else active).expand(lead),
        )

    def add(
        self,
        kind: str,
        frame: Frame,
        centre: Tensor,
        half: Tensor,
        axes: Tensor | None = None,
        shape: tuple[float | Tensor, ...] = (),
        material: Tensor | int = 0,
        active: Tensor | None = None,
    ) -> None:
        """Place one part in each of the frame's groups.

        Args:
            kind: one of `dispatch.KINDS`.
            frame: n groups.
            centre: (B, n, 3) or (3,), in the group's own coordinates.
            half: (B, n, 3) or (3,), half extents before the group's scale.
            axes: rotation of the part inside the group, (B, n, 3, 3) or (3, 3).
            shape: up to four shape parameters, numbers or (B, n).
            material: palette index.
            active: (B, n) bool; parts of inactive groups do not exist.
        """
        self._parts[kind].append(self._note(frame, centre, half, axes, shape, material, active))

    def bar(
        self,
        frame: Frame,
        start: Tensor,
        end: Tensor,
        radius: Tensor | float,
        material: Tensor | int,
        active: Tensor | None = None,
        taper: Tensor | float = 0.0,
    ) -> None:
        """A round rod between two points, (B, n, 3) or (3,), of each of the frame's groups."""
        thick = (radius if isinstance(radius, Tensor) else self.constant(radius))[..., None].expand(
            *frame.scale.shape, 3
        )
        part = self._note(frame, start, thick, None, (taper,), material, active)
        self._bars.append((part, part.centre, end.expand_as(part.centre)))

    def _straighten_bars(self) -> None:
        """Turn rods into frusta, all at once."""
        if not self._bars:
            return
        start = torch.cat([bar[1] for bar in self._bars], 1)
        end = torch.cat([bar[2] for bar in self._bars], 1)
        along = end - start
        thick = torch.cat([bar[0].half[..., :2] for bar in self._bars], 1)
        half = torch.cat((thick, 0.5 * along.norm(dim=-1, keepdim=True)), -1)
        centre, axes = 0.5 * (start + end), towards(along)
        first = 0
        for part, *_ in self._bars:
            window = slice(first, first + part.number.shape[1])
            first = window.stop
            self._parts["frustum"].append(
                part._replace(centre=centre[:, window], half=half[:, window], axes=axes[:, window])
            )
        self._bars = []

    def pack(self, capacity: dict[str, int]) -> Primitives:
        """Place all parts; move the existing ones of each kind to the front of its slots; drop what exceeds them."""
        self._straighten_bars()
        packed: list[list[Tensor]] = []
        counts, slots = [], [0]
        for kind in KINDS:
            room = capacity[kind]
            slots.append(slots[-1] + room)
            parts = self._parts[kind]
            if not parts:
                packed.append(
                    [
                        torch.zeros((self.batch, room, *s), device=self.device)
                        for s in ((3, 3), (3,), (3,), (4,), (), (), (), (3,))
                    ]
                )
                counts.append(torch.zeros(self.batch, dtype=torch.int64, device=self.device))
                continue
            rotation = torch.cat([part.frame.rotation for part in parts], 1)
            scale = torch.cat([part.frame.scale for part in parts], 1)[..., None]
            local = torch.cat([part.centre for part in parts], 1)
            pivot = torch.cat([part.frame.origin for part in parts], 1)
            centre = pivot + scale * (local[..., None, :] @ rotation)[..., 0, :]
            axes = torch.cat([part.axes for part in parts], 1) @ rotation
            half = torch.cat([part.half for part in parts], 1) * scale
            if kind not in PRIMITIVES or PRIMITIVES[kind].flat:  # a pane is a sheet of glass
                half[..., 2] = CARD_THICKNESS
            shape = torch.stack([torch.cat([part.shape[k] for part in parts], 1) for k in range(4)], -1)
            material = torch.cat([part.material.float() for part in parts], 1)
            number = torch.cat([part.number for part in parts], 1)
            group = torch.cat([part.frame.group for part in parts]).expand_as(number)
            active = torch.cat([part.active for part in parts], 1)
            order = torch.argsort((~active).to(torch.uint8), dim=1, stable=True)[:, :room]
            taken = [
                torch.gather(
                    c, 1, order.reshape(*order.shape, *(1,) * (c.dim() - 2)).expand(*order.shape, *c.shape[2:])
                )
                for c in (axes, centre, half, shape, material, number, group, pivot)
            ]
            missing = room - order.shape[1]
            if missing > 0:
                taken = [torch.cat((c, c.new_zeros((c.shape[0], missing, *c.shape[2:]))), 1) for c in taken]
            packed.append(taken)
            counts.append(active.sum(1).clamp(max=room))
        axes, centre, half, shape, material, number, group, pivot = (
            torch.cat(column, dim=1) for column in zip(*packed)
        )
        return Primitives(
            axes,
            centre,
            half,
            shape,
            material.long(),
            number,
            group.long(),
            pivot,
            torch.stack(counts, 1).to(torch.int32),
            tuple(slots),
        )
