"""Furniture made of primitives.

Each function adds one kind of thing to every group of a frame. Groups stand on y = 0 of their frame, y points
down, sizes are metres before the frame's scale.
"""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth.dice import Dice
from matchattention.synth.world import palette as p
from matchattention.synth.world.builder import Builder, Frame, vector
from matchattention.synth.world.cutouts import SLATS
from matchattention.synth.world.palette import any_material


def table(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """A top on four legs."""
    n = frame.origin.shape[1]
    wide, deep, high = dice.uniform(0.4, 0.9, n), dice.uniform(0.3, 0.6, n), dice.uniform(0.4, 0.85, n)
    wood = any_material(dice, n)
    builder.add("box", frame, vector(0.0, -high, 0.0 * high), vector(wide, 0.02, deep), material=wood, active=active)
    for sx in (-0.92, 0.92):
        for sz in (-0.92, 0.92):
            foot = vector(sx * wide, 0.0, sz * deep)
            builder.bar(frame, foot, foot + vector(0.0, -high, 0.0), 0.022, wood, active)


def chair(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """Seat, legs and a back of slats or a solid board."""
    n = frame.origin.shape[1]
    wood = any_material(dice, n)
    high = dice.uniform(0.4, 0.5, n)
    builder.add(
        "box", frame, vector(0.0, -high, 0.0), vector(0.21 + 0 * high, 0.025, 0.21), material=wood, active=active
    )
    radius = dice.uniform(0.008, 0.022, n)
    for sx in (-0.19, 0.19):
        builder.bar(frame, builder.point(sx, 0.0, -0.19), vector(0.0 * high + sx, -high, -0.19), radius, wood, active)
        builder.bar(
            frame, builder.point(sx, 0.0, 0.19), vector(0.0 * high + sx, -high - 0.5, 0.22), radius, wood, active
        )
    mask = torch.where(dice.chance(0.6, n), float(SLATS), 0.0)
    builder.add(
        "card",
        frame,
        vector(0.0, -high - 0.3, 0.21),
        builder.point(0.19, 0.18, 1.0),
        None,
        (mask, dice.uniform(2.0, 5.0, n), 1.0, dice.unit(n)),
        wood,
        active,
    )


def shelf(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """Sides, boards and rows of books."""
    n = frame.origin.shape[1]
    wood = any_material(dice, n)
    wide, high = dice.uniform(0.3, 0.6, n), dice.uniform(0.8, 2.0, n)
    for side in (-1.0, 1.0):
        builder.add(
            "box",
            frame,
            vector(side * wide, -0.5 * high, 0.0),
            vector(0.015 + 0 * wide, 0.5 * high, 0.15),
            material=wood,
            active=active,
        )
    builder.add(
        "box", frame, vector(0.0, -0.5 * high, 0.15), vector(wide, 0.5 * high, 0.005), material=wood, active=active
    )
    for level in range(4):
        y = -high * (0.04 + level / 3.2)
        builder.add("box", frame, vector(0.0, y, 0.0), vector(wide, 0.012, 0.15), material=wood, active=active)
        for book in range(4):
            tall = dice.uniform(0.07, 0.13, n)
            centre = vector(wide * (-0.75 + 0.5 * book), y - 0.012 - tall, 0.02)
            builder.add(
                "box",
                frame,
                centre,
                vector(wide * dice.uniform(0.05, 0.24, n), tall, 0.1),
                material=any_material(dice, n),
                active=active & dice.chance(0.8, n),
            )


def cabinet(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """A closed box with a door panel and a knob, sometimes with things on it."""
    n = frame.origin.shape[1]
    wide, high, deep = dice.uniform(0.2, 0.7, n), dice.uniform(0.15, 1.0, n), dice.uniform(0.15, 0.35, n)
    wood = any_material(dice, n)
    builder.add("box", frame, vector(0.0, -high, 0.0), vector(wide, high, deep), material=wood, active=active)
    builder.add(
        "box",
        frame,
        vector(0.0, -high, -deep),
        vector(0.85 * wide, 0.8 * high, 0.012),
        material=any_material(dice, n),
        active=active,
    )
    builder.add(
        "ellipsoid",
        frame,
        vector(0.6 * wide, -high, -deep - 0.03),
        vector(0.02 + 0 * wide, 0.02, 0.02),
        material=p.METAL,
        active=active,
    )
    ball = dice.uniform(0.05, 0.15, n)
    builder.add(
        "ellipsoid",
        frame,
        vector(wide * dice.uniform(-0.6, 0.6, n), -2.0 * high - ball, 0.0),
        vector(ball, ball, ball),
        material=any_material(dice, n),
        active=active & dice.chance(0.5, n),
    )


def lamp(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """A thin pole with a conical shade."""
    n = frame.origin.shape[1]
    high = dice.uniform(0.4, 1.7, n)
    builder.bar(
        frame, builder.point(0.0, 0.0, 0.0), vector(0.0, -high, 0.0), dice.uniform(0.006, 0.015, n), p.METAL, active
    )
    size = dice.uniform(0.1, 0.2, n)
    builder.add(
        "frustum",
        frame,
        vector(0.0, -high, 0.0),
        vector(size, size, 0.7 * size),
        builder.upright,
        (dice.uniform(0.2, 0.7, n),),
        any_material(dice, n),
        active,
    )
    builder.add(
        "frustum",
        frame,
        builder.point(0.0, -0.01, 0.0),
        vector(size * 0.8, size * 0.8, 0.012),
        builder.upright,
        (0.1,),
        p.METAL,
        active,
    )


def ladder(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """Two rails and six rungs, leaning."""
    n = frame.origin.shape[1]
    high, lean = dice.uniform(0.8, 2.4, n), dice.uniform(0.1, 0.4, n)
    wood = any_material(dice, n)
    for side in (-0.2, 0.2):
        builder.bar(frame, builder.point(side, 0.0, 0.0), vector(side + 0.0 * high, -high, lean), 0.02, wood, active)
    for rung in range(6):
        share = (rung + 0.5) / 6.0
        builder.bar(
            frame,
            vector(-0.2 + 0.0 * high, -share * high, share * lean),
            vector(0.2 + 0.0 * high, -share * high, share * lean),
            0.012,
            wood,
            active,
        )
