"""Things made of primitives: furniture, vehicles, plants, clutter.

Each function adds one kind of thing to every group of a frame. Groups stand on y = 0 of their frame, y points
down, sizes are metres before the frame's scale.
"""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth import palette as p
from matchattention.synth.builder import Builder, Frame, pitch_rotation, random_rotation, vector, yaw_rotation
from matchattention.synth.dice import Dice

LEAVES, LATTICE, CHAIN, SLATS, FRAME, RAGGED, GLYPHS, BRANCHES, GRASS, STAR, DISC = 4, 2, 3, 5, 6, 7, 8, 9, 10, 11, 1


def any_material(dice: Dice, *shape: int) -> Tensor:
    """Index of one of the palette's free materials."""
    return dice.integer(p.GENERIC, p.SIZE, *shape)


def point(builder: Builder, x: float, y: float, z: float) -> Tensor:
    """A constant vector on the builder's device."""
    return torch.stack((builder.constant(x), builder.constant(y), builder.constant(z)))


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
    builder.add("box", frame, vector(0.0, -high, 0.0), vector(0.21 + 0 * high, 0.025, 0.21), material=wood, active=active)
    radius = dice.uniform(0.008, 0.022, n)
    for sx in (-0.19, 0.19):
        builder.bar(frame, point(builder, sx, 0.0, -0.19), vector(0.0 * high + sx, -high, -0.19), radius, wood, active)
        builder.bar(frame, point(builder, sx, 0.0, 0.19), vector(0.0 * high + sx, -high - 0.5, 0.22), radius, wood, active)
    mask = torch.where(dice.chance(0.6, n), float(SLATS), 0.0)
    builder.add("card", frame, vector(0.0, -high - 0.3, 0.21), point(builder, 0.19, 0.18, 1.0), None,
                (mask, dice.uniform(2.0, 5.0, n), 1.0, dice.unit(n)), wood, active)


def shelf(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """Sides, boards and rows of books."""
    n = frame.origin.shape[1]
    wood = any_material(dice, n)
    wide, high = dice.uniform(0.3, 0.6, n), dice.uniform(0.8, 2.0, n)
    for side in (-1.0, 1.0):
        builder.add("box", frame, vector(side * wide, -0.5 * high, 0.0), vector(0.015 + 0 * wide, 0.5 * high, 0.15),
                    material=wood, active=active)
    builder.add("box", frame, vector(0.0, -0.5 * high, 0.15), vector(wide, 0.5 * high, 0.005), material=wood, active=active)
    for level in range(4):
        y = -high * (0.04 + level / 3.2)
        builder.add("box", frame, vector(0.0, y, 0.0), vector(wide, 0.012, 0.15), material=wood, active=active)
        for book in range(4):
            tall = dice.uniform(0.07, 0.13, n)
            centre = vector(wide * (-0.75 + 0.5 * book), y - 0.012 - tall, 0.02)
            builder.add("box", frame, centre, vector(wide * dice.uniform(0.05, 0.24, n), tall, 0.1),
                        material=any_material(dice, n), active=active & dice.chance(0.8, n))


def cabinet(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """A closed box with a door panel and a knob, sometimes with things on it."""
    n = frame.origin.shape[1]
    wide, high, deep = dice.uniform(0.2, 0.7, n), dice.uniform(0.15, 1.0, n), dice.uniform(0.15, 0.35, n)
    wood = any_material(dice, n)
    builder.add("box", frame, vector(0.0, -high, 0.0), vector(wide, high, deep), material=wood, active=active)
    builder.add("box", frame, vector(0.0, -high, -deep), vector(0.85 * wide, 0.8 * high, 0.012),
                material=any_material(dice, n), active=active)
    builder.add("ellipsoid", frame, vector(0.6 * wide, -high, -deep - 0.03), vector(0.02 + 0 * wide, 0.02, 0.02),
                material=p.METAL, active=active)
    ball = dice.uniform(0.05, 0.15, n)
    builder.add("ellipsoid", frame, vector(wide * dice.uniform(-0.6, 0.6, n), -2.0 * high - ball, 0.0),
                vector(ball, ball, ball), material=any_material(dice, n), active=active & dice.chance(0.5, n))


def lamp(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """A thin pole with a conical shade."""
    n = frame.origin.shape[1]
    high = dice.uniform(0.4, 1.7, n)
    builder.bar(frame, point(builder, 0.0, 0.0, 0.0), vector(0.0, -high, 0.0), dice.uniform(0.006, 0.015, n), p.METAL, active)
    size = dice.uniform(0.1, 0.2, n)
    builder.add("frustum", frame, vector(0.0, -high, 0.0), vector(size, size, 0.7 * size), builder.upright,
                (dice.uniform(0.2, 0.7, n),), any_material(dice, n), active)
    builder.add("frustum", frame, point(builder, 0.0, -0.01, 0.0), vector(size * 0.8, size * 0.8, 0.012), builder.upright,
                (0.1,), p.METAL, active)


def crown(builder: Builder, dice: Dice, frame: Frame, centre: Tensor, radius: Tensor, cell: Tensor, cards: int,
          active: Tensor, material: int = p.FOLIAGE, mask: int = LEAVES) -> None:
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
        builder.add("card", frame, centre + offset, torch.stack((size, size, torch.ones_like(size)), -1), random_rotation(dice, n),
                    (float(mask), cells, cells, dice.unit(n)), material, active)


def tree(builder: Builder, dice: Dice, frame: Frame, active: Tensor, leaf: Tensor, cards: int = 7) -> None:
    """Trunk, two limbs, and a crown; `leaf` (B, n) is the size of a leaf in m."""
    n = frame.origin.shape[1]
    high, thick = dice.uniform(1.2, 3.0, n), dice.log_uniform(0.05, 0.22, n)
    top = vector(dice.uniform(-0.3, 0.3, n), -high, dice.uniform(-0.3, 0.3, n))
    builder.bar(frame, point(builder, 0.0, 0.1, 0.0), top, thick, p.BARK, active, dice.uniform(0.2, 0.6, n))
    radius = high * dice.uniform(0.4, 0.75, n)
    for _ in range(2):
        tip = top + vector(radius * dice.uniform(-0.8, 0.8, n), -radius * dice.uniform(0.2, 0.9, n),
                           radius * dice.uniform(-0.8, 0.8, n))
        builder.bar(frame, 0.7 * top, tip, thick * 0.35, p.BARK, active, 0.6)
    crown(builder, dice, frame, top + vector(0.0, -0.5 * radius, 0.0), radius, leaf, cards, active)


def plant(builder: Builder, dice: Dice, frame: Frame, active: Tensor, leaf: Tensor) -> None:
    """A pot with stems and leaves."""
    n = frame.origin.shape[1]
    size = dice.uniform(0.07, 0.15, n)
    builder.add("frustum", frame, vector(0.0, -size, 0.0), vector(size, size, size), builder.overturned, (dice.uniform(0.0, 0.4, n),), any_material(dice, n), active)
    top = vector(0.0, -2.0 * size, 0.0)
    for _ in range(3):
        tip = top + vector(size * dice.uniform(-1.5, 1.5, n), -size * dice.uniform(1.5, 4.0, n), size * dice.uniform(-1.5, 1.5, n))
        builder.bar(frame, top, tip, 0.004, p.FOLIAGE, active)
    crown(builder, dice, frame, top + vector(0.0, -2.2 * size, 0.0), 2.2 * size, leaf, 5, active)


def car(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """Body, cabin of dark glass under a roof, four wheels, lights."""
    n = frame.origin.shape[1]
    paint = any_material(dice, n)
    long, wide, high = dice.uniform(1.7, 2.5, n), dice.uniform(0.75, 1.0, n), dice.uniform(0.28, 0.5, n)
    ground = 0.25
    builder.add("box", frame, vector(0.0, -ground - high, 0.0), vector(wide, high, long), material=paint, active=active)
    cabin = dice.uniform(0.2, 0.45, n)
    y = -ground - 2.0 * high - cabin
    length = long * dice.uniform(0.4, 0.8, n)
    shift = long * dice.uniform(-0.2, 0.1, n)
    builder.add("box", frame, vector(0.0, y, shift), vector(0.86 * wide, cabin, length), material=p.GLASS, active=active)
    builder.add("box", frame, vector(0.0, y - cabin - 0.03, shift), vector(0.88 * wide, 0.04, length), material=paint, active=active)
    for side in (-1.0, 1.0):
        builder.add("box", frame, vector(side * 0.87 * wide, y, shift), vector(0.02 + 0 * wide, cabin, 0.05),
                    material=paint, active=active)
        builder.add("box", frame, vector(side * 0.7 * wide, -ground - high, -long), vector(0.14 + 0 * wide, 0.07, 0.02),
                    material=any_material(dice, n), active=active)
        for end in (-0.62, 0.62):
            builder.add("frustum", frame, vector(side * 0.88 * wide, -0.31, end * long), point(builder, 0.31, 0.31, 0.12),
                        builder.on_wall, (0.0,), p.GLASS, active)


def person(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """Two legs, a body, two arms, a head."""
    n = frame.origin.shape[1]
    cloth, trousers = any_material(dice, n), any_material(dice, n)
    for side in (-0.1, 0.1):
        stride = dice.uniform(-0.25, 0.25, n)
        builder.bar(frame, vector(0.0 * stride + side, 0.0, stride), vector(0.0 * stride + side, -0.85, 0.0), 0.075, trousers, active)
        swing = dice.uniform(-0.3, 0.3, n)
        builder.bar(frame, vector(2.4 * side + 0.0 * swing, -0.8, swing), vector(2.0 * side + 0.0 * swing, -1.4, 0.0), 0.045, cloth, active)
    builder.add("ellipsoid", frame, point(builder, 0.0, -1.15, 0.0), point(builder, 0.2, 0.36, 0.14), material=cloth, active=active)
    builder.add("ellipsoid", frame, point(builder, 0.0, -1.62, 0.0), point(builder, 0.09, 0.12, 0.1), material=any_material(dice, n), active=active)


def pole(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """A post with a sign, a lamp, or nothing."""
    n = frame.origin.shape[1]
    high, thick = dice.uniform(2.0, 7.0, n), dice.log_uniform(0.025, 0.12, n)
    builder.bar(frame, point(builder, 0.0, 0.0, 0.0), vector(0.0, -high, 0.0), thick, p.METAL, active, dice.uniform(0.0, 0.5, n))
    size = dice.uniform(0.25, 0.5, n)
    sign = active & dice.chance(0.5, n)
    builder.add("card", frame, vector(0.0, -high * dice.uniform(0.7, 1.0, n), -thick - 0.01),
                vector(size, size * dice.uniform(0.5, 1.0, n), 1.0), None,
                (torch.where(dice.chance(0.5, n), float(DISC), 0.0), 1.0, 1.0, 0.5), any_material(dice, n), sign)
    arm = dice.uniform(0.4, 1.5, n)
    lit = active & dice.chance(0.4, n)
    builder.bar(frame, vector(0.0, -high, 0.0), vector(arm, -high, 0.0), 0.7 * thick, p.METAL, lit)
    builder.add("box", frame, vector(arm, -high + 0.05, 0.0), vector(0.2 + 0 * arm, 0.06, 0.1), material=p.METAL, active=lit)


def cup_of_sticks(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """A cup with brushes or pencils standing in it."""
    n = frame.origin.shape[1]
    wide, high = dice.uniform(0.03, 0.06, n), dice.uniform(0.05, 0.1, n)
    builder.add("frustum", frame, vector(0.0, -high, 0.0), vector(wide, wide, high), builder.upright,
                (dice.uniform(0.0, 0.25, n),), any_material(dice, n), active)
    for _ in range(5):
        x, z = dice.uniform(-0.6, 0.6, n), dice.uniform(-0.6, 0.6, n)
        low = vector(-0.4 * x * wide, -high, -0.4 * z * wide)
        top = vector(x * wide * 2.0, -high * dice.uniform(2.6, 4.5, n), z * wide * 2.0)
        builder.bar(frame, low, top, dice.log_uniform(0.0012, 0.006, n), any_material(dice, n), active, dice.uniform(0.0, 0.6, n))


def figurine(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """Body, belly, head, limbs, a cone: something between a toy and a statue."""
    n = frame.origin.shape[1]
    one, two = any_material(dice, n), any_material(dice, n)
    body, belly = dice.uniform(0.03, 0.06, n), dice.uniform(0.04, 0.08, n)
    builder.add("ellipsoid", frame, vector(0.0, -belly, 0.0), vector(belly, belly, belly * 0.9), material=one, active=active)
    builder.add("ellipsoid", frame, vector(0.0, -2.0 * belly - 0.6 * body, 0.0), vector(body, body * 1.2, body), material=two, active=active)
    head = dice.uniform(0.025, 0.045, n)
    y = -2.0 * belly - 1.7 * body - 0.8 * head
    builder.add("ellipsoid", frame, vector(0.0, y, 0.0), vector(head, head, head), material=one, active=active)
    builder.add("frustum", frame, vector(0.0, y - 1.3 * head, 0.0), vector(0.8 * head, 0.8 * head, 0.7 * head), builder.upright,
                (1.0,), two, active & dice.chance(0.6, n))
    for side in (-1.0, 1.0):
        builder.bar(frame, vector(side * body, -2.0 * belly - body, 0.0),
            vector(side * dice.uniform(0.05, 0.13, n), -2.0 * belly - body * dice.uniform(-1.0, 2.5, n), dice.uniform(-0.08, 0.0, n)),
            0.009, two, active, 0.3)


def books(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """A pile of books, slightly turned against each other."""
    n = frame.origin.shape[1]
    y = torch.zeros((builder.batch, n), device=builder.device)
    for _ in range(4):
        thick = dice.uniform(0.006, 0.025, n)
        size = dice.uniform(0.07, 0.14, n)
        builder.add("box", frame, vector(dice.uniform(-0.02, 0.02, n), y - thick, dice.uniform(-0.02, 0.02, n)),
                    vector(size, thick, size * 0.72), yaw_rotation(dice.normal(0.0, 0.25, n)),
                    material=any_material(dice, n), active=active)
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
        builder.add("card", frame, vector(0.0, -high, side * wide), half, None, (mask, cells, cells * high / wide, density), weave, active)
        builder.add("card", frame, vector(side * wide, -high, 0.0), half, builder.on_wall, (mask, cells, cells * high / wide, density), weave, active)
        for a, b in (((-1.0, side), (1.0, side)), ((side, -1.0), (side, 1.0))):
            builder.bar(frame, vector(a[0] * wide, -2.0 * high, a[1] * wide), vector(b[0] * wide, -2.0 * high, b[1] * wide), 0.006, weave, active)


def board(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """A flat board leaning back: a picture, a print, a box front."""
    n = frame.origin.shape[1]
    wide, high, lean = dice.uniform(0.06, 0.25, n), dice.uniform(0.06, 0.25, n), dice.uniform(-0.6, 0.3, n)
    builder.add("box", frame, vector(0.0, -high * torch.cos(lean), 0.0), vector(wide, high, 0.004), pitch_rotation(lean),
                material=any_material(dice, n), active=active)


def bicycle(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """Two wheels and the bars between them."""
    n = frame.origin.shape[1]
    paint = any_material(dice, n)
    for end in (-0.5, 0.5):
        builder.add("torus", frame, point(builder, 0.0, -0.33, end), point(builder, 0.33, 0.33, 0.33), builder.on_wall,
                    (0.06,), p.METAL, active)
    ends = ((-0.5, -0.33, -0.15, -0.85), (0.5, -0.33, 0.38, -0.95), (-0.15, -0.85, 0.38, -0.8), (0.0, -0.3, -0.15, -0.85),
            (0.0, -0.3, 0.38, -0.8))
    for z0, y0, z1, y1 in ends:
        builder.bar(frame, point(builder, 0.0, y0, z0), point(builder, 0.0, y1, z1), 0.018, paint, active)
    builder.bar(frame, point(builder, -0.25, -0.98, 0.38), point(builder, 0.25, -0.98, 0.38), 0.012, p.METAL, active)


def ladder(builder: Builder, dice: Dice, frame: Frame, active: Tensor) -> None:
    """Two rails and six rungs, leaning."""
    n = frame.origin.shape[1]
    high, lean = dice.uniform(0.8, 2.4, n), dice.uniform(0.1, 0.4, n)
    wood = any_material(dice, n)
    for side in (-0.2, 0.2):
        builder.bar(frame, point(builder, side, 0.0, 0.0), vector(side + 0.0 * high, -high, lean), 0.02, wood, active)
    for rung in range(6):
        share = (rung + 0.5) / 6.0
        builder.bar(frame, vector(-0.2 + 0.0 * high, -share * high, share * lean), vector(0.2 + 0.0 * high, -share * high, share * lean),
            0.012, wood, active)


def pipes(builder: Builder, dice: Dice, frame: Frame, active: Tensor, steps: int = 7) -> None:
    """A pipe that turns at right angles, with a ball at every joint."""
    n = frame.origin.shape[1]
    material, radius = any_material(dice, n), dice.log_uniform(0.01, 0.05, n)
    here = vector(dice.uniform(-0.3, 0.3, n), -dice.uniform(0.1, 0.6, n), dice.uniform(-0.3, 0.3, n))
    for _ in range(steps):
        axis = torch.nn.functional.one_hot(dice.integer(0, 3, n), 3).float()
        there = here + axis * (dice.log_uniform(0.1, 0.5, n) * torch.where(dice.chance(0.5, n), 1.0, -1.0))[..., None]
        there = torch.cat((there[..., :1].clamp(-0.7, 0.7), there[..., 1:2].clamp(-1.2, -0.02), there[..., 2:].clamp(-0.7, 0.7)), -1)
        builder.bar(frame, here, there, radius, material, active)
        builder.add("ellipsoid", frame, there, (1.2 * radius)[..., None].expand(-1, -1, 3), material=material, active=active)
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
    builder.add("torus", frame, vector(dice.uniform(-0.4, 0.4, n), -size, 0.0), torch.stack((size, size, size), -1),
                yaw_rotation(dice.normal(0.0, 0.6, n)), (dice.uniform(0.05, 0.2, n),), p.METAL, active)
