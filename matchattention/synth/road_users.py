"""Vehicles, people and posts of a street (conventions of `furniture`)."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth import palette as p
from matchattention.synth.builder import Builder, Frame, vector
from matchattention.synth.cutouts import DISC
from matchattention.synth.dice import Dice
from matchattention.synth.palette import any_material, any_paint


def car(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """Body, cabin of dark glass under a roof, four wheels, lights."""
    n = frame.origin.shape[1]
    paint = torch.where(dice.chance(0.75, n), any_paint(dice, n), any_material(dice, n))
    long, wide, high = dice.uniform(1.7, 2.5, n), dice.uniform(0.75, 1.0, n), dice.uniform(0.28, 0.5, n)
    ground = 0.25
    builder.add("box", frame, vector(0.0, -ground - high, 0.0), vector(wide, high, long), material=paint, active=active)
    cabin = dice.uniform(0.2, 0.45, n)
    y = -ground - 2.0 * high - cabin
    length = long * dice.uniform(0.4, 0.8, n)
    shift = long * dice.uniform(-0.2, 0.1, n)
    builder.add(
        "box", frame, vector(0.0, y, shift), vector(0.86 * wide, cabin, length), material=p.GLASS, active=active
    )
    builder.add(
        "box",
        frame,
        vector(0.0, y - cabin - 0.03, shift),
        vector(0.88 * wide, 0.04, length),
        material=paint,
        active=active,
    )
    for side in (-1.0, 1.0):
        builder.add(
            "box",
            frame,
            vector(side * 0.87 * wide, y, shift),
            vector(0.02 + 0 * wide, cabin, 0.05),
            material=paint,
            active=active,
        )
        builder.add(
            "box",
            frame,
            vector(side * 0.7 * wide, -ground - high, -long),
            vector(0.14 + 0 * wide, 0.07, 0.02),
            material=any_material(dice, n),
            active=active,
        )
        for end in (-0.62, 0.62):
            builder.add(
                "frustum",
                frame,
                vector(side * 0.88 * wide, -0.31, end * long),
                builder.point(0.31, 0.31, 0.12),
                builder.on_wall,
                (0.0,),
                p.GLASS,
                active,
            )


def person(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """Two legs, a body, two arms, a head."""
    n = frame.origin.shape[1]
    cloth, trousers = any_material(dice, n), any_material(dice, n)
    for side in (-0.1, 0.1):
        stride = dice.uniform(-0.25, 0.25, n)
        builder.bar(
            frame,
            vector(0.0 * stride + side, 0.0, stride),
            vector(0.0 * stride + side, -0.85, 0.0),
            0.075,
            trousers,
            active,
        )
        swing = dice.uniform(-0.3, 0.3, n)
        builder.bar(
            frame,
            vector(2.4 * side + 0.0 * swing, -0.8, swing),
            vector(2.0 * side + 0.0 * swing, -1.4, 0.0),
            0.045,
            cloth,
            active,
        )
    builder.add(
        "ellipsoid",
        frame,
        builder.point(0.0, -1.15, 0.0),
        builder.point(0.2, 0.36, 0.14),
        material=cloth,
        active=active,
    )
    builder.add(
        "ellipsoid",
        frame,
        builder.point(0.0, -1.62, 0.0),
        builder.point(0.09, 0.12, 0.1),
        material=any_material(dice, n),
        active=active,
    )


def pole(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """A post with a sign, a lamp, or nothing."""
    n = frame.origin.shape[1]
    high, thick = dice.uniform(2.0, 7.0, n), dice.log_uniform(0.025, 0.12, n)
    builder.bar(
        frame, builder.point(0.0, 0.0, 0.0), vector(0.0, -high, 0.0), thick, p.METAL, active, dice.uniform(0.0, 0.5, n)
    )
    size = dice.uniform(0.25, 0.5, n)
    sign = active & dice.chance(0.5, n)
    builder.add(
        "card",
        frame,
        vector(0.0, -high * dice.uniform(0.7, 1.0, n), -thick - 0.01),
        vector(size, size * dice.uniform(0.5, 1.0, n), 1.0),
        None,
        (torch.where(dice.chance(0.5, n), float(DISC), 0.0), 1.0, 1.0, 0.5),
        any_material(dice, n),
        sign,
    )
    arm = dice.uniform(0.4, 1.5, n)
    lit = active & dice.chance(0.4, n)
    builder.bar(frame, vector(0.0, -high, 0.0), vector(arm, -high, 0.0), 0.7 * thick, p.METAL, lit)
    builder.add(
        "box", frame, vector(arm, -high + 0.05, 0.0), vector(0.2 + 0 * arm, 0.06, 0.1), material=p.METAL, active=lit
    )


def bicycle(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """Two wheels and the bars between them."""
    n = frame.origin.shape[1]
    paint = any_material(dice, n)
    for end in (-0.5, 0.5):
        builder.add(
            "torus",
            frame,
            builder.point(0.0, -0.33, end),
            builder.point(0.33, 0.33, 0.33),
            builder.on_wall,
            (0.06,),
            p.METAL,
            active,
        )
    ends = (
        (-0.5, -0.33, -0.15, -0.85),
        (0.5, -0.33, 0.38, -0.95),
        (-0.15, -0.85, 0.38, -0.8),
        (0.0, -0.3, -0.15, -0.85),
        (0.0, -0.3, 0.38, -0.8),
    )
    for z0, y0, z1, y1 in ends:
        builder.bar(frame, builder.point(0.0, y0, z0), builder.point(0.0, y1, z1), 0.018, paint, active)
    builder.bar(frame, builder.point(-0.25, -0.98, 0.38), builder.point(0.25, -0.98, 0.38), 0.012, p.METAL, active)


def guard_rail(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """A beam on posts, eight metres along z."""
    n = frame.origin.shape[1]
    high = dice.uniform(0.5, 0.8, n)
    builder.add(
        "box", frame, vector(0.0, -high, 0.0), vector(0.03 + 0 * high, 0.14, 4.0), material=p.METAL, active=active
    )
    for z in (-3.0, -1.0, 1.0, 3.0):
        builder.bar(frame, builder.point(0.05, 0.0, z), vector(0.05 + 0 * high, -high, z), 0.05, p.METAL, active)
