"""Where patches of one image are found in another: quickly at half size, then exactly around the place found.

Normalised cross-correlation, which ignores gain and offset. All patches are searched in one call: each looks into a
strip of its own, which a grouped convolution takes as one channel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

PATCH = 13  # px, of the images as given
_COARSE_PATCH = 9  # px at half size
_GOOD_CORRELATION = 0.8
_UNIQUE = 0.7  # the best place differs at most this much as strongly as the runner-up
_EPSILON = 1e-3  # of a correlation: exact repetitions differ by rounding alone
_NEIGHBOURHOOD = 2  # px at half size around the best place that are no runner-ups
_REFINE = 3  # px around twice the place found at half size


class PatchMatches(NamedTuple):
    """Matches that have no rival.

    Attributes:
        where: (N, 2) as (x, y) in the first image, px.
        offset: (N, 2) as (dx, dy) to the second image, px.
        ratio: (N,) brightness of the second image over the first's.
    """

    where: NDArray[np.float64]
    offset: NDArray[np.float64]
    ratio: NDArray[np.float64]


def match_patches(first: Tensor, second: Tensor, corners: Tensor, reach: tuple[int, int]) -> PatchMatches:
    """Look for the patches around `corners` in another image.

    Args:
        first: (H, W) grey levels.
        second: the same size.
        corners: (N, 2) integer (x, y), each at least half a patch from the border.
        reach: how far to look, (up and down, to both sides), px.
    """
    if len(corners) == 0:
        return PatchMatches(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0))
    small = [F.avg_pool2d(image[None, None], 2, ceil_mode=True)[0, 0] for image in (first, second)]
    coarse = corners // 2
    scores = _scores(small[0], small[1], coarse, coarse, (reach[0] // 2, reach[1] // 2), _COARSE_PATCH)
    peak, row, column = _peak(scores)
    rivals = scores.clone()
    for dy in range(-_NEIGHBOURHOOD, _NEIGHBOURHOOD + 1):
        y = (row + dy).clamp(0, scores.shape[1] - 1)
        for dx in range(-_NEIGHBOURHOOD, _NEIGHBOURHOOD + 1):
            rivals[torch.arange(len(rivals)), y, (column + dx).clamp(0, scores.shape[2] - 1)] = -1
    rival = rivals.flatten(1).amax(1)
    found = torch.stack((column - reach[1] // 2, row - reach[0] // 2), 1) * 2 + corners

    scores = _scores(first, second, corners, found, (_REFINE, _REFINE), PATCH)
    best, row, column = _peak(scores)
    good = (best >= _GOOD_CORRELATION) & (1 - peak + _EPSILON <= _UNIQUE * (1 - rival))
    offset = found - corners + torch.stack((column, row), 1) - _REFINE + _vertex(scores, row, column)
    half = (PATCH // 2, PATCH // 2)
    there = _cut(second, corners + offset.round().long(), half).mean((1, 2))
    ratio = (there + 4) / (_cut(first, corners, half).mean((1, 2)) + 4)
    return PatchMatches(corners[good].double().numpy(), offset[good].double().numpy(), ratio[good].double().numpy())


def _scores(first: Tensor, second: Tensor, at: Tensor, around: Tensor, reach: tuple[int, int], patch: int) -> Tensor:
    """(N, 2 reach + 1 rows, 2 reach + 1 columns) correlations of the patches `at` with places `around`; 0 outside."""
    radius = patch // 2
    templates = _cut(first, at, (radius, radius))
    templates = templates - templates.mean((1, 2), keepdim=True)
    templates = templates / templates.flatten(1).norm(dim=1).clamp(min=1e-3)[:, None, None]
    strips = _cut(second, around, (reach[0] + radius, reach[1] + radius))

    mean, square = box_mean(second, patch), box_mean(second**2, patch)
    inverse = 1 / ((square - mean**2).clamp(min=0) * patch**2).sqrt().clamp(min=1e-6)
    inverse[inverse > 1 / patch] = 0  # flat patches match nothing
    inverse[:radius] = inverse[-radius:] = inverse[:, :radius] = inverse[:, -radius:] = 0  # they hang over the border
    correlation = F.conv2d(strips[None], templates[:, None], groups=len(at))[0]
    return correlation * _cut(inverse, around, reach)


def box_mean(image: Tensor, size: int) -> Tensor:
    """Mean of the `size` x `size` pixels around each pixel of (..., H, W), zeros beyond the border; `size` is odd."""
    radius = size // 2
    total = F.pad(image.double(), (radius + 1, radius, radius + 1, radius)).cumsum(-1).cumsum(-2)
    rows = total[..., size:, :] - total[..., :-size, :]
    return ((rows[..., size:] - rows[..., :-size]) / size**2).float()


def _cut(image: Tensor, centres: Tensor, reach: tuple[int, int]) -> Tensor:
    """(N, 2 reach + 1, 2 reach + 1) pieces of an image around (x, y), zero beyond its border."""
    height, width = image.shape
    rows, columns = 2 * reach[0] + 1, 2 * reach[1] + 1
    padded = F.pad(image, (columns, columns, rows, rows))
    pieces = padded.unfold(0, rows, 1).unfold(1, columns, 1)  # a view: (H + rows + 1, W + columns + 1, rows, columns)
    x, y = centres.unbind(1)
    first_row = (y - reach[0]).clamp(-rows, height) + rows
    return pieces[first_row, (x - reach[1]).clamp(-columns, width) + columns]


def _peak(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value, row and column of the highest score of each patch."""
    peak, place = scores.flatten(1).max(1)
    return peak, place // scores.shape[2], place % scores.shape[2]


def _vertex(scores: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """(N, 2) as (dx, dy) in [-0.5, 0.5]: vertex of the parabolas through each peak and its neighbours."""
    patches = torch.arange(len(scores))
    last_row, last_column = scores.shape[1] - 1, scores.shape[2] - 1
    at = scores[patches, row, column]
    beside = (
        (scores[patches, row, (column - 1).clamp(0)], scores[patches, row, (column + 1).clamp(max=last_column)]),
        (scores[patches, (row - 1).clamp(0), column], scores[patches, (row + 1).clamp(max=last_row), column]),
    )
    inside = ((column > 0) & (column < last_column), (row > 0) & (row < last_row))
    steps = []
    for (before, after), known in zip(beside, inside):
        curvature = before - 2 * at + after
        step = (0.5 * (before - after) / curvature.clamp(max=-1e-6)).clamp(-0.5, 0.5)
        steps.append(torch.where(known & (curvature < 0), step, 0))
    return torch.stack(steps, 1)
