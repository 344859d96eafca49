"""Where every pixel's point appears in the other view, and whether it is seen there."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from matchattention.synth.rays.tables import MISS


class Match(NamedTuple):
    """Correspondence of both views.

    Attributes:
        field: (B, 2, H, W, 2) px, offset from a pixel to its match in the other view.
        depth: (B, 2, H, W) m, depth of the point in the other view, `MISS` for the sky.
    """

    field: Tensor
    depth: Tensor


@cache
def _towards_other(device: torch.device) -> Tensor:
    """(1, 2, 1, 1) direction of a stereo match along x: left from the left view, right from the right one."""
    return torch.tensor([-1.0, 1.0], device=device)[None, :, None, None]


def stereo_match(depth: Tensor, focal: Tensor, baseline: Tensor) -> Match:
    """Disparity f B / Z exactly; the sky has none.

    Args:
        depth: (B, 2, H, W) m.
        focal: (B,) px.
        baseline: (B,) m.
    """
    scale = (focal * baseline)[:, None, None, None]
    shift = _towards_other(depth.device) * torch.where(depth < 0.5 * MISS, scale / depth, 0.0)
    return Match(torch.stack((shift, torch.zeros_like(shift)), -1), depth)


def rigid_match(
    depth: Tensor, hit: Tensor, lens: Tensor, axes: Tensor, centre: Tensor, rotation: Tensor, position: Tensor
) -> Match:
    """Follow each point with the rigid body it lies on.

    Args:
        depth: (B, 2, H, W) m.
        hit: (B, 2, H, W) int32 slot of the body, -1 for the sky.
        lens: (B, 2, 3) px: focal length and principal point in each frame.
        axes: (B, 2, N, 3, 3) unit axes of the bodies in each frame, world.
        centre: (B, 2, N, 3) m.
        rotation: (B, 2, 3, 3) world to camera.
        position: (B, 2, 3) m.
    """
    height, width = depth.shape[-2:]
    turn = torch.einsum("bvij,bvnkj->bvnki", rotation, axes)  # rows: body axes in the camera
    place = torch.einsum("bvij,bvnj->bvni", rotation, centre - position[:, :, None])
    across = turn.flip(1).transpose(-1, -2) @ turn  # (B, 2, N, 3, 3): camera v to the other camera
    offset = place.flip(1) - (across @ place[..., None])[..., 0]
    # The sky is a body at infinity: it only turns.
    across = torch.cat((across, (rotation.flip(1) @ rotation.transpose(-1, -2))[:, :, None]), 2)
    offset = torch.cat((offset, torch.zeros_like(offset[:, :, :1])), 2)
    sky = hit < 0
    slot = torch.where(sky, across.shape[2] - 1, hit).long().flatten(2)  # (B, 2, HW)
    focal, cx, cy = (column[..., None, None] for column in lens.unbind(-1))
    x = torch.arange(width, dtype=torch.float32, device=depth.device).expand(height, width)
    y = torch.arange(height, dtype=torch.float32, device=depth.device)[:, None].expand(height, width)
    reach = torch.where(sky, 1.0, depth)
    point = torch.stack(((x - cx) / focal * reach, (y - cy) / focal * reach, reach), -1).flatten(2, 3)  # (B, 2, HW, 3)
    moved = torch.stack(
        [
            (torch.gather(across[..., k, :], 2, slot[..., None].expand(*slot.shape, 3)) * point).sum(-1)
            + torch.gather(offset[..., k], 2, slot)
            for k in range(3)
        ],
        -1,
    ).reshape(*depth.shape, 3)
    far = moved[..., 2].clamp(min=1e-4)
    other, other_x, other_y = (part.flip(1) for part in (focal, cx, cy))
    field = torch.stack((other * moved[..., 0] / far + other_x - x, other * moved[..., 1] / far + other_y - y), -1)
    behind = moved[..., 2] < 0.02
    return Match(torch.where(behind[..., None], torch.nan, field), torch.where(sky, MISS, moved[..., 2]))
