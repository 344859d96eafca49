"""The start of a video's next flow: the last one, carried along its own motion.

Things that moved from frame t to t + 1 are taken to go on as they went. Seen from frame t + 1, the motion they made is
the backward field with its sign turned: it stands where they are now, and unlike the forward field shifted there it
leaves no holes. The start of the way back lies in frame t + 2, where they are expected to be; what is uncovered there
takes the motion of its surroundings.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from matchattention.inference.prediction import Prediction, of_tensors
from matchattention.layers.tokens import pixel_grid

_SEEN = 1e-3  # least weight at which a pixel counts as hit
_IN_FRONT = 4  # power of the speed by which what meets at a pixel is weighted: what is near moves faster


def expected_next(last: Prediction) -> Prediction:
    """What a video's next pair may start from: of flow the carried fields, of stereo the same ones."""
    if last.task != "flow":
        return last
    first, back = carried(torch.stack(last.tensors[:2]))
    return of_tensors(last.task, last.tensors._replace(relative_position=first, relative_position_right=back))


def carried(fields: Tensor) -> Tensor:
    """Expected fields of frames t + 1 and t + 2 from those of t and t + 1.

    Args:
        fields: (2, H, W, 2) px: from frame t to t + 1, and back.

    Returns:
        (2, H, W, 2) px: from frame t + 1 to t + 2, and back.
    """
    forward = -fields[1].nan_to_num(0.0, 0.0, 0.0)
    return torch.stack((forward, splat(-forward, forward)))


def splat(values: Tensor, motion: Tensor) -> Tensor:
    """Values put down where a motion takes them; the fastest win where several meet, holes are filled from around.

    Args:
        values: (H, W, C).
        motion: (H, W, 2) px.
    """
    height, width, channels = values.shape
    place = pixel_grid(height, width, motion.device, motion.dtype) + motion
    corner = place.floor()
    share = place - corner
    columns, rows = corner.long().unbind(-1)
    front = (1 + motion.norm(dim=-1)) ** _IN_FRONT
    weighted = values.new_zeros(height * width, channels + 1)
    carried_values = torch.cat((values, torch.ones_like(values[..., :1])), -1)
    for right in (0, 1):
        for below in (0, 1):
            x, y = columns + right, rows + below
            weight = (share[..., 0] - (1 - right)).abs() * (share[..., 1] - (1 - below)).abs()
            weight = weight * front * ((x >= 0) & (x < width) & (y >= 0) & (y < height))
            index = (y.clamp(0, height - 1) * width + x.clamp(0, width - 1)).flatten()
            weighted.index_add_(0, index, (carried_values * weight[..., None]).flatten(0, 1))
    return _without_holes(weighted.view(height, width, -1).movedim(-1, 0)[None])[0].movedim(0, -1)


def _without_holes(weighted: Tensor) -> Tensor:
    """(1, C, H, W) means of (1, C + 1, H, W) weighted sums and weights; where a weight is zero, a coarser mean."""
    sums, weight = weighted[:, :-1], weighted[:, -1:]
    known = weight > _SEEN  # speeds only add to it
    mean = torch.where(known, sums / weight.clamp(min=_SEEN), 0.0)
    height, width = weighted.shape[-2:]
    if max(height, width) == 1 or bool(known.all()):
        return mean
    seen = torch.cat((mean * known, known.to(mean)), 1)
    coarse = _without_holes(F.avg_pool2d(seen, 2, ceil_mode=True, count_include_pad=False))
    wide = F.interpolate(coarse, scale_factor=2, mode="bilinear", align_corners=False)[..., :height, :width]
    return torch.where(known, mean, wide)
