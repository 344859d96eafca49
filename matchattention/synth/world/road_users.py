"""Vehicles, people and posts of a street (conventions of `furniture`)."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth.dice import Dice
from matchattention.synth.world import palette as p
from matchattention.synth.world.builder import Builder, Frame, vector
from matchattention.synth.world.cutouts import DISC, WHEEL
from matchattention.synth.world.palette import any_material, any_paint


def car(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """Body, cabin of glass (slanted, or upright as in vans) with seats under a roof, four wheels, lights, bumpers."""
    n = frame.origin.shape[1]
    paint = torch.where(dice.chance(0.75, n), any_paint(dice, n), any_material(dice, n))
    slanted = dice.chance(0.7, n)
    long, wide, high = dice.uniform(1.7, 2.5, n), dice.uniform(0.75, 1.0, n), dice.uniform(0.26, 0.45, n)
    ground = 0.25
    builder.add("box", frame, vector(0.0, -ground - high, 0.0), vector(wide, high, long), material=paint, active=active)
    cabin = torch.where(slanted, dice.uniform(0.2, 0.35, n), dice.uniform(0.3, 0.7, n))
    y = -ground - 2.0 * high - cabin
    length = long * torch.where(slanted, dice.uniform(0.5, 0.75, n), dice.uniform(0.6, 0.95, n))
    shift = (long - length) * dice.uniform(-0.3, 0.9, n)
    taper = torch.where(slanted, dice.uniform(0.15, 0.4, n), 0.02)
    # A four-sided prism holds the square inside its unit circle: its sides are at cos 45°.
    half = vector(1.414 * 0.9 * wide, 1.414 * length, cabin)
    builder.add("prism", frame, vector(0.0, y, shift), half, builder.upright, (4.0, taper), p.GLASS, active)
    seats = any_material(dice, n)
    for row in (-0.25, 0.35):  # seen through the windows where these are clear
        place, size = vector(0.0, y + 0.2 * cabin, shift + row * length), vector(0.55 * wide, 0.75 * cabin, 0.08)
        builder.add("box", frame, place, size, material=seats, active=active)
    top = vector(0.92 * wide * (1.0 - taper), 0.03, 1.02 * length * (1.0 - taper))
    builder.add("box", frame, vector(0.0, y - cabin - 0.02, shift), top, material=paint, active=active)
    for end in (-1.0, 1.0):
        lean = vector(wide * (1.0 - 0.04), 0.0, 0.0)
        low = vector(0.0, y + cabin, shift + end * length * 0.98)
        ridge = vector(0.0, y - cabin, shift + end * length * (1.0 - taper) * 0.98)
        for side in (-0.92, 0.92):
            builder.bar(frame, low + side * lean, ridge + side * lean * (1.0 - taper)[..., None], 0.035, paint, active)
        bumper = vector(0.98 * wide, 0.1, 0.06)
        builder.add(
            "box", frame, vector(0.0, -ground - 0.15, end * (long + 0.03)), bumper, material=p.METAL, active=active
        )
        lamps = any_material(dice, n)
        for side in (-0.72, 0.72):
            lamp = builder.point(0.14, 0.07, 0.02)
            place = vector(side * wide, -ground - 1.3 * high, end * long)
            builder.add("box", frame, place, lamp, material=lamps, active=active)
            wheel = vector(side / 0.72 * 0.9 * wide, -0.31, 0.62 * end * long)
            size = builder.point(0.31, 0.31, 0.12)
            builder.add("frustum", frame, wheel, size, builder.on_wall, (0.0,), p.RUBBER, active)


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
    """Two wheels with spokes and the bars between them."""
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
        spokes = (float(WHEEL), 1.0, 1.0, dice.uniform(0.02, 0.3, n))
        hub, size = builder.point(0.0, -0.33, end), builder.point(0.31, 0.31, 1.0)
        builder.add("card", frame, hub, size, builder.on_wall, spokes, p.METAL, active)
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
