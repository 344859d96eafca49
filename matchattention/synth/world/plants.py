"""Clouds of leaves, trees and potted plants (conventions of `furniture`)."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth.dice import Dice
from matchattention.synth.world import palette as p
from matchattention.synth.world.builder import Builder, Frame, random_rotation, vector
from matchattention.synth.world.cutouts import LEAVES, STAR
from matchattention.synth.world.palette import any_material


def crown(
    builder: Builder,
    dice: Dice,
    frame: Frame,
    centre: Tensor,
    radius: Tensor,
    cell: Tensor,
    cards: int,
    active: Tensor,
    material: int = p.FOLIAGE,
    mask: int = LEAVES,
) -> None:
    """A cloud of leaves: cut-out cards of all orientations around a centre.

    Args:
        centre: (B, n, 3) in the frame (also `radius`, (B, n)).
        cell: (B, n) size of one leaf's cell, in the frame's units.
        cards: how many.
    """
    n = frame.origin.shape[1]
    for _ in range(cards):
        turn = random_rotation(dice, n)
        offset = turn[..., 1, :] * (radius * dice.uniform(0.1, 0.75, n))[..., None]
        size = radius * dice.uniform(0.45, 0.8, n)
        cells = (size / cell).clamp(1.0, 14.0)
        builder.add(
            "card",
            frame,
            centre + offset,
            torch.stack((size, size, torch.ones_like(size)), -1),
            random_rotation(dice, n),
            (float(mask), cells, cells, dice.unit(n)),
            material,
            active,
        )


def tree(builder: Builder, dice: Dice, frame: Frame, active: Tensor, leaf: Tensor, cards: int = 7) -> None:
    """Trunk, two limbs, and a crown; `leaf` (B, n) is the size of a leaf in m."""
    n = frame.origin.shape[1]
    high, thick = dice.uniform(1.2, 3.0, n), dice.log_uniform(0.05, 0.22, n)
    top = vector(dice.uniform(-0.3, 0.3, n), -high, dice.uniform(-0.3, 0.3, n))
    builder.bar(frame, builder.point(0.0, 0.1, 0.0), top, thick, p.BARK, active, dice.uniform(0.2, 0.6, n))
    radius = high * dice.uniform(0.4, 0.75, n)
    for _ in range(2):
        tip = top + vector(
            radius * dice.uniform(-0.8, 0.8, n),
            -radius * dice.uniform(0.2, 0.9, n),
            radius * dice.uniform(-0.8, 0.8, n),
        )
        builder.bar(frame, 0.7 * top, tip, thick * 0.35, p.BARK, active, 0.6)
    crown(builder, dice, frame, top + vector(0.0, -0.5 * radius, 0.0), radius, leaf, cards, active)


def _pot(builder: Builder, frame: Frame, size: Tensor, taper: Tensor | float, material: Tensor, active: Tensor) -> None:
    """A pot, upside down a cone, `size` (B, n) its half extent."""
    place, half = vector(0.0, -size, 0.0), vector(size, size, size)
    builder.add("frustum", frame, place, half, builder.overturned, (taper,), material, active)


def plant(builder: Builder, dice: Dice, frame: Frame, active: Tensor, leaf: Tensor) -> None:
    """A pot with stems and leaves."""
    n = frame.origin.shape[1]
    size = dice.uniform(0.07, 0.15, n)
    _pot(builder, frame, size, dice.uniform(0.0, 0.4, n), any_material(dice, n), active)
    top = vector(0.0, -2.0 * size, 0.0)
    for _ in range(3):
        tip = top + vector(
            size * dice.uniform(-1.5, 1.5, n), -size * dice.uniform(1.5, 4.0, n), size * dice.uniform(-1.5, 1.5, n)
        )
        builder.bar(frame, top, tip, 0.004, p.FOLIAGE, active)
    crown(builder, dice, frame, top + vector(0.0, -2.2 * size, 0.0), 2.2 * size, leaf, 5, active)


def bare_bush(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """A pot with branches that one looks through: bends, twigs, and a rosette of leaves at the end of each."""
    n = frame.origin.shape[1]
    pot, high = dice.uniform(0.06, 0.12, n), dice.uniform(0.2, 0.5, n)
    thick = high * dice.uniform(0.03, 0.07, n)
    _pot(builder, frame, pot, 0.2, any_material(dice, n), active)
    fork = vector(0.0, -2.0 * pot - 0.15 * high, 0.0)
    builder.bar(frame, builder.point(0.0, 0.0, 0.0), fork, thick, p.BARK, active, 0.2)

    def onward(start: Tensor, spread: float) -> Tensor:
        reach = dice.normal(0.0, spread, n, 2) * high[..., None]
        return start + vector(reach[..., 0], -high * dice.uniform(0.2, 0.5, n), reach[..., 1])

    for _ in range(4):
        bend = onward(fork, 0.35)
        builder.bar(frame, fork, bend, 0.7 * thick, p.BARK, active, 0.3)
        for _ in range(2):
            tip = onward(bend, 0.2)
            builder.bar(frame, bend, tip, 0.4 * thick, p.BARK, active, 0.3)
            leaves = high * dice.uniform(0.08, 0.2, n)
            size = torch.stack((leaves, leaves, torch.ones_like(leaves)), -1)
            for mask in (float(STAR), float(LEAVES)):
                pattern = (mask, 1.5, 1.5, dice.unit(n))
                builder.add("card", frame, tip, size, random_rotation(dice, n), pattern, p.FOLIAGE, active)
