"""Rolling shutter: every row of a frame is exposed a little after the one above it.

Each pixel's point moves evenly in the image, by its own flow in the time between the frames. A row at the time tau sees
the point where it is by then; where the point's row in the other frame is exposed follows from the same motion in
closed form. Frames are resampled along these motions, and so are the labels; where nothing of the frame lands, because
something in front moved away, there is no label.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

ROUNDS = 6  # of looking for the place that a row sees
FOUND = 0.5  # px by which it may be missed
SMOOTH = 0.5  # px: fields that change less between neighbours are interpolated


class Rolled(NamedTuple):
    """Both frames with their labels; shapes as in `render.Rendered`."""

    image: Tensor
    field: Tensor
    valid: Tensor
    occluded: Tensor


def rolling_shutter(image: Tensor, field: Tensor, valid: Tensor, occluded: Tensor, readout: Tensor) -> Rolled:
    """Expose row after row.

    Args:
        image: (B, 2, 3, H, W) linear light of whole frames.
        field: (B, 2, H, W, 2) px, from each frame to the other one.
        valid: (B, 2, H, W) bool.
        occluded: (B, 2, H, W) bool.
        readout: (B,) time from the first row to the last as a share of the time between frames; negative from below.
    """
    height, width = field.shape[2:4]
    x = torch.arange(width, dtype=torch.float32, device=field.device)
    y = torch.arange(height, dtype=torch.float32, device=field.device)[:, None]
    pixel = torch.stack(torch.broadcast_tensors(x, y), -1)
    slope = (readout / height)[:, None].expand(-1, 2).reshape(-1, 1, 1)  # of the time over the row
    forward = torch.tensor([1.0, -1.0], device=field.device).repeat(len(readout))[:, None, None, None]
    flow = field.flatten(0, 1)  # (2B, H, W, 2)
    late = (slope * (y + 0.5 - 0.5 * height))[..., None]  # (2B, H, 1, 1): when a row is exposed
    moved = pixel.expand_as(flow)
    for _ in range(ROUNDS):
        moved = pixel - forward * _sampled(flow, moved) * late
    here = _sampled(flow, moved)
    missed = (moved + forward * here * late - pixel).norm(dim=-1) > FOUND
    speed = forward * here
    # Row of the match: there = place + speed * time(there), and the time is linear in the row.
    start = moved + here
    dilation = 1.0 - speed[..., 1] * slope
    row = (start[..., 1] + speed[..., 1] * slope * (0.5 - 0.5 * height)) / dilation.clamp(min=0.1)
    time = slope * (row + 0.5 - 0.5 * height)
    there = torch.stack((start[..., 0] + speed[..., 0] * time, row), -1)
    known = _nearest(valid.flatten(0, 1).float()[..., None], moved)[..., 0] > 0.5
    hidden = _nearest(occluded.flatten(0, 1).float()[..., None], moved)[..., 0] > 0.5
    inside = ((there > -0.5) & (there < torch.tensor([width - 0.5, height - 0.5], device=field.device))).all(-1)
    # What left the frame as a whole may be back in it for its row; nobody knows whether something hides it there.
    left_before = ((start < -0.5) | (start > torch.tensor([width - 0.5, height - 0.5], device=field.device))).any(-1)
    known = known & ~missed & (dilation > 0.1) & ~(left_before & inside)
    seen = F.grid_sample(image.flatten(0, 1), _grid(moved), padding_mode="border", align_corners=True)
    shape = field.shape[:2]
    return Rolled(
        seen.unflatten(0, shape),
        torch.where(known[..., None], there - pixel, 0.0).unflatten(0, shape),
        known.unflatten(0, shape),
        (hidden | ~inside).unflatten(0, shape),
    )


def _grid(place: Tensor) -> Tensor:
    height, width = place.shape[1:3]
    return place * 2 / torch.tensor([width - 1, height - 1], device=place.device) - 1


def _nearest(values: Tensor, place: Tensor) -> Tensor:
    """(N, H, W, C) values at (N, H, W, 2) px."""
    planes = values.movedim(-1, 1)
    return F.grid_sample(planes, _grid(place), "nearest", "border", align_corners=True).movedim(1, -1)


def _sampled(flow: Tensor, place: Tensor) -> Tensor:
    """(N, H, W, 2) flow at places, interpolated except across edges."""
    near = _nearest(flow, place)
    smooth = F.grid_sample(flow.movedim(-1, 1), _grid(place), padding_mode="border", align_corners=True).movedim(1, -1)
    return torch.where((smooth - near).norm(dim=-1, keepdim=True) < SMOOTH, smooth, near)
