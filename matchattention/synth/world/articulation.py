"""Limbs: slender parts of moving groups swing about the end with which they hold on to the rest."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth.dice import Dice
from matchattention.synth.world.builder import Primitives
from matchattention.synth.world.rotations import axis_rotation

SLENDER = 2.0  # how much longer than wide a limb is
ROUND = 1.25  # how much wider than thick it may be: arms and legs swing, the bodies and bumpers of cars do not
SMALLEST = 0.02  # rad, least swing


def swung(dice: Dice, primitives: Primitives, articulated: Tensor, largest: float) -> tuple[Tensor, Tensor]:
    """Axes (B, N, 3, 3) and centres (B, N, 3) m of all parts after the limbs have swung.

    Args:
        dice: of the scenes.
        primitives: before.
        articulated: (B, groups) bool, whose limbs swing.
        largest: rad, of a swing; log-uniform from `SMALLEST`.
    """
    count = primitives.group.shape[1]
    lengths, order = primitives.half.sort(dim=-1, descending=True)
    along = torch.gather(primitives.axes, 2, order[..., :1, None].expand(-1, -1, 1, 3))[:, :, 0]  # (B, N, 3)
    rod = (lengths[..., 0] > SLENDER * lengths[..., 1]) & (lengths[..., 1] < ROUND * lengths[..., 2])
    limb = rod & torch.gather(articulated, 1, primitives.group)
    body = _body(primitives, articulated.shape[1])
    nearer = torch.where(((body - primitives.centre) * along).sum(-1) > 0, 1.0, -1.0)
    joint = primitives.centre + along * (nearer * lengths[..., 0])[..., None]
    aside = torch.stack([dice.normal(0.0, 1.0, count) for _ in range(3)], -1)
    axis = torch.nn.functional.normalize(torch.linalg.cross(along, aside), dim=-1)
    sign = torch.where(dice.chance(0.5, count), 1.0, -1.0)
    swing = axis_rotation(axis, dice.log_uniform(SMALLEST, largest, count) * sign * limb)
    arm = (swing @ (primitives.centre - joint)[..., None])[..., 0]
    centre = torch.where(limb[..., None], joint + arm, primitives.centre)
    return primitives.axes @ swing.transpose(-1, -2), centre


def _body(primitives: Primitives, groups: int) -> Tensor:
    """(B, N, 3) m: where the bulk of each part's group is, mostly its largest part."""
    bulk = primitives.half.prod(-1, keepdim=True).square() + 1e-12
    index = primitives.group[..., None].expand(-1, -1, 4)
    sums = primitives.centre.new_zeros(primitives.group.shape[0], groups, 4)
    sums.scatter_add_(1, index, torch.cat((primitives.centre * bulk, bulk), -1))
    of_part = torch.gather(sums, 1, index)
    return of_part[..., :3] / of_part[..., 3:]
