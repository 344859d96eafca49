"""Streets: a road between facades, what stands beside it and who moves on it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from matchattention.synth.dice import Dice
from matchattention.synth.world import clutter, cutouts, plants, road_users, small_things
from matchattention.synth.world import palette as p
from matchattention.synth.world.builder import Builder, Frame, vector, yaw_rotation
from matchattention.synth.world.camera import Camera, aim
from matchattention.synth.world.config import SceneConfig
from matchattention.synth.world.forest import treeline
from matchattention.synth.world.places import Setting, leaf_size, thin_things

FENCES = (
    cutouts.LATTICE,
    cutouts.CHAIN,
    cutouts.SLATS,
    cutouts.GRASS,
)  # grass is a hedge


def street(builder: Builder, dice: Dice, config: SceneConfig, size: tuple[int, int]) -> Setting:
    """A road between facades with cars, poles, trees, people, fences and cables under the sky."""
    position = torch.stack(
        (dice.uniform(-2.5, 2.5), -dice.uniform(1.3, 2.0), torch.zeros(builder.batch, device=builder.device)), -1
    )
    rig = dice.chance(0.6)  # a car's own pair of cameras, as in KITTI, whose baseline is known
    share = torch.where(
        rig, dice.uniform(0.5, 0.75), 0.5 / torch.tan(0.5 * torch.deg2rad(dice.uniform(*config.field_of_view)))
    )
    camera = aim(dice, config, size, position, dice.normal(0.0, 0.12), dice.normal(0.01, 0.03), share)
    half_road = _road(builder, dice)
    for side in (-1.0, 1.0):
        _facades(builder, dice, half_road, side)
        _roadside(builder, dice, camera, config, half_road, side)
    walkers = _traffic(builder, dice, half_road)
    _patches(builder, dice, half_road)
    machines = walkers._replace(origin=walkers.origin + torch.tensor([1.5, 0.0, 1.0]))
    small_things.machine(builder, dice, machines, clutter.present(dice, 3, 0.0, 1.0, 0.4))
    treeline(builder, dice, camera, 40.0, 90.0, 6)
    if config.wires:
        _cables(builder, dice)
    clutter.floating(builder, dice, camera, config, 3.0, 25.0, 0.4 * config.floating, config.floating_count)
    thin_things(builder, dice, camera, config, 3.0, 30.0)
    typical = dice.uniform(8.0, 18.0)
    focus = torch.stack((0.0 * typical, 0.0 * typical - 1.0, 14.0 + 0.0 * typical), -1)
    baseline = torch.where(rig, dice.uniform(0.4, 0.7), torch.nan)
    return Setting(camera, typical, focus, torch.full_like(typical, 26.0), True, baseline)


def _road(builder: Builder, dice: Dice) -> Tensor:
    """The ground and the road's dashes; returns half the road's width, (B, 1) m."""
    zero = torch.zeros((builder.batch, 1), device=builder.device)
    ground = builder.frame(torch.zeros((builder.batch, 1, 3), device=builder.device))
    place, half = vector(zero, zero, zero + 150.0), vector(zero + 220.0, 220.0, 1.0)
    builder.add("card", ground, place, half, builder.upright, material=p.FLOOR)
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
    return half_road


def _facades(builder: Builder, dice: Dice, half_road: Tensor, side: float) -> None:
    """The pavement and the houses of one side; low houses have gable roofs."""
    zero = torch.zeros((builder.batch, 1), device=builder.device)
    kerb = builder.frame(vector(side * (half_road + 2.0), zero, zero + 60.0))
    builder.add("box", kerb, vector(zero, zero, zero), vector(zero + 2.0, 0.12, 90.0), material=p.WALL)
    n = 7
    width = dice.uniform(3.0, 9.0, n)
    z = torch.cumsum(2.0 * width, 1) - width - 8.0 + dice.uniform(0.0, 20.0, 1)
    tall, back = dice.uniform(2.0, 11.0, n), dice.uniform(3.0, 6.0, n)
    x = side * (half_road + 3.5 + dice.uniform(0.0, 3.0, n) + back + dice.uniform(0.0, 8.0, 1))
    material = torch.where(dice.chance(0.6, n), p.FACADE, p.any_material(dice, n))
    built = clutter.present(dice, n, 0.0, 1.3, 0.85)
    middle = vector(0.0 * x, 0.0, 0.0)
    house = builder.frame(vector(x, -tall, z))
    builder.add("box", house, middle, vector(back, tall, width), material=material, active=built)
    # A gable roof: a three-sided prism along the street, one side down (half a radius below its axis).
    ridge = dice.uniform(1.0, 3.0, n)
    roof = builder.frame(vector(x, -2.0 * tall - 0.5 * ridge, z))
    half, tiles = vector(ridge, 1.2 * back, width), p.any_material(dice, n)
    builder.add("prism", roof, middle, half, builder.side_down, (3.0, 0.0), tiles, built & (tall < 5.0))


def _roadside(
    builder: Builder, dice: Dice, camera: Camera, config: SceneConfig, half_road: Tensor, side: float
) -> None:
    """What stands along one side: parked cars, posts, trees, fences, guard rails, hedges."""
    n = 3
    parked = builder.frame(
        vector(side * (half_road - 1.1) + dice.uniform(-0.3, 0.3, n), 0.0, dice.log_uniform(3.5, 45.0, n)),
        yaw_rotation(dice.normal(0.0, 0.06, n)),
        dice.uniform(0.9, 1.3, n),
        moves=True,
    )
    road_users.car(builder, dice, parked, clutter.present(dice, n))
    n = 4
    posts = builder.frame(vector(side * (half_road + 0.5) + 0.0 * dice.unit(n), 0.0, dice.log_uniform(4.0, 50.0, n)))
    road_users.pole(builder, dice, posts, clutter.present(dice, n))
    if config.plants:
        n = 3
        trees = builder.frame(
            vector(side * (half_road + dice.uniform(1.0, 8.0, n)), 0.0, dice.log_uniform(6.0, 40.0, n)),
            yaw_rotation(dice.uniform(-3.1, 3.1, n)),
            dice.uniform(1.0, 2.5, n),
        )
        plants.tree(builder, dice, trees, clutter.present(dice, n), leaf_size(camera, trees, dice, 3.0, 14.0), 8)
    _fences(builder, dice, half_road, side)
    n = 2
    rail = builder.frame(
        vector(side * (half_road + dice.uniform(0.2, 1.0, n)), 0.0, dice.log_uniform(5.0, 30.0, n)),
        yaw_rotation(dice.normal(0.0, 0.03, n)),
    )
    road_users.guard_rail(builder, dice, rail, clutter.present(dice, n, 0.0, 1.0, 0.4))
    if config.plants:
        _verge(builder, dice, camera, side * (half_road + 1.0))


def _fences(builder: Builder, dice: Dice, half_road: Tensor, side: float) -> None:
    """Fences and hedges that are cut out of cards, along one side."""
    n = 3
    length = dice.uniform(2.0, 6.0, n)
    tall = dice.uniform(0.4, 1.2, n)
    fence = builder.frame(
        vector(side * (half_road + dice.uniform(1.0, 4.0, n)), -tall, dice.log_uniform(4.0, 30.0, n)),
        yaw_rotation(0.5 * math.pi + dice.normal(0.0, 0.2, n)),
    )
    cells = dice.uniform(4.0, 14.0, n)
    mask = torch.tensor(FENCES, dtype=torch.float32, device=builder.device)[dice.integer(0, len(FENCES), n)]
    builder.add(
        "card",
        fence,
        vector(0.0 * tall, 0.0, 0.0),
        vector(length, tall, 1.0),
        None,
        (mask, cells * length / tall, cells, dice.unit(n)),
        torch.where(mask == cutouts.GRASS, p.FOLIAGE, p.METAL),
        clutter.present(dice, n, 0.0, 1.0, 0.6),
    )


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


def _traffic(builder: Builder, dice: Dice, half_road: Tensor) -> Frame:
    """Cars ahead, people and bicycles; returns where the people are."""
    n = 3
    ahead = builder.frame(
        vector(half_road * dice.uniform(-0.6, 0.6, n), 0.0, dice.log_uniform(7.0, 60.0, n)),
        yaw_rotation(dice.normal(0.0, 0.15, n)),
        moves=True,
    )
    road_users.car(builder, dice, ahead, clutter.present(dice, n))
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
    return walkers


def _patches(builder: Builder, dice: Dice, half_road: Tensor) -> None:
    """Repairs, puddles and paint on the road."""
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
        (torch.where(dice.chance(0.3, n), float(cutouts.RAGGED), float(cutouts.SOLID)), 3.0, 3.0, dice.unit(n)),
        p.any_material(dice, n),
        clutter.present(dice, n),
    )


def _cables(builder: Builder, dice: Dice) -> None:
    """Overhead wires, along the street or across it."""
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
    radius = dice.log_uniform(0.008, 0.03, n)
    builder.bar(cable, start, end, radius, p.RUBBER, clutter.present(dice, n, 0.0, 1.0, 0.6))
