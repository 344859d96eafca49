"""What layouts share: where things stand in front of the camera, and what every scene may have."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from matchattention.synth.dice import Dice
from matchattention.synth.world import clutter
from matchattention.synth.world.builder import Builder, Frame, vector, yaw_rotation
from matchattention.synth.world.camera import Camera
from matchattention.synth.world.config import SceneConfig


class Setting(NamedTuple):
    """What a layout decides besides its primitives.

    Attributes:
        camera: the left view.
        typical_depth: (B,) m, sets the scale of textures.
        focus: (B, 3) m, where the light looks.
        extent: (B,) m, radius of the part of the world that matters.
        outdoor: sun and sky instead of lamps.
        baseline: (B,) m or None: fixed by the rig; otherwise it follows from the drawn disparity.
        gloom: (B,) or None: factor on exposure where a place is darker than a camera can make up for.
    """

    camera: Camera
    typical_depth: Tensor
    focus: Tensor
    extent: Tensor
    outdoor: bool
    baseline: Tensor | None = None
    gloom: Tensor | None = None


def standing(builder: Builder, dice: Dice, camera: Camera, near: float, far: float, n: int, spread: float) -> Frame:
    """Places on the ground in front of the camera, log-uniform in distance, any yaw; `spread` widens the sector."""
    distance = dice.log_uniform(near, far, n)
    angle = dice.uniform(-spread, spread, n)
    forward = camera.rotation[:, 2]
    heading = torch.atan2(forward[:, 0], forward[:, 2])[:, None] + angle
    x = camera.position[:, :1] + distance * torch.sin(heading)
    z = camera.position[:, 2:] + distance * torch.cos(heading)
    return builder.frame(vector(x, 0.0, z), yaw_rotation(dice.uniform(-math.pi, math.pi, n)), moves=True)


def leaf_size(camera: Camera, frame: Frame, dice: Dice, low: float, high: float) -> Tensor:
    """(B, n) m: size of a leaf that is `low` to `high` px wide where the group stands."""
    n = frame.origin.shape[1]
    distance = (frame.origin - camera.position[:, None]).norm(dim=-1)
    return distance / camera.focal[:, None] * dice.log_uniform(low, high, n) / frame.scale


def thin_things(builder: Builder, dice: Dice, camera: Camera, config: SceneConfig, near: float, far: float) -> None:
    """Cut-outs, foliage, wires and glass in front of the camera, and what its margin cuts."""
    clutter.beside(builder, dice, camera, near, 0.3 * far, config.beside)
    if config.panes > 0:
        clutter.panes(builder, dice, camera, near, 0.4 * far, config.panes)
    if config.cards:
        clutter.cards(builder, dice, camera, near, far, 0.5 * config.thin, 14)
    if config.plants:
        clutter.hanging(builder, dice, camera, near, far, 0.3 * config.thin, 5)
    if config.wires:
        clutter.wires(builder, dice, camera, near, far, 0.45 * config.thin, 24)
