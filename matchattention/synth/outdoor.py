"""Streets and forests."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from matchattention.synth import clutter, cutouts, plants, road_users, small_things
from matchattention.synth import palette as p
from matchattention.synth.builder import Builder, random_rotation, vector, yaw_rotation
from matchattention.synth.camera import Camera, aim
from matchattention.synth.config import SceneConfig
from matchattention.synth.dice import Dice
from matchattention.synth.places import Setting, leaf_size, standing, thin_things


def street(builder: Builder, dice: Dice, config: SceneConfig, size: tuple[int, int]) -> Setting:
    """A road between facades with cars, poles, trees, people, fences and cables under the sky."""
    position = torch.stack(
        (dice.uniform(-2.5, 2.5), -dice.uniform(1.3, 2.0), torch.zeros(builder.batch, device=builder.device)), -1
    )
    rig = dice.chance(0.6)
    share = torch.where(
        rig, dice.uniform(0.5, 0.75), 0.5 / torch.tan(0.5 * torch.deg2rad(dice.uniform(*config.field_of_view)))
    )
    camera = aim(dice, config, size, position, dice.normal(0.0, 0.12), dice.normal(0.01, 0.03), share)
    zero = torch.zeros((builder.batch, 1), device=builder.device)
    frame = builder.frame(torch.zeros((builder.batch, 1, 3), device=builder.device))
    builder.add(
        "card",
        frame,
        vector(zero, zero, zero + 150.0),
        vector(zero + 220.0, 220.0, 1.0),
        builder.upright,
        material=p.FLOOR,
    )
    half_road = dice.uniform(3.5, 9.0, 1)
    # Markings and patches float millimetres above the road, each at its own height: coplanar surfaces would
    # mingle, differently in the two views.
    n = 10
    dash = builder.frame(
        vector(
            (half_road * dice.uniform(-0.4, 0.4, 1)).expand(-1, n),
            -0.014,
            (2.0 + 6.0 * torch.arange(n, device=builder.device)).expand(builder.batch, n),
        )
    )
    builder.add(
        "card",
        dash,
        vector(0.0 * dash.scale, 0.0, 0.0),
        vector(0.07 + 0.0 * dash.scale, 1.4, 1.0),
        builder.upright,
        material=p.CEILING,
        active=clutter.present(dice, 1, 0.0, 1.2).expand(-1, n),
    )
    for side in (-1.0, 1.0):
        kerb = builder.frame(vector(side * (half_road + 2.0), zero, zero + 60.0))
        builder.add("box", kerb, vector(zero, zero, zero), vector(zero + 2.0, 0.12, 90.0), material=p.WALL)
        n = 7
        width = dice.uniform(3.0, 9.0, n)
        z = torch.cumsum(2.0 * width, 1) - width - 8.0 + dice.uniform(0.0, 20.0, 1)
        tall, back = dice.uniform(2.0, 11.0, n), dice.uniform(3.0, 6.0, n)
        x = side * (half_road + 3.5 + dice.uniform(0.0, 3.0, n) + back + dice.uniform(0.0, 8.0, 1))
        material = torch.where(dice.chance(0.6, n), p.FACADE, p.any_material(dice, n))
        built = clutter.present(dice, n, 0.0, 1.3, 0.85)
        builder.add(
            "box",
            builder.frame(vector(x, -tall, z)),
            vector(0.0 * x, 0.0, 0.0),
            vector(back, tall, width),
            material=material,
            active=built,
        )
        # A gable roof: a three-sided prism along the street, one side down (half a radius below its axis).
        ridge = dice.uniform(1.0, 3.0, n)
        builder.add(
            "prism",
            builder.frame(vector(x, -2.0 * tall - 0.5 * ridge, z)),
            vector(0.0 * x, 0.0, 0.0),
            vector(ridge, 1.2 * back, width),
            builder.side_down,
            (3.0, 0.0),
            p.any_material(dice, n),
            built & (tall < 5.0),
        )
        n = 3
        parked = builder.frame(
            vector(side * (half_road - 1.1) + dice.uniform(-0.3, 0.3, n), 0.0, dice.log_uniform(3.5, 45.0, n)),
            yaw_rotation(dice.normal(0.0, 0.06, n)),
            dice.uniform(0.9, 1.3, n),
            moves=True,
        )
        road_users.car(builder, dice, parked, clutter.present(dice, n))
        n = 4
        posts = builder.frame(
            vector(side * (half_road + 0.5) + 0.0 * dice.unit(n), 0.0, dice.log_uniform(4.0, 50.0, n))
        )
        road_users.pole(builder, dice, posts, clutter.present(dice, n))
        if config.plants:
            n = 3
            trees = builder.frame(
                vector(side * (half_road + dice.uniform(1.0, 8.0, n)), 0.0, dice.log_uniform(6.0, 40.0, n)),
                yaw_rotation(dice.uniform(-3.1, 3.1, n)),
                dice.uniform(1.0, 2.5, n),
            )
            plants.tree(builder, dice, trees, clutter.present(dice, n), leaf_size(camera, trees, dice, 3.0, 14.0), 8)
        n = 3
        length = dice.uniform(2.0, 6.0, n)
        tall = dice.uniform(0.4, 1.2, n)
        fence = builder.frame(
            vector(side * (half_road + dice.uniform(1.0, 4.0, n)), -tall, dice.log_uniform(4.0, 30.0, n)),
            yaw_rotation(0.5 * math.pi + dice.normal(0.0, 0.2, n)),
        )
        cells = dice.uniform(4.0, 14.0, n)
        kind = torch.tensor([2.0, 3.0, 5.0, 10.0], device=builder.device)[dice.integer(0, 4, n)]
        builder.add(
            "card",
            fence,
            vector(0.0 * tall, 0.0, 0.0),
            vector(length, tall, 1.0),
            None,
            (kind, cells * length / tall, cells, dice.unit(n)),
            torch.where(kind > 9.0, p.FOLIAGE, p.METAL),
            clutter.present(dice, n, 0.0, 1.0, 0.6),
        )
        n = 2
        rail = builder.frame(
            vector(side * (half_road + dice.uniform(0.2, 1.0, n)), 0.0, dice.log_uniform(5.0, 30.0, n)),
            yaw_rotation(dice.normal(0.0, 0.03, n)),
        )
        road_users.guard_rail(builder, dice, rail, clutter.present(dice, n, 0.0, 1.0, 0.4))
        if config.plants:
            _verge(builder, dice, camera, side * (half_road + 1.0))
    n = 3
    ahead = builder.frame(
        vector(half_road * dice.uniform(-0.6, 0.6, n), 0.0, dice.log_uniform(7.0, 60.0, n)),
        yaw_rotation(dice.normal(0.0, 0.15, n)),
        moves=True,
    )
    road_users.car(builder, dice, ahead, clutter.present(dice, n))
    n = 3
    walkers = builder.frame(
        vector(half_road * dice.uniform(-1.3, 1.3, n), 0.0, dice.log_uniform(4.0, 30.0, n)),
        yaw_rotation(dice.uniform(-3.1, 3.1, n)),
        moves=True,
    )
    road_users.person(builder, dice, walkers, clutter.present(dice, n, 0.0, 1.0, 0.6))
    n = 2
    bikes = builder.frame(
        vector(half_road * dice.uniform(-1.2, 1.2, n), 0.0, dice.log_uniform(4.0, 20.0, n)),
        yaw_rotation(dice.uniform(-3.1, 3.1, n)),
        moves=True,
    )
    road_users.bicycle(builder, dice, bikes, clutter.present(dice, n, 0.0, 1.0, 0.5))
    n = 8
    patch = builder.frame(
        vector(half_road * dice.uniform(-1.0, 1.0, n), -dice.uniform(0.001, 0.012, n), dice.log_uniform(3.0, 40.0, n)),
        yaw_rotation(dice.normal(0.0, 0.3, n)),
    )
    builder.add(
        "card",
        patch,
        vector(0.0 * patch.scale, 0.0, 0.0),
        vector(dice.uniform(0.2, 2.5, n), dice.uniform(0.3, 4.0, n), 1.0),
        builder.upright,
        (torch.where(dice.chance(0.3, n), 7.0, 0.0), 3.0, 3.0, dice.unit(n)),
        p.any_material(dice, n),
        clutter.present(dice, n),
    )
    small_things.machine(
        builder,
        dice,
        walkers._replace(origin=walkers.origin + torch.tensor([1.5, 0.0, 1.0])),
        clutter.present(dice, 3, 0.0, 1.0, 0.4),
    )
    _treeline(builder, dice, camera, 40.0, 90.0, 6)
    if config.wires:
        n = 6
        y, z = -dice.uniform(4.0, 8.0, n), dice.uniform(6.0, 40.0, n)
        along = dice.chance(0.5, 1)
        start = torch.where(along[..., None], vector(dice.uniform(-8.0, 8.0, n), y, 0.0), vector(-14.0, y, z))
        end = torch.where(
            along[..., None],
            start + torch.tensor([1.0, 0.0, 80.0], device=builder.device),
            vector(14.0, y + dice.uniform(-0.5, 0.5, n), z + dice.uniform(-3.0, 3.0, n)),
        )
        cable = builder.frame(torch.zeros((builder.batch, n, 3), device=builder.device))
        builder.bar(
            cable, start, end, dice.log_uniform(0.008, 0.03, n), p.RUBBER, clutter.present(dice, n, 0.0, 1.0, 0.6)
        )
    clutter.floating(builder, dice, camera, config, 3.0, 25.0, 0.4 * config.floating, config.floating_count)
    thin_things(builder, dice, camera, config, 3.0, 30.0)
    typical = dice.uniform(8.0, 18.0)
    focus = torch.stack((0.0 * typical, 0.0 * typical - 1.0, 14.0 + 0.0 * typical), -1)
    baseline = torch.where(rig, dice.uniform(0.4, 0.7), torch.nan)
    return Setting(camera, typical, focus, torch.full_like(typical, 26.0), True, baseline)


def forest(builder: Builder, dice: Dice, config: SceneConfig, size: tuple[int, int]) -> Setting:
    """Uneven ground with trunks, bushes, branches, grass and stones."""
    position = torch.stack(
        (dice.uniform(-1.0, 1.0), -dice.uniform(0.9, 2.0), torch.zeros(builder.batch, device=builder.device)), -1
    )
    camera = aim(dice, config, size, position, dice.normal(0.0, 0.4), dice.normal(0.05, 0.12))
    zero = torch.zeros((builder.batch, 1), device=builder.device)
    bumps = dice.log_uniform(0.1, 0.9, 1)
    ground = builder.frame(vector(zero, zero + bumps, zero + 6.0))
    builder.add(
        "terrain",
        ground,
        vector(zero, zero, zero),
        vector(zero + 18.0, 18.0, bumps),
        builder.upright,
        (dice.uniform(0.2, 1.0, 1), dice.unit(1)),
        p.FLOOR,
    )
    far = builder.frame(vector(zero, zero + bumps, zero + 100.0))
    builder.add(
        "card", far, vector(zero, zero, zero), vector(zero + 300.0, 300.0, 1.0), builder.upright, material=p.FLOOR
    )
    _treeline(builder, dice, camera, 14.0, 40.0, 8)
    n = 16
    trunks = standing(builder, dice, camera, 1.8, 18.0, n, 0.75)
    trunks = trunks._replace(origin=trunks.origin + torch.tensor([0.0, 0.5, 0.0], device=builder.device))
    lean = vector(dice.normal(0.0, 0.25, n), -dice.uniform(3.0, 9.0, n), dice.normal(0.0, 0.25, n))
    builder.bar(
        trunks,
        torch.zeros(3, device=builder.device),
        lean,
        dice.log_uniform(0.03, 0.3, n),
        p.BARK,
        clutter.present(dice, n, 0.1, 1.0),
        dice.uniform(0.1, 0.6, n),
    )
    n = 6
    trees = standing(builder, dice, camera, 2.5, 16.0, n, 0.7)
    plants.tree(builder, dice, trees, clutter.present(dice, n, 0.2, 1.0), leaf_size(camera, trees, dice, 4.0, 18.0), 7)
    n = 6
    bushes = standing(builder, dice, camera, 1.5, 10.0, n, 0.7)
    plants.crown(
        builder,
        dice,
        bushes,
        vector(0.0 * bushes.scale, -0.25, 0.0),
        dice.uniform(0.25, 0.9, n),
        leaf_size(camera, bushes, dice, 4.0, 18.0),
        5,
        clutter.present(dice, n),
    )
    n = 12
    grass = standing(builder, dice, camera, 1.2, 8.0, n, 0.7)
    tall = dice.uniform(0.1, 0.45, n)
    blades = (1.2 / (leaf_size(camera, grass, dice, 4.0, 16.0))).clamp(4.0, 60.0)
    builder.add(
        "card",
        grass,
        vector(0.0, -tall, 0.0),
        vector(0.8 + 0.0 * tall, tall, 1.0),
        None,
        (float(cutouts.GRASS), blades, 1.0, dice.unit(n)),
        p.FOLIAGE,
        clutter.present(dice, n),
    )
    n = 8
    stones = standing(builder, dice, camera, 1.2, 10.0, n, 0.7)
    half = torch.stack([dice.log_uniform(0.05, 0.5, n) for _ in range(3)], -1)
    builder.add(
        "ellipsoid",
        stones,
        torch.zeros(3, device=builder.device),
        half,
        random_rotation(dice, n),
        material=p.any_material(dice, n),
        active=clutter.present(dice, n),
    )
    n = 20
    twigs = standing(builder, dice, camera, 1.2, 8.0, n, 0.7)
    tip = vector(dice.normal(0.0, 0.5, n), -dice.uniform(0.3, 2.5, n), dice.normal(0.0, 0.5, n))
    radius = (
        (twigs.origin - camera.position[:, None]).norm(dim=-1) / camera.focal[:, None] * dice.log_uniform(0.4, 4.0, n)
    )
    builder.bar(twigs, torch.zeros(3, device=builder.device), tip, radius, p.BARK, clutter.present(dice, n), 0.6)
    road_users.person(
        builder, dice, standing(builder, dice, camera, 2.5, 10.0, 1, 0.5), clutter.present(dice, 1, 0.0, 1.0, 0.4)
    )
    clutter.floating(builder, dice, camera, config, 1.0, 8.0, 0.4 * config.floating, config.floating_count)
    thin_things(builder, dice, camera, config, 1.0, 10.0)
    typical = dice.uniform(3.0, 7.0)
    focus = position + camera.rotation[:, 2] * 6.0
    return Setting(camera, typical, focus, torch.full_like(typical, 12.0), True)


def _verge(builder: Builder, dice: Dice, camera: Camera, edge: Tensor) -> None:
    """Hedges and bushes beside a road; `edge` (B, 1) m is signed."""
    n = 2
    long, tall, thick = dice.uniform(1.5, 6.0, n), dice.uniform(0.3, 0.9, n), dice.uniform(0.2, 0.6, n)
    away = torch.sign(edge) * dice.uniform(0.5, 5.0, n)
    hedge = builder.frame(vector(edge + away, -tall, dice.log_uniform(5.0, 40.0, n)))
    builder.add(
        "box",
        hedge,
        vector(0.0 * tall, 0.0, 0.0),
        vector(thick, tall, long),
        material=p.FOLIAGE,
        active=clutter.present(dice, n, 0.0, 1.0, 0.7),
    )
    n = 4
    away = torch.sign(edge) * dice.uniform(0.3, 6.0, n)
    bush = builder.frame(vector(edge + away, 0.0, dice.log_uniform(4.0, 25.0, n)))
    radius = dice.uniform(0.3, 1.1, n)
    leaf = leaf_size(camera, bush, dice, 3.0, 12.0)
    centre = vector(0.0, -0.6 * radius, 0.0)
    plants.crown(builder, dice, bush, centre, radius, leaf, 4, clutter.present(dice, n, 0.0, 1.0, 0.7))


def _treeline(builder: Builder, dice: Dice, camera: Camera, near: float, far: float, n: int) -> None:
    """Ragged green or grey walls that close the horizon."""
    frame = standing(builder, dice, camera, near, far, n, 0.8)
    wide, tall = dice.uniform(0.15, 0.5, n) * near, dice.uniform(0.05, 0.2, n) * near
    heading = torch.atan2(camera.rotation[:, 2, 0], camera.rotation[:, 2, 2])[:, None]
    frame = frame._replace(rotation=yaw_rotation(dice.normal(0.0, 0.3, n) - heading))
    cell = near / camera.focal[:, None] * dice.log_uniform(3.0, 14.0, n)
    mask = torch.where(
        dice.chance(0.6, n), float(cutouts.LEAVES), torch.where(dice.chance(0.5, n), float(cutouts.RAGGED), 0.0)
    )
    material = torch.where(mask > 0.0, p.FOLIAGE, p.any_material(dice, n))
    builder.add(
        "card",
        frame,
        vector(0.0, -tall, 0.0),
        vector(wide, 1.2 * tall, 1.0),
        None,
        (mask, wide / cell, tall / cell, dice.unit(n)),
        material,
        clutter.present(dice, n, 0.0, 1.2),
    )
