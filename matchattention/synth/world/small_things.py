"""Clutter of tables and workshops (conventions of `furniture`)."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth.dice import Dice
from matchattention.synth.world import palette as p
from matchattention.synth.world.builder import Builder, Frame, pitch_rotation, random_rotation, vector, yaw_rotation
from matchattention.synth.world.cutouts import CHAIN, LATTICE
from matchattention.synth.world.palette import any_material


def cup_of_sticks(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """A cup with brushes or pencils standing in it."""
    n = frame.origin.shape[1]
    wide, high = dice.uniform(0.03, 0.06, n), dice.uniform(0.05, 0.1, n)
    builder.add(
        "frustum",
        frame,
        vector(0.0, -high, 0.0),
        vector(wide, wide, high),
        builder.upright,
        (dice.uniform(0.0, 0.25, n),),
        any_material(dice, n),
        active,
    )
    for _ in range(5):
        x, z = dice.uniform(-0.6, 0.6, n), dice.uniform(-0.6, 0.6, n)
        low = vector(-0.4 * x * wide, -high, -0.4 * z * wide)
        top = vector(x * wide * 2.0, -high * dice.uniform(2.6, 4.5, n), z * wide * 2.0)
        builder.bar(
            frame,
            low,
            top,
            dice.log_uniform(0.0012, 0.006, n),
            any_material(dice, n),
            active,
            dice.uniform(0.0, 0.6, n),
        )


def figurine(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """Body, belly, head, limbs, a cone: something between a toy and a statue."""
    n = frame.origin.shape[1]
    one, two = any_material(dice, n), any_material(dice, n)
    body, belly = dice.uniform(0.03, 0.06, n), dice.uniform(0.04, 0.08, n)
    builder.add(
        "ellipsoid", frame, vector(0.0, -belly, 0.0), vector(belly, belly, belly * 0.9), material=one, active=active
    )
    builder.add(
        "ellipsoid",
        frame,
        vector(0.0, -2.0 * belly - 0.6 * body, 0.0),
        vector(body, body * 1.2, body),
        material=two,
        active=active,
    )
    head = dice.uniform(0.025, 0.045, n)
    y = -2.0 * belly - 1.7 * body - 0.8 * head
    builder.add("ellipsoid", frame, vector(0.0, y, 0.0), vector(head, head, head), material=one, active=active)
    builder.add(
        "frustum",
        frame,
        vector(0.0, y - 1.3 * head, 0.0),
        vector(0.8 * head, 0.8 * head, 0.7 * head),
        builder.upright,
        (1.0,),
        two,
        active & dice.chance(0.6, n),
    )
    for side in (-1.0, 1.0):
        builder.bar(
            frame,
            vector(side * body, -2.0 * belly - body, 0.0),
            vector(
                side * dice.uniform(0.05, 0.13, n),
                -2.0 * belly - body * dice.uniform(-1.0, 2.5, n),
                dice.uniform(-0.08, 0.0, n),
            ),
            0.009,
            two,
            active,
            0.3,
        )


def books(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """A pile of books, slightly turned against each other."""
    n = frame.origin.shape[1]
    y = torch.zeros((builder.batch, n), device=builder.device)
    for _ in range(4):
        thick = dice.uniform(0.006, 0.025, n)
        size = dice.uniform(0.07, 0.14, n)
        builder.add(
            "box",
            frame,
            vector(dice.uniform(-0.02, 0.02, n), y - thick, dice.uniform(-0.02, 0.02, n)),
            vector(size, thick, size * 0.72),
            yaw_rotation(dice.normal(0.0, 0.25, n)),
            material=any_material(dice, n),
            active=active,
        )
        y = y - 2.0 * thick


def basket(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """Four walls of lattice and a rim."""
    n = frame.origin.shape[1]
    wide, high = dice.uniform(0.08, 0.18, n), dice.uniform(0.05, 0.12, n)
    weave = any_material(dice, n)
    mask = torch.where(dice.chance(0.5, n), float(LATTICE), float(CHAIN))
    cells, density = dice.uniform(3.0, 9.0, n), dice.unit(n)
    half = vector(wide, high, 1.0)
    for side in (-1.0, 1.0):
        builder.add(
            "card",
            frame,
            vector(0.0, -high, side * wide),
            half,
            None,
            (mask, cells, cells * high / wide, density),
            weave,
            active,
        )
        builder.add(
            "card",
            frame,
            vector(side * wide, -high, 0.0),
            half,
            builder.on_wall,
            (mask, cells, cells * high / wide, density),
            weave,
            active,
        )
        for a, b in (((-1.0, side), (1.0, side)), ((side, -1.0), (side, 1.0))):
            builder.bar(
                frame,
                vector(a[0] * wide, -2.0 * high, a[1] * wide),
                vector(b[0] * wide, -2.0 * high, b[1] * wide),
                0.006,
                weave,
                active,
            )


def board(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """A flat board leaning back: a picture, a print, a box front."""
    n = frame.origin.shape[1]
    wide, high, lean = dice.uniform(0.06, 0.25, n), dice.uniform(0.06, 0.25, n), dice.uniform(-0.6, 0.3, n)
    builder.add(
        "box",
        frame,
        vector(0.0, -high * torch.cos(lean), 0.0),
        vector(wide, high, 0.004),
        pitch_rotation(lean),
        material=any_material(dice, n),
        active=active,
    )


def pipes(builder: Builder, dice: Dice, frame: Frame, active: Tensor, steps: int = 7) -> None:
    """A pipe that turns at right angles, with a ball at every joint."""
    n = frame.origin.shape[1]
    material, radius = any_material(dice, n), dice.log_uniform(0.01, 0.05, n)
    here = vector(dice.uniform(-0.3, 0.3, n), -dice.uniform(0.1, 0.6, n), dice.uniform(-0.3, 0.3, n))
    for _ in range(steps):
        axis = torch.nn.functional.one_hot(dice.integer(0, 3, n), 3).float()
        there = here + axis * (dice.log_uniform(0.1, 0.5, n) * torch.where(dice.chance(0.5, n), 1.0, -1.0))[..., None]
        there = torch.cat(
            (there[..., :1].clamp(-0.7, 0.7), there[..., 1:2].clamp(-1.2, -0.02), there[..., 2:].clamp(-0.7, 0.7)), -1
        )
        builder.bar(frame, here, there, radius, material, active)
        builder.add(
            "ellipsoid", frame, there, (1.2 * radius)[..., None].expand(-1, -1, 3), material=material, active=active
        )
        here = there


def machine(builder: Builder, dice: Dice, frame: Frame, active: Tensor, rods: int = 10) -> None:
    """A tangle of rods, rings and small boxes about a metre wide: an engine, a drying rack, a pile of junk."""
    n = frame.origin.shape[1]
    materials = torch.stack([any_material(dice, n) for _ in range(3)], -1)

    def anywhere() -> Tensor:
        return vector(dice.uniform(-0.5, 0.5, n), -dice.uniform(0.02, 0.8, n), dice.uniform(-0.3, 0.3, n))

    end = anywhere()
    for k in range(rods):
        start = end if k % 2 else anywhere()
        end = anywhere()
        builder.bar(frame, start, end, dice.log_uniform(0.004, 0.03, n), materials[..., k % 3], active)
    for k in range(3):
        half = torch.stack([dice.log_uniform(0.03, 0.16, n) for _ in range(3)], -1)
        builder.add("box", frame, anywhere(), half, random_rotation(dice, n), material=materials[..., k], active=active)
    size = dice.uniform(0.1, 0.35, n)
    builder.add(
        "torus",
        frame,
        vector(dice.uniform(-0.4, 0.4, n), -size, 0.0),
        torch.stack((size, size, size), -1),
        yaw_rotation(dice.normal(0.0, 0.6, n)),
        (dice.uniform(0.05, 0.2, n),),
        p.METAL,
        active,
    )
