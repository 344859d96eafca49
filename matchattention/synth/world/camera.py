"""The left camera of a scene and random places in front of it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from matchattention.synth.dice import Dice
from matchattention.synth.world.builder import pitch_rotation, roll_rotation, yaw_rotation
from matchattention.synth.world.config import SceneConfig


class Camera(NamedTuple):
    """A pinhole camera per scene.

    Attributes:
        rotation: (B, 3, 3) world to camera (rows are the camera's axes in the world).
        position: (B, 3) m.
        focal: (B,) px.
        principal: (B, 2) px, (x, y).
        size: height and width, px.
    """

    rotation: Tensor
    position: Tensor
    focal: Tensor
    principal: Tensor
    size: tuple[int, int]

    def scatter(self, dice: Dice, near: float, far: float, *shape: int, margin: float = 1.1) -> tuple[Tensor, Tensor]:
        """Random points that the camera sees: uniform in the image, log-uniform in depth.

        Returns:
            (B, *shape, 3) m in the world and (B, *shape) m of depth.
        """
        height, width = self.size
        depth = dice.log_uniform(near, far, *shape)
        lead = (self.focal.shape[0], *(1,) * len(shape))
        focal = self.focal.reshape(lead)
        x = dice.uniform(-0.5 * margin, 0.5 * margin, *shape) * width * depth / focal
        y = dice.uniform(-0.5 * margin, 0.5 * margin, *shape) * height * depth / focal
        local = torch.stack((x, y, depth), -1)
        rotation = self.rotation.reshape(lead[0], *(1,) * (len(shape) - 1), 3, 3) if len(shape) > 1 else self.rotation
        return self.position.reshape(*lead, 3) + local @ rotation, depth


def aim(
    dice: Dice,
    config: SceneConfig,
    size: tuple[int, int],
    position: Tensor,
    yaw: Tensor,
    pitch: Tensor,
    focal_share: Tensor | None = None,
) -> Camera:
    """A camera at a position looking along yaw and pitch (rad, positive looks down).

    Args:
        focal_share: (B,) focal length over width; drawn from the field of view by default.
    """
    height, width = size
    low, high = (math.radians(a) for a in config.field_of_view)
    drawn = 0.5 / torch.tan(0.5 * dice.uniform(low, high))
    focal = (drawn if focal_share is None else focal_share) * width
    roll = torch.deg2rad(dice.normal(0.0, config.roll)).clamp(-0.3, 0.3)
    rotation = roll_rotation(roll) @ pitch_rotation(pitch) @ yaw_rotation(yaw)
    offset = dice.normal(0.0, config.principal_point, 2).clamp(-0.1, 0.1) * width
    centre = torch.tensor([0.5 * (width - 1), 0.5 * (height - 1)], device=dice.device)
    return Camera(rotation, position, focal, centre + offset * torch.tensor([1.0, 0.5], device=dice.device), size)
