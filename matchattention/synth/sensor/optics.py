"""Light on its way to the sensor: smooth gains, dust, and a separable point spread per view and channel."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

TAP_RADIUS = 7  # px on either side: room for a streak of 9 px or a blur of 2.5 px
COARSE = 4  # px per cell of the smooth fields, which are composed small and enlarged once
LIGHT_CELLS = (3, 4)  # knots of the uneven light, rows x columns: only slow changes
DUST, SMUDGES = 4, 2  # blobs per view
BLOB_DRAWS = 3 * (DUST + SMUDGES)
GHOSTS = 7  # of a light inside a lens
GLARE_DRAWS = 3 + 3 * GHOSTS


@lru_cache(maxsize=16)
def _tap_places(device: torch.device) -> Tensor:
    return torch.arange(-TAP_RADIUS, TAP_RADIUS + 1, device=device, dtype=torch.float32)


def line_taps(blur: Tensor, streak: Tensor, shift: Tensor) -> Tensor:
    """Weights of a one-dimensional filter: a box (the streak, at least one pixel) blurred by a Gaussian.

    Zero blur, streak and shift give a single one in the middle, so that such samples pass unchanged. A
    fractional shift interpolates linearly.

    Args:
        blur: (N,) standard deviation, px.
        streak: (N,) length, px.
        shift: (N,) displacement towards larger coordinates, px.

    Returns:
        (N, 15) taps that sum to one.
    """
    places = _tap_places(blur.device)
    scale = blur.clamp_min(1e-3)[:, None] * 2**0.5
    half = (streak / 2).clamp_min(0.5)[:, None]
    whole = shift.floor()
    fraction = (shift - whole)[:, None]
    taps = torch.zeros_like(places)
    for start, weight in ((whole, 1 - fraction), (whole + 1, fraction)):
        # conv2d correlates: content moves right when the tap to the left of the middle carries the weight.
        distance = places + start[:, None]
        taps = taps + weight * (torch.erf((distance + half) / scale) - torch.erf((distance - half) / scale))
    return taps / taps.sum(1, keepdim=True)


def spread(images: Tensor, columns: Tensor, rows: Tensor) -> Tensor:
    """Filter each channel of each image along x, then along y, repeating the border.

    Args:
        images: (N, C, H, W).
        columns: (N * C, taps) weights along x.
        rows: (N * C, taps) weights along y.
    """
    planes = images.flatten(0, 1)[None]  # (1, N*C, H, W)
    groups = planes.shape[1]
    planes = F.pad(planes, (TAP_RADIUS, TAP_RADIUS, TAP_RADIUS, TAP_RADIUS), mode="replicate")
    planes = F.conv2d(planes, columns[:, None, None, :], groups=groups)
    planes = F.conv2d(planes, rows[:, None, :, None], groups=groups)
    return planes.view_as(images)


@lru_cache(maxsize=16)
def _grid(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Pixel coordinates (rows, 1) and (1, columns) of the coarse cells' centres."""
    y = (torch.arange(-(-height // COARSE), device=device) + 0.5) * COARSE
    x = (torch.arange(-(-width // COARSE), device=device) + 0.5) * COARSE
    return y[:, None], x[None]


@lru_cache(maxsize=16)
def _squared_radius(height: int, width: int, device: torch.device) -> Tensor:
    """(h, w) of the coarse cells: 0 at the centre, 1 in the corners."""
    y, x = _grid(height, width, device)
    return ((2 * x - width) ** 2 + (2 * y - height) ** 2) / (width**2 + height**2)


def smooth_gain(vignetting: Tensor, light: Tensor, knots: Tensor, height: int, width: int) -> Tensor:
    """Gain over the image from vignetting and uneven light.

    Args:
        vignetting: (N,) fraction lost in the corner.
        light: (N,) natural log of the gain at a knot of one.
        knots: (N, 3, 4) in [-1, 1].

    Returns:
        (N, h, w) on the coarse grid.
    """
    radius = _squared_radius(height, width, vignetting.device)
    field = F.interpolate(knots[:, None], size=radius.shape, mode="bicubic", align_corners=True)[:, 0]
    return (1 - vignetting.clamp(0, 0.95)[:, None, None] * radius) * torch.exp(light[:, None, None] * field)


def blobs(uniform: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Coverage in [0, 1] of dust (small, sharper) and of smudges (large, soft).

    Args:
        uniform: (18, N) numbers in [0, 1): places and sizes.

    Returns:
        Two (N, h, w) tensors on the coarse grid.
    """
    y, x = _grid(height, width, uniform.device)
    row, column, size = uniform.T.view(-1, 3, DUST + SMUDGES, 1, 1).unbind(1)  # (N, blobs, 1, 1) each
    radius = 6 * torch.exp(size * 1.9)  # px: 6 … 40
    radius = torch.cat([radius[:, :DUST], 4 * radius[:, DUST:]], dim=1)
    distance = ((y - row * height) ** 2 + (x - column * width) ** 2) / radius**2
    dust = torch.exp(-(distance[:, :DUST] ** 2)).amax(1)
    smudge = torch.exp(-distance[:, DUST:]).amax(1)
    return dust, smudge


def glare(uniform: Tensor, height: int, width: int) -> Tensor:
    """Light that a bright source scatters inside the lens: a glow around it, and ghosts of the six-sided aperture.

    Ghosts lie on the line through the source and the image's centre. The source may be outside of the image.

    Args:
        uniform: (24, N) numbers in [0, 1): direction and distance of the source, the aperture's turn, and of each
            ghost its place on the line, size and brightness.

    Returns:
        (N, h, w) in [0, 1] on the coarse grid.
    """
    y, x = _grid(height, width, uniform.device)
    x, y = x / width - 0.5, (y - 0.5 * height) / width
    angle, distance, turn = uniform[:3, :, None, None, None].unbind(0)  # (N, 1, 1, 1) each
    angle, distance = 2 * math.pi * angle, 0.7 * distance
    source_x, source_y = distance * torch.cos(angle), distance * torch.sin(angle)
    glow = torch.exp(((x - source_x).square() + (y - source_y).square()) / -0.09)  # reaches a third of the width
    place, size, brightness = uniform[3:].T.view(-1, 3, GHOSTS, 1, 1).unbind(1)  # (N, ghosts, 1, 1) each
    place = 2.4 * place - 1.4  # of the way from the centre to the source
    x, y = x - place * source_x, y - place * source_y
    sides = (turn[..., None] + torch.arange(3, device=turn.device)) * (math.pi / 3)
    across = (x[..., None] * torch.cos(sides) + y[..., None] * torch.sin(sides)).abs().amax(-1)
    inside = across < 0.008 * torch.exp(2.4 * size)  # of the width: 1 to 9 %
    return (0.5 * glow[:, 0] + (inside * brightness.square()).sum(1)).clamp(max=1.0)


def enlarge(field: Tensor, height: int, width: int) -> Tensor:
    """Coarse (N, C, h, w) to (N, C, height, width)."""
    full = F.interpolate(field, scale_factor=COARSE, mode="bilinear", align_corners=False)
    return full[..., :height, :width]
