"""Rotations about any axis, and back to axis and angle."""

from __future__ import annotations

import torch
from torch import Tensor


def axis_rotation(axis: Tensor, angle: Tensor) -> Tensor:
    """(..., 3, 3) rotation by (...) rad about (..., 3) unit axes, by Rodrigues' formula."""
    x, y, z = axis.unbind(-1)
    zero = torch.zeros_like(x)
    cross = torch.stack((zero, -z, y, z, zero, -x, -y, x, zero), -1).unflatten(-1, (3, 3))
    sine, versine = torch.sin(angle)[..., None, None], (1.0 - torch.cos(angle))[..., None, None]
    return torch.eye(3, device=axis.device) + sine * cross + versine * (cross @ cross)


def axis_and_angle(rotation: Tensor) -> tuple[Tensor, Tensor]:
    """(..., 3) unit axes and (...) rad in [0, pi) of (..., 3, 3) rotations; no axis for no turn."""
    skew = rotation - rotation.transpose(-1, -2)
    vector = 0.5 * torch.stack((skew[..., 2, 1], skew[..., 0, 2], skew[..., 1, 0]), -1)
    sine = vector.norm(dim=-1)
    cosine = 0.5 * (rotation.diagonal(dim1=-2, dim2=-1).sum(-1) - 1.0)
    return vector / sine[..., None].clamp(min=1e-9), torch.atan2(sine, cosine)
