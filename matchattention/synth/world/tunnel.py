"""Tunnels and underpasses: dark walls, rows of equal lamps, and a bright exit far ahead."""

from __future__ import annotations

import torch

from matchattention.synth.dice import Dice
from matchattention.synth.world import clutter, road_users
from matchattention.synth.world import palette as p
from matchattention.synth.world.builder import Builder, vector, yaw_rotation
from matchattention.synth.world.camera import aim
from matchattention.synth.world.config import SceneConfig
from matchattention.synth.world.forest import treeline
from matchattention.synth.world.places import Setting, thin_things

_LAMPS = 12
_RIBS = 8


def tunnel(builder: Builder, dice: Dice, config: SceneConfig, size: tuple[int, int]) -> Setting:
    """A road through a dark tube with cars in it, as a car's own cameras see it."""
    zero = torch.zeros((builder.batch, 1), device=builder.device)
    position = torch.cat((dice.uniform(-2.0, 2.0, 1), -dice.uniform(1.3, 2.0, 1), zero), -1)
    camera = aim(dice, config, size, position, dice.normal(0.0, 0.1), dice.normal(0.01, 0.03), dice.uniform(0.5, 0.75))
    half, high = dice.uniform(3.5, 6.5, 1), dice.uniform(4.0, 6.5, 1)
    length = dice.log_uniform(15.0, 90.0, 1)  # m from the camera to the exit
    world = builder.frame(torch.zeros((builder.batch, 1, 3), device=builder.device))
    ground = vector(zero + 200.0, 200.0, 1.0)
    builder.add("card", world, vector(zero, zero, zero + 150.0), ground, builder.upright, material=p.FLOOR)
    middle, reach = 0.5 * (length - 20.0), 0.5 * (length + 20.0)
    roof = vector(half, reach, 1.0)
    builder.add("card", world, vector(zero, -high, middle), roof, builder.upright, material=p.RUBBER)
    sooty = torch.where(dice.chance(0.6, 1), p.RUBBER, p.WALL)
    for side in (-1.0, 1.0):
        wall = vector(reach, 0.5 * high, 1.0)
        place = vector(side * half, -0.5 * high, middle)
        builder.add("card", world, place, wall, builder.on_wall, material=sooty)
        pavement = vector(0.4 + zero, 0.12, reach)
        builder.add("box", world, vector(side * (half - 0.4), zero, middle), pavement, material=p.WALL)
    # Rows of what is all alike: a match is easily one lamp or one rib off.
    spaced = torch.arange(_LAMPS, device=builder.device) * dice.uniform(3.0, 9.0, 1) + dice.uniform(1.0, 4.0, 1)
    lamps = builder.frame(vector((half * dice.uniform(-0.8, 0.8, 1)).expand_as(spaced), -high + 0.12, spaced))
    glowing = (spaced < length) & dice.chance(0.8, 1)
    lamp = vector(0.08 + 0.0 * spaced, 0.05, dice.uniform(0.2, 0.8, 1).expand_as(spaced))
    builder.add("box", lamps, torch.zeros(3, device=builder.device), lamp, material=p.LAMP, active=glowing)
    along = torch.arange(_RIBS, device=builder.device) * dice.uniform(3.0, 8.0, 1) + 2.0
    for side in (-1.0, 1.0):
        ribs = builder.frame(vector(side * (half - 0.1).expand_as(along), (-0.5 * high).expand_as(along), along))
        rib = vector(0.1 + 0.0 * along, (0.5 * high).expand_as(along), 0.15)
        standing = (along < length) & clutter.present(dice, 1, 0.0, 1.0)
        builder.add("box", ribs, torch.zeros(3, device=builder.device), rib, material=p.CEILING, active=standing)
    n = 4
    ahead = builder.frame(
        vector(half * dice.uniform(-0.6, 0.6, n), 0.0, dice.log_uniform(6.0, 50.0, n)),
        yaw_rotation(dice.normal(0.0, 0.08, n)),
        moves=True,
    )
    road_users.car(builder, dice, ahead, clutter.present(dice, n))
    treeline(builder, dice, camera, 100.0, 180.0, 6)
    thin_things(builder, dice, camera, config, 3.0, 20.0)
    typical = dice.uniform(6.0, 14.0)
    focus = torch.stack((0.0 * typical, 0.0 * typical - 1.0, 10.0 + 0.0 * typical), -1)
    baseline = torch.where(dice.chance(0.6), dice.uniform(0.4, 0.7), torch.nan)
    gloom = dice.log_uniform(0.06, 0.7)
    return Setting(camera, typical, focus, torch.full_like(typical, 20.0), True, baseline, gloom)
