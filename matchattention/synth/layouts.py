"""Worlds: where the camera stands and what is around it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from matchattention.synth import clutter, objects
from matchattention.synth import palette as p
from matchattention.synth.builder import Builder, Frame, pitch_rotation, random_rotation, vector, yaw_rotation
from matchattention.synth.camera import Camera, aim
from matchattention.synth.config import SceneConfig
from matchattention.synth.dice import Dice


class Setting(NamedTuple):
    """What a layout decides besides its primitives.

    Attributes:
        camera: the left view.
        typical_depth: (B,) m, sets the scale of textures.
        focus: (B, 3) m, where the light looks.
        extent: (B,) m, radius of the part of the world that matters.
        outdoor: sun and sky instead of lamps.
        baseline: (B,) m or None: fixed by the rig; otherwise it follows from the drawn disparity.
    """

    camera: Camera
    typical_depth: Tensor
    focus: Tensor
    extent: Tensor
    outdoor: bool
    baseline: Tensor | None = None



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
        builder.add("card", frame, vector(side * w, -0.5 * h, zero), vector(d, 0.5 * h, 1.0), builder.on_wall, material=wall)


def _standing(builder: Builder, dice: Dice, camera: Camera, near: float, far: float, n: int, spread: float,
              y: float = 0.0) -> Frame:
    """Places on the ground in front of the camera, log-uniform in distance, any yaw; `spread` widens the sector."""
    distance = dice.log_uniform(near, far, n)
    angle = dice.uniform(-spread, spread, n)
    forward = camera.rotation[:, 2]
    heading = torch.atan2(forward[:, 0], forward[:, 2])[:, None] + angle
    x = camera.position[:, :1] + distance * torch.sin(heading)
    z = camera.position[:, 2:] + distance * torch.cos(heading)
    return builder.frame(vector(x, y, z), yaw_rotation(dice.uniform(-math.pi, math.pi, n)), moves=True)


def _leaf(camera: Camera, frame: Frame, dice: Dice, low: float, high: float) -> Tensor:
    """(B, n) m: size of a leaf that is `low` to `high` px wide where the group stands."""
    n = frame.origin.shape[1]
    distance = (frame.origin - camera.position[:, None]).norm(dim=-1)
    return distance / camera.focal[:, None] * dice.log_uniform(low, high, n) / frame.scale


def room(builder: Builder, dice: Dice, config: SceneConfig, size: tuple[int, int], long: bool = False) -> Setting:
    """A furnished room seen from inside; `long` makes it a corridor with pillars and lamps."""
    wide = dice.uniform(0.9, 2.0) if long else dice.uniform(1.6, 4.5)
    deep = dice.uniform(5.0, 18.0) if long else dice.uniform(1.8, 5.0)
    high = dice.uniform(2.2, 3.6)
    position = torch.stack((wide * dice.uniform(-0.5, 0.5), -dice.uniform(0.7, 1.8), -deep * dice.uniform(0.4, 0.85)), -1)
    yaw = dice.normal(0.0, 0.12 if long else 0.35)
    camera = aim(dice, config, size, position, yaw, dice.normal(0.08, 0.15))
    _walls(builder, wide, deep, high, (p.FLOOR, p.WALL, p.CEILING))
    inner = 0.95

    def inside(frame: Frame, margin: float) -> Frame:
        limit = torch.stack((wide, high * 0.0 + 100.0, deep), -1)[:, None] * inner - margin
        return frame._replace(origin=torch.minimum(torch.maximum(frame.origin, -limit), limit))

    far = 14.0 if long else 5.0
    for maker, n, low, margin in ((objects.table, 2, 0.0, 0.6), (objects.chair, 4, 0.0, 0.25), (objects.cabinet, 4, 0.2, 0.4),
                                  (objects.lamp, 2, 0.0, 0.2), (objects.ladder, 1, 0.0, 0.3), (objects.person, 1, 0.0, 0.3),
                                  (objects.machine, 2, 0.0, 0.5), (objects.pipes, 1, 0.0, 0.5), (objects.bicycle, 1, 0.0, 0.5)):
        frame = inside(_standing(builder, dice, camera, 1.2, far, n, 0.6), margin)
        maker(builder, dice, frame, clutter.present(dice, n, low, 1.0, 0.75))
    frame = inside(_standing(builder, dice, camera, 1.5, far, 3, 0.6), 0.4)
    frame = frame._replace(rotation=yaw_rotation(dice.integer(0, 4, 3) * (0.5 * math.pi) + dice.normal(0.0, 0.05, 3)))
    objects.shelf(builder, dice, frame, clutter.present(dice, 3, 0.0, 1.0, 0.7))
    if config.plants:
        frame = inside(_standing(builder, dice, camera, 0.9, 4.0, 3, 0.6), 0.2)._replace(scale=dice.uniform(1.0, 2.6, 3))
        objects.plant(builder, dice, frame, clutter.present(dice, 3), _leaf(camera, frame, dice, 4.0, 20.0))
    _pictures(builder, dice, wide, deep, high)
    if long:
        _pillars(builder, dice, wide, deep, high)
    clutter.floating(builder, dice, camera, config, 0.5, 4.0, config.floating, config.floating_count)
    _thin(builder, dice, camera, config, 0.5, 5.0)
    typical = dice.uniform(1.5, 3.5)
    focus = position + camera.rotation[:, 2] * typical[:, None]
    return Setting(camera, typical, focus, 0.5 * (wide + deep).clamp(max=8.0), False)


def corridor(builder: Builder, dice: Dice, config: SceneConfig, size: tuple[int, int]) -> Setting:
    """A long room."""
    return room(builder, dice, config, size, long=True)


def _pictures(builder: Builder, dice: Dice, wide: Tensor, deep: Tensor, high: Tensor) -> None:
    """Frames, posters, windows and screens on three walls."""
    n = 4
    half_u, half_v = dice.uniform(0.15, 0.6, n), dice.uniform(0.15, 0.5, n)
    y = -high[:, None] * dice.uniform(0.4, 0.75, n)
    for wall in range(3):
        along = dice.uniform(-0.9, 0.9, n)
        if wall == 0:
            origin, axes = vector(along * wide[:, None], y, (deep[:, None] - 0.03).expand(-1, n)), builder.identity
        else:
            side = 1.0 if wall == 1 else -1.0
            origin, axes = vector(side * (wide[:, None] - 0.03).expand(-1, n), y, along * deep[:, None]), builder.on_wall
        frame = builder.frame(origin)
        active = clutter.present(dice, n)
        builder.add("box", frame, torch.zeros(3, device=builder.device), vector(half_u, half_v, 0.015), axes,
                    material=objects.any_material(dice, n), active=active)


def _pillars(builder: Builder, dice: Dice, wide: Tensor, deep: Tensor, high: Tensor) -> None:
    """Equal pillars or door frames at equal distances along both walls: a repeated structure."""
    n = 8
    z = deep[:, None] * (-1.0 + 2.0 * (torch.arange(n, device=builder.device) + dice.unit(1)) / n)
    depth, reach = dice.uniform(0.05, 0.3, 1).expand(-1, n), dice.uniform(0.08, 0.25, 1).expand(-1, n)
    active = clutter.present(dice, 1, 0.0, 1.0).expand(-1, n)
    for side in (-1.0, 1.0):
        frame = builder.frame(vector(side * (wide[:, None] - reach), -0.5 * high[:, None].expand(-1, n), z))
        builder.add("box", frame, torch.zeros(3, device=builder.device), vector(reach, 0.5 * high[:, None], depth),
                    material=p.CEILING, active=active)


def _thin(builder: Builder, dice: Dice, camera: Camera, config: SceneConfig, near: float, far: float) -> None:
    """Cut-outs, foliage, wires and glass in front of the camera."""
    if config.panes > 0:
        clutter.panes(builder, dice, camera, near, 0.4 * far, config.panes)
    if config.cards:
        clutter.cards(builder, dice, camera, near, far, 0.6, 14)
    if config.plants:
        clutter.hanging(builder, dice, camera, near, far, 0.3, 5)
    if config.wires:
        clutter.wires(builder, dice, camera, near, far, 0.6, 24)


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
    builder.add("box", frame, vector(zero, zero + 0.02, zero), vector(half[:, :1], 0.02, half[:, 1:]),
                yaw_rotation(dice.normal(0.0, 0.3, 1)), material=p.BACKDROP)
    room_wide, room_deep = dice.uniform(1.5, 4.0), dice.uniform(1.2, 3.5)
    below = builder.frame(vector(zero, zero + 0.7, zero))
    builder.add("card", below, vector(zero, zero, zero), vector(zero + 6.0, 6.0, 1.0), builder.upright, material=p.FLOOR)
    for axis, reach in ((builder.identity, room_deep), (builder.on_wall, room_wide)):
        for side in (-1.0, 1.0):
            centre = vector(zero, -1.0, side * reach[:, None]) if axis is builder.identity else vector(side * reach[:, None], -1.0, zero)
            builder.add("card", frame, centre, vector(zero + 6.0, 3.0, 1.0), axis, material=p.WALL)
    # Boards standing behind the things: the layered look of the classic stereo scenes.
    n = 4
    back = builder.frame(vector(dice.uniform(-0.7, 0.7, n), 0.0, dice.uniform(0.05, 0.9, n)), yaw_rotation(dice.normal(0.0, 0.5, n)))
    tall, broad = dice.uniform(0.12, 0.6, n), dice.uniform(0.12, 0.6, n)
    builder.add("box", back, vector(0.0, -tall, 0.0), vector(broad, tall, 0.01), material=objects.any_material(dice, n),
                active=clutter.present(dice, n))

    def spots(n: int, scale: tuple[float, float] = (0.7, 1.5)) -> Frame:
        place = dice.normal(0.0, 0.33, n, 2)
        return builder.frame(vector(place[..., 0], 0.0, 0.7 * place[..., 1]), yaw_rotation(dice.uniform(-math.pi, math.pi, n)),
                             dice.log_uniform(*scale, n), moves=True)

    for maker, n in ((objects.books, 3), (objects.board, 4), (objects.cup_of_sticks, 4), (objects.figurine, 4),
                     (objects.basket, 2), (objects.lamp, 1), (objects.machine, 2), (objects.pipes, 1), (objects.chair, 1)):
        large = maker in (objects.lamp, objects.machine, objects.pipes, objects.chair)
        maker(builder, dice, spots(n, (0.2, 0.5) if large else (0.7, 1.5)), clutter.present(dice, n))
    if config.plants:
        frame = spots(4, (0.4, 1.2))
        objects.plant(builder, dice, frame, clutter.present(dice, 4), _leaf(camera, frame, dice, 4.0, 26.0))
    _solids_on_ground(builder, dice, config, spots, 26, 0.02, 0.1)
    clutter.floating(builder, dice, camera, config, 0.4, 1.6, 0.6 * config.floating, config.floating_count)
    _thin(builder, dice, camera, config, 0.45, 2.0)
    return Setting(camera, distance, torch.zeros_like(position), dice.uniform(0.9, 1.4), False)


def _solids_on_ground(builder: Builder, dice: Dice, config: SceneConfig, spots: object, n: int, low: float, high: float) -> None:
    """Boxes, balls, cylinders, cones and rings that touch the ground."""
    third = n // 3
    frame = spots(third)  # type: ignore[operator]
    half = torch.stack([dice.log_uniform(low, high, third) for _ in range(3)], -1)
    active = clutter.present(dice, third, 0.2, 1.0)
    builder.add("box", frame, vector(0.0, -half[..., 1], 0.0), half, material=objects.any_material(dice, third), active=active)
    if not config.curved:
        return
    frame = spots(third)  # type: ignore[operator]
    half = torch.stack([dice.log_uniform(low, 0.7 * high, third) for _ in range(3)], -1)
    builder.add("ellipsoid", frame, vector(0.0, -half[..., 1], 0.0), half, material=objects.any_material(dice, third), active=active)
    frame = spots(third)  # type: ignore[operator]
    radius, tall = dice.log_uniform(0.5 * low, 0.6 * high, third), dice.log_uniform(low, 1.5 * high, third)
    taper = torch.where(dice.chance(0.5, third), 0.0, dice.unit(third))
    builder.add("frustum", frame, vector(0.0, -tall, 0.0), vector(radius, radius, tall), builder.upright, (taper,),
                objects.any_material(dice, third), active)
    frame = spots(2)  # type: ignore[operator]
    ring, tube = dice.log_uniform(low, high, 2), dice.uniform(0.1, 0.4, 2)
    builder.add("torus", frame, vector(0.0, -ring * tube, 0.0), vector(ring, ring, ring), builder.upright, (tube,),
                objects.any_material(dice, 2), clutter.present(dice, 2))


def street(builder: Builder, dice: Dice, config: SceneConfig, size: tuple[int, int]) -> Setting:
    """A road between facades with cars, poles, trees, people, fences and cables under the sky."""
    position = torch.stack((dice.uniform(-2.5, 2.5), -dice.uniform(1.3, 2.0), torch.zeros(builder.batch, device=builder.device)), -1)
    rig = dice.chance(0.6)
    share = torch.where(rig, dice.uniform(0.5, 0.75), 0.5 / torch.tan(0.5 * torch.deg2rad(dice.uniform(*config.field_of_view))))
    camera = aim(dice, config, size, position, dice.normal(0.0, 0.12), dice.normal(0.01, 0.03), share)
    zero = torch.zeros((builder.batch, 1), device=builder.device)
    frame = builder.frame(torch.zeros((builder.batch, 1, 3), device=builder.device))
    builder.add("card", frame, vector(zero, zero, zero + 150.0), vector(zero + 220.0, 220.0, 1.0), builder.upright, material=p.FLOOR)
    half_road = dice.uniform(3.5, 9.0, 1)
    # Markings float a millimetre above the road; they are far too thin to matter for the labels.
    n = 10
    dash = builder.frame(vector((half_road * dice.uniform(-0.4, 0.4, 1)).expand(-1, n), -0.004,
                                (2.0 + 6.0 * torch.arange(n, device=builder.device)).expand(builder.batch, n)))
    builder.add("card", dash, vector(0.0 * dash.scale, 0.0, 0.0), vector(0.07 + 0.0 * dash.scale, 1.4, 1.0), builder.upright,
                material=p.CEILING, active=clutter.present(dice, 1, 0.0, 1.2).expand(-1, n))
    for side in (-1.0, 1.0):
        kerb = builder.frame(vector(side * (half_road + 2.0), zero, zero + 60.0))
        builder.add("box", kerb, vector(zero, zero, zero), vector(zero + 2.0, 0.12, 90.0), material=p.WALL)
        n = 7
        width = dice.uniform(3.0, 9.0, n)
        z = torch.cumsum(2.0 * width, 1) - width - 8.0 + dice.uniform(0.0, 20.0, 1)
        tall, back = dice.uniform(2.0, 11.0, n), dice.uniform(3.0, 6.0, n)
        x = side * (half_road + 3.5 + dice.uniform(0.0, 3.0, n) + back + dice.uniform(0.0, 8.0, 1))
        material = torch.where(dice.chance(0.6, n), p.FACADE, objects.any_material(dice, n))
        built = clutter.present(dice, n, 0.0, 1.3, 0.85)
        builder.add("box", builder.frame(vector(x, -tall, z)), vector(0.0 * x, 0.0, 0.0), vector(back, tall, width), material=material, active=built)
        n = 3
        parked = builder.frame(vector(side * (half_road - 1.1) + dice.uniform(-0.3, 0.3, n), 0.0, dice.log_uniform(5.0, 45.0, n)),
                               yaw_rotation(dice.normal(0.0, 0.06, n)), moves=True)
        objects.car(builder, dice, parked, clutter.present(dice, n))
        n = 4
        posts = builder.frame(vector(side * (half_road + 0.5) + 0.0 * dice.unit(n), 0.0, dice.log_uniform(4.0, 50.0, n)))
        objects.pole(builder, dice, posts, clutter.present(dice, n))
        if config.plants:
            n = 3
            trees = builder.frame(vector(side * (half_road + dice.uniform(1.0, 8.0, n)), 0.0, dice.log_uniform(6.0, 40.0, n)),
                                  yaw_rotation(dice.uniform(-3.1, 3.1, n)), dice.uniform(1.0, 2.5, n))
            objects.tree(builder, dice, trees, clutter.present(dice, n), _leaf(camera, trees, dice, 3.0, 14.0), 8)
        n = 3
        length = dice.uniform(2.0, 6.0, n)
        tall = dice.uniform(0.4, 1.2, n)
        fence = builder.frame(vector(side * (half_road + dice.uniform(1.0, 4.0, n)), -tall, dice.log_uniform(4.0, 30.0, n)),
                              yaw_rotation(0.5 * math.pi + dice.normal(0.0, 0.2, n)))
        cells = dice.uniform(4.0, 14.0, n)
        kind = torch.tensor([2.0, 3.0, 5.0, 10.0], device=builder.device)[dice.integer(0, 4, n)]
        builder.add("card", fence, vector(0.0 * tall, 0.0, 0.0), vector(length, tall, 1.0), None,
                    (kind, cells * length / tall, cells, dice.unit(n)), torch.where(kind > 9.0, p.FOLIAGE, p.METAL),
                    clutter.present(dice, n, 0.0, 1.0, 0.6))
    n = 3
    ahead = builder.frame(vector(half_road * dice.uniform(-0.6, 0.6, n), 0.0, dice.log_uniform(7.0, 60.0, n)),
                          yaw_rotation(dice.normal(0.0, 0.15, n)), moves=True)
    objects.car(builder, dice, ahead, clutter.present(dice, n))
    n = 3
    walkers = builder.frame(vector(half_road * dice.uniform(-1.3, 1.3, n), 0.0, dice.log_uniform(4.0, 30.0, n)),
                            yaw_rotation(dice.uniform(-3.1, 3.1, n)), moves=True)
    objects.person(builder, dice, walkers, clutter.present(dice, n, 0.0, 1.0, 0.6))
    n = 2
    bikes = builder.frame(vector(half_road * dice.uniform(-1.2, 1.2, n), 0.0, dice.log_uniform(4.0, 20.0, n)),
                          yaw_rotation(dice.uniform(-3.1, 3.1, n)), moves=True)
    objects.bicycle(builder, dice, bikes, clutter.present(dice, n, 0.0, 1.0, 0.5))
    n = 8
    patch = builder.frame(vector(half_road * dice.uniform(-1.0, 1.0, n), -0.003, dice.log_uniform(3.0, 40.0, n)), yaw_rotation(dice.normal(0.0, 0.3, n)))
    builder.add("card", patch, vector(0.0 * patch.scale, 0.0, 0.0), vector(dice.uniform(0.2, 2.5, n), dice.uniform(0.3, 4.0, n), 1.0),
                builder.upright, (torch.where(dice.chance(0.3, n), 7.0, 0.0), 3.0, 3.0, dice.unit(n)), objects.any_material(dice, n),
                clutter.present(dice, n))
    objects.machine(builder, dice, walkers._replace(origin=walkers.origin + torch.tensor([1.5, 0.0, 1.0])),
                    clutter.present(dice, 3, 0.0, 1.0, 0.4))
    _treeline(builder, dice, camera, 40.0, 90.0, 6)
    if config.wires:
        n = 6
        y, z = -dice.uniform(4.0, 8.0, n), dice.uniform(6.0, 40.0, n)
        along = dice.chance(0.5, 1)
        start = torch.where(along[..., None], vector(dice.uniform(-8.0, 8.0, n), y, 0.0), vector(-14.0, y, z))
        end = torch.where(along[..., None], start + torch.tensor([1.0, 0.0, 80.0], device=builder.device),
                          vector(14.0, y + dice.uniform(-0.5, 0.5, n), z + dice.uniform(-3.0, 3.0, n)))
        cable = builder.frame(torch.zeros((builder.batch, n, 3), device=builder.device))
        builder.bar(cable, start, end, dice.log_uniform(0.008, 0.03, n), p.GLASS, clutter.present(dice, n, 0.0, 1.0, 0.6))
    clutter.floating(builder, dice, camera, config, 3.0, 25.0, 0.4 * config.floating, config.floating_count)
    _thin(builder, dice, camera, config, 3.0, 30.0)
    typical = dice.uniform(8.0, 18.0)
    focus = torch.stack((0.0 * typical, 0.0 * typical - 1.0, 14.0 + 0.0 * typical), -1)
    baseline = torch.where(rig, dice.uniform(0.4, 0.7), torch.nan)
    return Setting(camera, typical, focus, torch.full_like(typical, 26.0), True, baseline)


def _treeline(builder: Builder, dice: Dice, camera: Camera, near: float, far: float, n: int) -> None:
    """Ragged green or grey walls that close the horizon."""
    frame = _standing(builder, dice, camera, near, far, n, 0.8)
    wide, tall = dice.uniform(0.15, 0.5, n) * near, dice.uniform(0.05, 0.2, n) * near
    heading = torch.atan2(camera.rotation[:, 2, 0], camera.rotation[:, 2, 2])[:, None]
    frame = frame._replace(rotation=yaw_rotation(dice.normal(0.0, 0.3, n) - heading))
    cell = near / camera.focal[:, None] * dice.log_uniform(3.0, 14.0, n)
    mask = torch.where(dice.chance(0.6, n), float(objects.LEAVES), torch.where(dice.chance(0.5, n), float(objects.RAGGED), 0.0))
    material = torch.where(mask > 0.0, p.FOLIAGE, objects.any_material(dice, n))
    builder.add("card", frame, vector(0.0, -tall, 0.0), vector(wide, 1.2 * tall, 1.0), None,
                (mask, wide / cell, tall / cell, dice.unit(n)), material, clutter.present(dice, n, 0.0, 1.2))


def forest(builder: Builder, dice: Dice, config: SceneConfig, size: tuple[int, int]) -> Setting:
    """Uneven ground with trunks, bushes, branches, grass and stones."""
    position = torch.stack((dice.uniform(-1.0, 1.0), -dice.uniform(0.9, 2.0), torch.zeros(builder.batch, device=builder.device)), -1)
    camera = aim(dice, config, size, position, dice.normal(0.0, 0.4), dice.normal(0.05, 0.12))
    zero = torch.zeros((builder.batch, 1), device=builder.device)
    bumps = dice.log_uniform(0.1, 0.9, 1)
    ground = builder.frame(vector(zero, zero + bumps, zero + 6.0))
    builder.add("terrain", ground, vector(zero, zero, zero), vector(zero + 18.0, 18.0, bumps), builder.upright,
                (dice.uniform(0.2, 1.0, 1), dice.unit(1)), p.FLOOR)
    far = builder.frame(vector(zero, zero + bumps, zero + 100.0))
    builder.add("card", far, vector(zero, zero, zero), vector(zero + 300.0, 300.0, 1.0), builder.upright, material=p.FLOOR)
    _treeline(builder, dice, camera, 14.0, 40.0, 8)
    n = 16
    trunks = _standing(builder, dice, camera, 1.8, 18.0, n, 0.75)
    trunks = trunks._replace(origin=trunks.origin + torch.tensor([0.0, 0.5, 0.0], device=builder.device))
    lean = vector(dice.normal(0.0, 0.25, n), -dice.uniform(3.0, 9.0, n), dice.normal(0.0, 0.25, n))
    builder.bar(trunks, torch.zeros(3, device=builder.device), lean, dice.log_uniform(0.03, 0.3, n), p.BARK,
                clutter.present(dice, n, 0.1, 1.0), dice.uniform(0.1, 0.6, n))
    n = 6
    trees = _standing(builder, dice, camera, 2.5, 16.0, n, 0.7)
    objects.tree(builder, dice, trees, clutter.present(dice, n, 0.2, 1.0), _leaf(camera, trees, dice, 4.0, 18.0), 7)
    n = 6
    bushes = _standing(builder, dice, camera, 1.5, 10.0, n, 0.7)
    objects.crown(builder, dice, bushes, vector(0.0 * bushes.scale, -0.25, 0.0), dice.uniform(0.25, 0.9, n),
                  _leaf(camera, bushes, dice, 4.0, 18.0), 5, clutter.present(dice, n))
    n = 12
    grass = _standing(builder, dice, camera, 1.2, 8.0, n, 0.7)
    tall = dice.uniform(0.1, 0.45, n)
    blades = (1.2 / (_leaf(camera, grass, dice, 4.0, 16.0))).clamp(4.0, 60.0)
    builder.add("card", grass, vector(0.0, -tall, 0.0), vector(0.8 + 0.0 * tall, tall, 1.0), None,
                (float(objects.GRASS), blades, 1.0, dice.unit(n)), p.FOLIAGE, clutter.present(dice, n))
    n = 8
    stones = _standing(builder, dice, camera, 1.2, 10.0, n, 0.7)
    half = torch.stack([dice.log_uniform(0.05, 0.5, n) for _ in range(3)], -1)
    builder.add("ellipsoid", stones, torch.zeros(3, device=builder.device), half, random_rotation(dice, n),
                material=objects.any_material(dice, n), active=clutter.present(dice, n))
    n = 20
    twigs = _standing(builder, dice, camera, 1.2, 8.0, n, 0.7)
    tip = vector(dice.normal(0.0, 0.5, n), -dice.uniform(0.3, 2.5, n), dice.normal(0.0, 0.5, n))
    radius = (twigs.origin - camera.position[:, None]).norm(dim=-1) / camera.focal[:, None] * dice.log_uniform(0.4, 4.0, n)
    builder.bar(twigs, torch.zeros(3, device=builder.device), tip, radius, p.BARK, clutter.present(dice, n), 0.6)
    objects.person(builder, dice, _standing(builder, dice, camera, 2.5, 10.0, 1, 0.5), clutter.present(dice, 1, 0.0, 1.0, 0.4))
    clutter.floating(builder, dice, camera, config, 1.0, 8.0, 0.4 * config.floating, config.floating_count)
    _thin(builder, dice, camera, config, 1.0, 10.0)
    typical = dice.uniform(3.0, 7.0)
    focus = position + camera.rotation[:, 2] * 6.0
    return Setting(camera, typical, focus, torch.full_like(typical, 12.0), True)


def flying(builder: Builder, dice: Dice, config: SceneConfig, size: tuple[int, int]) -> Setting:
    """Nothing plausible: objects of all kinds in front of one or several slanted backgrounds."""
    position = torch.zeros((builder.batch, 3), device=builder.device)
    camera = aim(dice, config, size, position, dice.normal(0.0, 1.0), dice.normal(0.0, 0.4))
    n = 3
    depth = torch.stack((dice.uniform(6.0, 14.0), dice.uniform(3.0, 9.0), dice.uniform(3.0, 9.0)), 1)
    sideways = dice.normal(0.0, 1.0, n, 2) * torch.tensor([[0.2], [4.0], [4.0]], device=builder.device)
    local = torch.cat((sideways, depth[..., None]), -1)
    tilt = yaw_rotation(dice.normal(0.0, 0.5, n)) @ pitch_rotation(dice.normal(0.0, 0.4, n))
    reach = torch.tensor([60.0, 3.0, 3.0], device=builder.device).expand(builder.batch, n)
    active = torch.stack((dice.chance(0.85), dice.chance(0.5), dice.chance(0.5)), 1)
    builder.add("card", builder.frame(local @ camera.rotation, moves=True), torch.zeros(3, device=builder.device), vector(reach, reach, 1.0),
                tilt @ camera.rotation[:, None], material=torch.tensor([p.BACKDROP, p.WALL, p.CEILING], device=builder.device).expand(builder.batch, n),
                active=active)
    clutter.floating(builder, dice, camera, config, 0.7, 6.0, 1.0, 2 * config.floating_count)
    _thin(builder, dice, camera, config, 0.8, 6.0)
    typical = dice.uniform(2.0, 4.0)
    return Setting(camera, typical, camera.rotation[:, 2] * 3.0, torch.full_like(typical, 4.0), False)


LAYOUTS = {"room": room, "corridor": corridor, "tabletop": tabletop, "street": street, "forest": forest, "flying": flying}
