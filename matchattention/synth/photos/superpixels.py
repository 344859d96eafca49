"""Regions that follow the edges of photographs: k-means over colour and place, batched, without atomics."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

COARSE = 8  # px: the clusters are found on an image this much smaller, then every pixel joins one
ITERATIONS = 4
ASSIGN_AT_ONCE = 1 << 24  # distances held at a time: bounds the memory


def _features(images: Tensor, cells: tuple[int, int], compactness: Tensor, wobble: Tensor) -> Tensor:
    """(B, 5, H, W): colour, and wobbling place in cells times compactness."""
    _, _, height, width = images.shape
    y = torch.linspace(0, cells[0], height, device=images.device)[:, None].expand(height, width)
    x = torch.linspace(0, cells[1], width, device=images.device)[None].expand(height, width)
    bend = F.interpolate(wobble, size=(height, width), mode="bicubic", align_corners=True)
    place = (torch.stack([x, y]) + bend) * compactness.view(-1, 1, 1, 1)  # (B, 2, H, W)
    return torch.cat([images, place], dim=1)


def _merge(centres: Tensor, compactness: Tensor, tolerance: Tensor) -> Tensor:
    """(B, K) the least cluster that each cluster joins: neighbours of like colour become one."""
    count = centres.shape[1]
    colour = torch.cdist(centres[..., :3], centres[..., :3])
    place = torch.cdist(centres[..., 3:], centres[..., 3:])
    joined = (colour < tolerance[:, None, None]) & (place < 1.6 * compactness[:, None, None])
    label = torch.arange(count, device=centres.device).expand(centres.shape[0], count)
    for _ in range(count.bit_length() + 1):
        least = torch.where(joined, label[:, None, :], count).amin(2)
        label = torch.minimum(label, torch.gather(least, 1, least.clamp(max=count - 1)))
    return label


def superpixels(
    images: Tensor, cells: tuple[int, int], compactness: Tensor, tolerance: Tensor, wobble: Tensor, smoothing: int = 5
) -> Tensor:
    """Label every pixel with one of at most rows x columns regions.

    A region need not be connected: leaves of one tree may share a label with gaps between them.

    Args:
        images: (B, 3, H, W) float in [0, 1], as displayed.
        cells: rows and columns of the grid that the clusters start from.
        compactness: (B,) weight of place against colour; 0.1 follows every speck, 1 gives rounded cells.
        tolerance: (B,) neighbouring clusters whose mean colours differ less become one region.
        wobble: (B, 2, h, w) coarse displacement in cells, so that cells of empty areas are no squares.
        smoothing: odd width of the mean filter before clustering, px; noise smaller than it makes no regions.

    Returns:
        (B, H, W) uint8.
    """
    batch, _, height, width = images.shape
    smooth = F.avg_pool2d(images, smoothing, stride=1, padding=smoothing // 2, count_include_pad=False)
    full = _features(smooth, cells, compactness, wobble)
    small = F.adaptive_avg_pool2d(full, (max(height // COARSE, cells[0]), max(width // COARSE, cells[1])))
    points = small.flatten(2).transpose(1, 2)  # (B, n, 5)
    centres = F.adaptive_avg_pool2d(small, cells).flatten(2).transpose(1, 2)  # (B, K, 5)
    for _ in range(ITERATIONS):
        nearest = torch.cdist(points, centres).argmin(2)
        member = F.one_hot(nearest, centres.shape[1]).to(points.dtype)  # (B, n, K)
        count = member.sum(1)[..., None]
        mean = torch.bmm(member.transpose(1, 2), points) / count.clamp_min(1)
        centres = torch.where(count > 0, mean, centres)
    region = _merge(centres, compactness, tolerance)
    pixels = full.flatten(2)  # (B, 5, N)
    offset = (centres**2).sum(2)[..., None]
    labels = torch.empty((batch, height * width), dtype=torch.uint8, device=images.device)
    step = max(ASSIGN_AT_ONCE // (centres.shape[1] * batch), 1)
    for first in range(0, height * width, step):
        part = pixels[..., first : first + step]
        # |pixel|² is the same for all centres and does not change the winner.
        distance = torch.baddbmm(offset, centres, part, alpha=-2)
        labels[:, first : first + step] = torch.gather(region, 1, distance.argmin(1)).to(torch.uint8)
    return labels.view(batch, height, width)
