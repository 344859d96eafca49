"""The second frame of a flow pair: the camera moves, and so do rigid groups of primitives."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from matchattention.synth.builder import Primitives, pitch_rotation, roll_rotation, yaw_rotation
from matchattention.synth.camera import Camera
from matchattention.synth.config import SceneConfig
from matchattention.synth.dice import Dice


class SecondFrame(NamedTuple):
    """Where everything is in the second frame.

    Attributes:
        axes: (B, N, 3, 3) of the primitives, rows are unit axes.
        centre: (B, N, 3) m.
        rotation: (B, 3, 3) world to camera.
        position: (B, 3) m, camera.
    """

    axes: Tensor
    centre: Tensor
    rotation: Tensor
    position: Tensor


def axis_rotation(axis: Tensor, angle: Tensor) -> Tensor:
    """(..., 3, 3) rotation by (...) rad about (..., 3) unit axes, by Rodrigues' formula."""
    x, y, z = axis.unbind(-1)
    zero = torch.zeros_like(x)
    cross = torch.stack((zero, -z, y, z, zero, -x, -y, x, zero), -1).unflatten(-1, (3, 3))
    sine, versine = torch.sin(angle)[..., None, None], (1.0 - torch.cos(angle))[..., None, None]
    return torch.eye(3, device=axis.device) + sine * cross + versine * (cross @ cross)


def _direction(dice: Dice, *shape: int) -> Tensor:
    drawn = torch.stack([dice.normal(0.0, 1.0, *shape) for _ in range(3)], -1)
    return drawn / drawn.norm(dim=-1, keepdim=True).clamp(min=1e-6)


def second_frame(
    dice: Dice, config: SceneConfig, primitives: Primitives, camera: Camera, typical_depth: Tensor, groups: int
) -> SecondFrame:
    """Move each group and the camera by amounts that are log-uniform in the image.

    Args:
        dice: of the scenes.
        config: `motion` in shares of the width, `still`, `turn`.
        primitives: the first frame.
        camera: the first frame's.
        typical_depth: (B,) m, turns the camera's step into pixels.
        groups: number of groups, the still one included.
    """
    low, high = config.motion
    width = camera.size[1]
    step = dice.log_uniform(low, high, groups) * width / camera.focal[:, None]  # m per m of depth
    step = step * (~dice.chance(config.still, groups))
    angle = dice.normal(0.0, config.turn, groups) * (step > 0)
    way, axis = _direction(dice, groups), _direction(dice, groups)
    step[:, 0] = 0.0
    angle[:, 0] = 0.0
    rotation = torch.gather(
        axis_rotation(axis, angle).flatten(2), 1, primitives.group[..., None].expand(-1, -1, 9)
    ).unflatten(-1, (3, 3))
    shift = torch.gather(way * step[..., None], 1, primitives.group[..., None].expand(-1, -1, 3))
    depth = ((primitives.pivot - camera.position[:, None]) @ camera.rotation[:, 2, :, None]).clamp(min=0.2)
    arm = (primitives.centre - primitives.pivot)[..., None, :] @ rotation.transpose(-1, -2)
    centre = primitives.pivot + arm[..., 0, :] + shift * depth
    shake = dice.log_uniform(0.1 * config.turn, config.turn, 3) * torch.where(dice.chance(0.5, 3), 1.0, -1.0)
    turned = roll_rotation(shake[:, 0]) @ pitch_rotation(shake[:, 1]) @ yaw_rotation(shake[:, 2]) @ camera.rotation
    stride = dice.log_uniform(low, high) * width / camera.focal * typical_depth
    return SecondFrame(
        primitives.axes @ rotation.transpose(-1, -2),
        centre,
        turned,
        camera.position + _direction(dice) * stride[:, None],
    )
