"""Where everything is at any moment of a flow pair, not only in its two frames.

Bodies and camera turn evenly about one axis and go on evenly, so that each part draws the arc that it draws in the
world. Moment 0 is the first frame, moment 1 the second; a shutter looks a little before and after either.
"""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth.world.builder import Primitives
from matchattention.synth.world.motion import SecondFrame
from matchattention.synth.world.rotations import axis_and_angle, axis_rotation


def solids_at(primitives: Primitives, second: SecondFrame, moment: Tensor) -> tuple[Tensor, Tensor]:
    """Axes (B, V, N, 3, 3) and centres (B, V, N, 3) m of the primitives at moments (B, V)."""
    turn = second.axes.transpose(-1, -2) @ primitives.axes  # world rotation of each part over the whole time
    axis, angle = axis_and_angle(turn)
    arm = primitives.centre - primitives.pivot
    shift = second.centre - primitives.pivot - (turn @ arm[..., None])[..., 0]
    when = moment[:, :, None]
    partial = axis_rotation(axis[:, None], angle[:, None] * when)  # (B, V, N, 3, 3)
    centre = primitives.pivot[:, None] + (partial @ arm[:, None, ..., None])[..., 0] + shift[:, None] * when[..., None]
    return primitives.axes[:, None] @ partial.transpose(-1, -2), centre


def camera_at(
    rotation: Tensor, position: Tensor, lens: Tensor, second: SecondFrame, moment: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The camera at moments (B, V): rotations (B, V, 3, 3), positions (B, V, 3) m, lenses (B, V, 3) px.

    Args:
        rotation: (B, 3, 3) world to camera in the first frame.
        position: (B, 3) m.
        lens: (B, 3) px: focal length and principal point.
        second: the second frame.
        moment: (B, V).
    """
    axis, angle = axis_and_angle(second.rotation @ rotation.transpose(-1, -2))
    partial = axis_rotation(axis[:, None], angle[:, None] * moment)
    where = position[:, None] + (second.position - position)[:, None] * moment[..., None]
    focal = lens[:, None, :1] * (second.zoom[:, None] ** moment)[..., None]
    lenses = torch.cat((focal, lens[:, None, 1:].expand(-1, moment.shape[1], -1)), -1)
    return partial @ rotation[:, None], where, lenses.contiguous()
