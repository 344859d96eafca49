"""Forests."""

from __future__ import annotations

import torch

from matchattention.synth.dice import Dice
from matchattention.synth.world import clutter, cutouts, plants, road_users
from matchattention.synth.world import palette as p
from matchattention.synth.world.builder import Builder, random_rotation, vector, yaw_rotation
from matchattention.synth.world.camera import Camera, aim
from matchattention.synth.world.config import SceneConfig
from matchattention.synth.world.places import Setting, leaf_size, standing, thin_things


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
    treeline(builder, dice, camera, 14.0, 40.0, 8)
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


def treeline(builder: Builder, dice: Dice, camera: Camera, near: float, far: float, n: int) -> None:
    """Ragged green or grey walls that close the horizon."""
    frame = standing(builder, dice, camera, near, far, n, 0.8)
    wide, tall = dice.uniform(0.15, 0.5, n) * near, dice.uniform(0.05, 0.2, n) * near
    heading = torch.atan2(camera.rotation[:, 2, 0], camera.rotation[:, 2, 2])[:, None]
    frame = frame._replace(rotation=yaw_rotation(dice.normal(0.0, 0.3, n) - heading))
    cell = near / camera.focal[:, None] * dice.log_uniform(3.0, 14.0, n)
    leafy = dice.chance(0.6, n)
    other = torch.where(dice.chance(0.5, n), float(cutouts.RAGGED), float(cutouts.SOLID))
    mask = torch.where(leafy, float(cutouts.LEAVES), other)
    material = torch.where(mask != cutouts.SOLID, p.FOLIAGE, p.any_material(dice, n))
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
