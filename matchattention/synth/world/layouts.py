"""Worlds: where the camera stands and what is around it."""

from __future__ import annotations

import torch

from matchattention.synth.dice import Dice
from matchattention.synth.world import clutter
from matchattention.synth.world import palette as p
from matchattention.synth.world.builder import Builder, pitch_rotation, vector, yaw_rotation
from matchattention.synth.world.camera import aim
from matchattention.synth.world.config import SceneConfig
from matchattention.synth.world.forest import forest
from matchattention.synth.world.indoor import corridor, room, tabletop
from matchattention.synth.world.places import Setting, thin_things
from matchattention.synth.world.street import street
from matchattention.synth.world.tunnel import tunnel


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
    builder.add(
        "card",
        builder.frame(local @ camera.rotation, moves=True),
        torch.zeros(3, device=builder.device),
        vector(reach, reach, 1.0),
        tilt @ camera.rotation[:, None],
        material=torch.tensor([p.BACKDROP, p.WALL, p.CEILING], device=builder.device).expand(builder.batch, n),
        active=active,
    )
    clutter.floating(builder, dice, camera, config, 0.7, 6.0, 1.0, 2 * config.floating_count)
    thin_things(builder, dice, camera, config, 0.8, 6.0)
    typical = dice.uniform(2.0, 4.0)
    return Setting(camera, typical, camera.rotation[:, 2] * 3.0, torch.full_like(typical, 4.0), False)


LAYOUTS = {
    "room": room,
    "corridor": corridor,
    "tabletop": tabletop,
    "street": street,
    "forest": forest,
    "tunnel": tunnel,
    "flying": flying,
}
