"""The second frame of a flow pair: the camera steps, turns and zooms, and groups go their own ways, limbs swinging.

Sizes of motions are log-uniform in the image, from nearly none to a fifth of the width, because real pairs hold both
(docs/scenes.md). On roads the camera drives and traffic keeps to its lanes; elsewhere a step is often compensated
by a turn, as by anyone who films something.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from matchattention.synth.dice import Dice
from matchattention.synth.world.articulation import swung
from matchattention.synth.world.builder import Primitives, pitch_rotation, roll_rotation, yaw_rotation
from matchattention.synth.world.camera import Camera
from matchattention.synth.world.config import SceneConfig
from matchattention.synth.world.rotations import axis_rotation

ROADS = ("street", "tunnel")
DRIVEN = 0.75  # share of their pairs taken from a moving car
STRIDE = (0.04, 2.2)  # m between two frames of a car or its camera
_AHEAD = torch.tensor([0.0, 0.0, 1.0])
CAMERA_LEAST = 6.0  # how much more than groups a camera moves at least, if it moves: hands and wheels do
IN_LANE = 0.6  # share of a road's groups that go along it


class SecondFrame(NamedTuple):
    """Where everything is in the second frame.

    Attributes:
        axes: (B, N, 3, 3) of the primitives, rows are unit axes.
        centre: (B, N, 3) m.
        rotation: (B, 3, 3) world to camera.
        position: (B, 3) m, camera.
        zoom: (B,) focal length over the first frame's.
        shutter: (B,) share of the time between the frames that the shutter is open.
        readout: (B,) share of the time between the frames from the first row's exposure to the last's; zero for a
            global shutter.
    """

    axes: Tensor
    centre: Tensor
    rotation: Tensor
    position: Tensor
    zoom: Tensor
    shutter: Tensor
    readout: Tensor


def second_frame(
    dice: Dice,
    config: SceneConfig,
    primitives: Primitives,
    camera: Camera,
    typical_depth: Tensor,
    groups: int,
    layout: str,
) -> SecondFrame:
    """Move each group and the camera.

    Args:
        dice: of the scenes.
        config: `motion` in shares of the width, `still`, `turn`, `camera_roll`, `limbs`,
            `camera_still`, `zoom`, `blur`, `rolling`.
        primitives: the first frame.
        camera: the first frame's.
        typical_depth: (B,) m, turns the camera's step into pixels.
        groups: number of groups, the still one included.
        layout: name of the scenes' layout.
    """
    axes, centre = _move_groups(dice, config, primitives, camera, groups, layout in ROADS)
    rotation, position = _move_camera(dice, config, camera, typical_depth, layout in ROADS)
    zoomed = _signed(dice, dice.log_uniform(0.004, 0.15)) * dice.chance(config.zoom)
    quiet = dice.chance(config.camera_still)
    share, low, high = config.blur
    return SecondFrame(
        axes,
        centre,
        torch.where(quiet[:, None, None], camera.rotation, rotation),
        torch.where(quiet[:, None], camera.position, position),
        torch.where(quiet, 1.0, torch.exp(zoomed)),
        dice.chance(share) * dice.uniform(low, high),
        dice.chance(config.rolling[0]) * _signed(dice, dice.uniform(0.1, config.rolling[1])),
    )


def _direction(dice: Dice, *shape: int) -> Tensor:
    drawn = torch.stack([dice.normal(0.0, 1.0, *shape) for _ in range(3)], -1)
    return _unit(drawn)


def _unit(vectors: Tensor) -> Tensor:
    return vectors / vectors.norm(dim=-1, keepdim=True).clamp(min=1e-6)


def _signed(dice: Dice, size: Tensor) -> Tensor:
    return size * torch.where(dice.chance(0.5, *size.shape[1:]), 1.0, -1.0)


def _move_groups(
    dice: Dice, config: SceneConfig, primitives: Primitives, camera: Camera, groups: int, road: bool
) -> tuple[Tensor, Tensor]:
    """Axes (B, N, 3, 3) and centres (B, N, 3) of all primitives in the second frame."""
    low, high = config.motion
    # A step is so many shares of the width where the group stands: m per m of depth.
    step = dice.log_uniform(low, high, groups) * camera.size[1] / camera.focal[:, None]
    moving = ~dice.chance(config.still, groups)
    moving[:, 0] = False
    way = _direction(dice, groups)
    level = dice.chance(0.5, groups)  # things that stand on the ground stay on it
    way = _unit(torch.where(level[..., None], way * torch.tensor([1.0, 0.0, 1.0], device=way.device), way))
    axis = _direction(dice, groups)
    upright = torch.tensor([0.0, 1.0, 0.0], device=axis.device)
    axis = torch.where(level[..., None], upright, axis)
    turn = _signed(dice, dice.log_uniform(0.003, config.turn, groups)) * dice.chance(0.6, groups)
    lane = dice.chance(IN_LANE, groups) & road
    metres = dice.log_uniform(*STRIDE, groups)
    along = _signed(dice, torch.ones_like(metres))
    heading = dice.normal(0.0, 0.06, groups)
    driven = torch.stack((along * torch.sin(heading), torch.zeros_like(along), along * torch.cos(heading)), -1)
    turn = torch.where(lane, dice.normal(0.0, 0.03, groups) * metres.clamp(max=1.0), turn) * moving
    axis = torch.where(lane[..., None], upright, axis)

    def of_parts(values: Tensor) -> Tensor:
        """(B, groups, ...) to each primitive's own."""
        flat = values.flatten(2) if values.dim() > 2 else values[..., None]
        return torch.gather(flat, 1, primitives.group[..., None].expand(-1, -1, flat.shape[-1]))

    depth = ((primitives.pivot - camera.position[:, None]) @ camera.rotation[:, 2, :, None]).clamp(min=0.2)
    own = of_parts(way * (step * moving)[..., None]) * depth
    shift = torch.where(of_parts(lane) > 0, of_parts(driven * (metres * moving)[..., None]), own)
    rotation = of_parts(axis_rotation(axis, turn)).unflatten(-1, (3, 3))
    axes, centre = swung(dice, primitives, moving & dice.chance(config.limbs[0], groups), config.limbs[1])
    arm = (centre - primitives.pivot)[..., None, :] @ rotation.transpose(-1, -2)
    return axes @ rotation.transpose(-1, -2), primitives.pivot + arm[..., 0, :] + shift


def _move_camera(
    dice: Dice, config: SceneConfig, camera: Camera, typical_depth: Tensor, road: bool
) -> tuple[Tensor, Tensor]:
    """Rotation (B, 3, 3) and position (B, 3) m of the second frame's camera."""
    low, high = config.motion
    tangent = camera.size[1] / camera.focal  # of a whole width
    # Hand-held: a step to any side or ahead. A step ahead moves the borders half as much as it shortens the depth.
    # Steps and turns share one size: both at their largest would leave no match in the frame.
    size, stepped = dice.log_uniform(CAMERA_LEAST * low, high), dice.uniform(-0.3, 1.3).clamp(0.0, 1.0)
    share = size * stepped
    ahead = dice.chance(0.35)
    way = _direction(dice)
    way = torch.where(ahead[:, None], _unit(way * 0.25 + _signed(dice, torch.ones_like(share))[:, None] * _AHEAD), way)
    step = way * (share * torch.where(ahead, 2.0, tangent) * typical_depth)[:, None]  # camera axes, m
    course = dice.uniform(0.0, 2.0 * math.pi)
    turns = torch.stack((torch.cos(course), 0.6 * torch.sin(course)), -1) * (size * (1.0 - stepped) * tangent)[:, None]
    roll = _signed(dice, dice.log_uniform(0.001, config.camera_roll)) * dice.chance(0.35)
    # Where one filmed something on the way, the camera follows it.
    target = torch.stack((-step[:, 0], -step[:, 1], typical_depth - step[:, 2]), -1)
    follow = dice.chance(0.4) * dice.uniform(0.5, 1.1)
    if road:
        driven = dice.chance(DRIVEN)
        stride = dice.log_uniform(*STRIDE) * torch.where(dice.chance(0.95), 1.0, -1.0)
        # Driving along the road means along the camera's view, kept level; the turn follows the wheels.
        forward = camera.rotation[:, 2] * torch.tensor([1.0, 0.0, 1.0], device=share.device)
        drive = (camera.rotation @ (_unit(forward) * stride[:, None])[..., None])[..., 0]
        step = torch.where(driven[:, None], drive, step)
        wheel = dice.normal(0.0, 0.035) * stride.abs().clamp(0.1, 1.5)
        shake = dice.normal(0.0, 0.004)
        turns = torch.where(driven[:, None], torch.stack((wheel, shake), -1), turns)
        roll = torch.where(driven, dice.normal(0.0, 0.003), roll)
        follow = follow * ~driven
    distance = target.norm(dim=-1).clamp(min=1e-3)
    axis = _unit(torch.linalg.cross(target, _AHEAD.to(target).expand_as(target)) + 1e-9)
    angle = torch.atan2(target[:, :2].norm(dim=-1), target[:, 2]).clamp(max=0.5 * math.pi) * follow
    followed = axis_rotation(axis, angle * (distance > 1e-3))
    rotation = roll_rotation(roll) @ pitch_rotation(turns[:, 1]) @ yaw_rotation(turns[:, 0]) @ followed
    position = camera.position + (step[:, None] @ camera.rotation)[:, 0]
    return rotation @ camera.rotation, position
