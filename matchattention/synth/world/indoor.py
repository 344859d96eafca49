"""Rooms, corridors and table tops."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from matchattention.synth.dice import Dice
from matchattention.synth.world import clutter, furniture, plants, road_users, small_things
from matchattention.synth.world import palette as p
from matchattention.synth.world.builder import Builder, Frame, vector, yaw_rotation
from matchattention.synth.world.camera import aim
from matchattention.synth.world.config import SceneConfig
from matchattention.synth.world.places import Setting, leaf_size, standing, thin_things


def room(builder: Builder, dice: Dice, config: SceneConfig, size: tuple[int, int], long: bool = False) -> Setting:
    """A furnished room seen from inside; `long` makes it a corridor with pillars and lamps."""
    wide = dice.uniform(0.9, 2.0) if long else dice.uniform(1.6, 4.5)
    deep = dice.uniform(5.0, 18.0) if long else dice.uniform(1.8, 5.0)
    high = dice.uniform(2.2, 3.6)
    position = torch.stack(
        (wide * dice.uniform(-0.5, 0.5), -dice.uniform(0.7, 1.8), -deep * dice.uniform(0.4, 0.85)), -1
    )
    yaw = dice.normal(0.0, 0.12 if long else 0.35)
    camera = aim(dice, config, size, position, yaw, dice.normal(0.08, 0.15))
    _walls(builder, wide, deep, high, (p.FLOOR, p.WALL, p.CEILING))
    inner = 0.95

    def inside(frame: Frame, margin: float) -> Frame:
        limit = torch.stack((wide, high * 0.0 + 100.0, deep), -1)[:, None] * inner - margin
        return frame._replace(origin=torch.minimum(torch.maximum(frame.origin, -limit), limit))

    far = 14.0 if long else 5.0
    for maker, n, low, margin in (
        (furniture.table, 2, 0.0, 0.6),
        (furniture.chair, 4, 0.0, 0.25),
        (furniture.cabinet, 4, 0.2, 0.4),
        (furniture.lamp, 2, 0.0, 0.2),
        (furniture.ladder, 1, 0.0, 0.3),
        (road_users.person, 1, 0.0, 0.3),
        (small_things.machine, 2, 0.0, 0.5),
        (small_things.pipes, 1, 0.0, 0.5),
        (road_users.bicycle, 1, 0.0, 0.5),
    ):
        frame = inside(standing(builder, dice, camera, 1.2, far, n, 0.6), margin)
        maker(builder, dice, frame, clutter.present(dice, n, low, 1.0, 0.75))
    frame = inside(standing(builder, dice, camera, 1.5, far, 3, 0.6), 0.4)
    frame = frame._replace(rotation=yaw_rotation(dice.integer(0, 4, 3) * (0.5 * math.pi) + dice.normal(0.0, 0.05, 3)))
    furniture.shelf(builder, dice, frame, clutter.present(dice, 3, 0.0, 1.0, 0.7))
    if config.plants:
        frame = inside(standing(builder, dice, camera, 0.9, 4.0, 3, 0.6), 0.2)._replace(scale=dice.uniform(1.0, 2.6, 3))
        plants.plant(builder, dice, frame, clutter.present(dice, 3), leaf_size(camera, frame, dice, 4.0, 20.0))
    _pictures(builder, dice, wide, deep, high)
    if long:
        _pillars(builder, dice, wide, deep, high)
    clutter.floating(builder, dice, camera, config, 0.5, 4.0, config.floating, config.floating_count)
    thin_things(builder, dice, camera, config, 0.5, 5.0)
    typical = dice.uniform(1.5, 3.5)
    focus = position + camera.rotation[:, 2] * typical[:, None]
    return Setting(camera, typical, focus, 0.5 * (wide + deep).clamp(max=8.0), False)


def corridor(builder: Builder, dice: Dice, config: SceneConfig, size: tuple[int, int]) -> Setting:
    """A long room."""
    return room(builder, dice, config, size, long=True)


def _walls(builder: Builder, wide: Tensor, deep: Tensor, high: Tensor, materials: tuple[int, int, int]) -> None:
    """A closed room around the origin: |x| < wide, |z| < deep, -high < y < 0; (B,) each, m."""
    floor, wall, ceiling = materials
    zero = torch.zeros_like(wide)[:, None]
    w, d, h = wide[:, None], deep[:, None], high[:, None]
    frame = builder.frame(torch.zeros((builder.batch, 1, 3), device=builder.device))
    builder.add("card", frame, vector(zero, zero, zero), vector(w, d, 1.0), builder.upright, material=floor)
    builder.add("card", frame, vector(zero, -h, zero), vector(w, d, 1.0), builder.upright, material=ceiling)
    for side in (-1.0, 1.0):
        builder.add("card", frame, vector(zero, -0.5 * h, side * d), vector(w, 0.5 * h, 1.0), material=wall)
        builder.add(
            "card", frame, vector(side * w, -0.5 * h, zero), vector(d, 0.5 * h, 1.0), builder.on_wall, material=wall
        )


def _pictures(builder: Builder, dice: Dice, wide: Tensor, deep: Tensor, high: Tensor) -> None:
    """Frames, posters, windows and screens on three walls."""
    n = 4
    half_u, half_v = dice.uniform(0.15, 0.6, n), dice.uniform(0.15, 0.5, n)
    y = -high[:, None] * dice.uniform(0.4, 0.75, n)
    for wall in range(3):
        along, gap = dice.uniform(-0.9, 0.9, n), dice.uniform(0.02, 0.06, n)
        if wall == 0:
            origin, axes = vector(along * wide[:, None], y, deep[:, None] - gap), builder.identity
        else:
            side = 1.0 if wall == 1 else -1.0
            origin, axes = (
                vector(side * (wide[:, None] - gap), y, along * deep[:, None]),
                builder.on_wall,
            )
        frame = builder.frame(origin)
        active = clutter.present(dice, n)
        builder.add(
            "box",
            frame,
            torch.zeros(3, device=builder.device),
            vector(half_u, half_v, 0.015),
            axes,
            material=p.any_material(dice, n),
            active=active,
        )


def _pillars(builder: Builder, dice: Dice, wide: Tensor, deep: Tensor, high: Tensor) -> None:
    """Equal pillars or door frames at equal distances along both walls: a repeated structure."""
    n = 8
    z = deep[:, None] * (-1.0 + 2.0 * (torch.arange(n, device=builder.device) + dice.unit(1)) / n)
    depth, reach = dice.uniform(0.05, 0.3, 1).expand(-1, n), dice.uniform(0.08, 0.25, 1).expand(-1, n)
    active = clutter.present(dice, 1, 0.0, 1.0).expand(-1, n)
    for side in (-1.0, 1.0):
        frame = builder.frame(vector(side * (wide[:, None] - reach), -0.5 * high[:, None].expand(-1, n), z))
        builder.add(
            "box",
            frame,
            torch.zeros(3, device=builder.device),
            vector(reach, 0.5 * high[:, None], depth),
            material=p.CEILING,
            active=active,
        )


def tabletop(builder: Builder, dice: Dice, config: SceneConfig, size: tuple[int, int]) -> Setting:
    """Many small things on a table in front of a backdrop, close to the camera."""
    distance, pitch = dice.uniform(0.55, 1.3), dice.uniform(0.05, 0.75)
    yaw = dice.normal(0.0, 0.3)
    forward = torch.stack((torch.sin(-yaw) * torch.cos(pitch), torch.sin(pitch), torch.cos(yaw) * torch.cos(pitch)), -1)
    position = -forward * distance[:, None]
    position[:, 1] -= 0.08
    camera = aim(dice, config, size, position, yaw, pitch)
    zero = torch.zeros((builder.batch, 1), device=builder.device)
    frame = builder.frame(torch.zeros((builder.batch, 1, 3), device=builder.device))
    half = dice.uniform(0.5, 1.6, 2)
    builder.add(
        "box",
        frame,
        vector(zero, zero + 0.02, zero),
        vector(half[:, :1], 0.02, half[:, 1:]),
        yaw_rotation(dice.normal(0.0, 0.3, 1)),
        material=p.BACKDROP,
    )
    room_wide, room_deep = dice.uniform(1.5, 4.0), dice.uniform(1.2, 3.5)
    below = builder.frame(vector(zero, zero + 0.7, zero))
    builder.add(
        "card", below, vector(zero, zero, zero), vector(zero + 6.0, 6.0, 1.0), builder.upright, material=p.FLOOR
    )
    for axis, reach in ((builder.identity, room_deep), (builder.on_wall, room_wide)):
        for side in (-1.0, 1.0):
            centre = (
                vector(zero, -1.0, side * reach[:, None])
                if axis is builder.identity
                else vector(side * reach[:, None], -1.0, zero)
            )
            builder.add("card", frame, centre, vector(zero + 6.0, 3.0, 1.0), axis, material=p.WALL)
    # Boards standing behind the things: the layered look of the classic stereo scenes.
    n = 4
    back = builder.frame(
        vector(dice.uniform(-0.7, 0.7, n), 0.0, dice.uniform(0.05, 0.9, n)), yaw_rotation(dice.normal(0.0, 0.5, n))
    )
    tall, broad = dice.uniform(0.12, 0.6, n), dice.uniform(0.12, 0.6, n)
    builder.add(
        "box",
        back,
        vector(0.0, -tall, 0.0),
        vector(broad, tall, 0.01),
        material=p.any_material(dice, n),
        active=clutter.present(dice, n),
    )

    def spots(n: int, scale: tuple[float, float] = (0.7, 1.5)) -> Frame:
        place = dice.normal(0.0, 0.33, n, 2)
        return builder.frame(
            vector(place[..., 0], 0.0, 0.7 * place[..., 1]),
            yaw_rotation(dice.uniform(-math.pi, math.pi, n)),
            dice.log_uniform(*scale, n),
            moves=True,
        )

    for maker, n in (
        (small_things.books, 3),
        (small_things.board, 4),
        (small_things.cup_of_sticks, 4),
        (small_things.figurine, 4),
        (small_things.basket, 2),
        (furniture.lamp, 1),
        (small_things.machine, 2),
        (small_things.pipes, 1),
        (furniture.chair, 1),
    ):
        large = maker in (furniture.lamp, small_things.machine, small_things.pipes, furniture.chair)
        maker(builder, dice, spots(n, (0.2, 0.5) if large else (0.7, 1.5)), clutter.present(dice, n))
    if config.plants:
        frame = spots(4, (0.4, 1.2))
        plants.plant(builder, dice, frame, clutter.present(dice, 4), leaf_size(camera, frame, dice, 4.0, 26.0))
        plants.bare_bush(builder, dice, spots(2, (0.5, 1.5)), clutter.present(dice, 2, 0.0, 1.0, 0.5))
    _solids_on_ground(builder, dice, config, spots, 26, 0.02, 0.1)
    clutter.floating(builder, dice, camera, config, 0.4, 1.6, 0.6 * config.floating, config.floating_count)
    thin_things(builder, dice, camera, config, 0.45, 2.0)
    return Setting(camera, distance, torch.zeros_like(position), dice.uniform(0.9, 1.4), False)


def _solids_on_ground(
    builder: Builder, dice: Dice, config: SceneConfig, spots: Callable[[int], Frame], n: int, low: float, high: float
) -> None:
    """Boxes, balls, cylinders, cones and rings that touch the ground."""
    third = n // 3
    frame = spots(third)
    half = torch.stack([dice.log_uniform(low, high, third) for _ in range(3)], -1)
    active = clutter.present(dice, third, 0.2, 1.0)
    builder.add(
        "box", frame, vector(0.0, -half[..., 1], 0.0), half, material=p.any_material(dice, third), active=active
    )
    if not config.curved:
        return
    frame = spots(third)
    half = torch.stack([dice.log_uniform(low, 0.7 * high, third) for _ in range(3)], -1)
    builder.add(
        "ellipsoid",
        frame,
        vector(0.0, -half[..., 1], 0.0),
        half,
        material=p.any_material(dice, third),
        active=active,
    )
    frame = spots(third)
    radius, tall = dice.log_uniform(0.5 * low, 0.6 * high, third), dice.log_uniform(low, 1.5 * high, third)
    taper = torch.where(dice.chance(0.5, third), 0.0, dice.unit(third))
    builder.add(
        "frustum",
        frame,
        vector(0.0, -tall, 0.0),
        vector(radius, radius, tall),
        builder.upright,
        (taper,),
        p.any_material(dice, third),
        active,
    )
    frame = spots(2)
    ring, tube = dice.log_uniform(low, high, 2), dice.uniform(0.1, 0.4, 2)
    builder.add(
        "torus",
        frame,
        vector(0.0, -ring * tube, 0.0),
        vector(ring, ring, ring),
        builder.upright,
        (tube,),
        p.any_material(dice, 2),
        clutter.present(dice, 2),
    )
    frame = spots(4)
    radius, tall = dice.log_uniform(low, high, 4), dice.log_uniform(low, 1.2 * high, 4)
    builder.add(
        "prism",
        frame,
        vector(0.0, -tall, 0.0),
        vector(radius, radius, tall),
        builder.upright,
        (dice.integer(3, 9, 4).float(), torch.where(dice.chance(0.6, 4), 0.0, dice.unit(4))),
        p.any_material(dice, 4),
        clutter.present(dice, 4),
    )
