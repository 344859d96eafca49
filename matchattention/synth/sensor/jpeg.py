"""The loss of baseline JPEG without the file: 4:2:0 chroma, 8x8 cosine transform, quantisation.

Entropy coding is lossless, so it is left out. Transforms are 64x64 matrix products over whole batches.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 8
# ITU T.81, annex K: the tables nearly every encoder scales by its quality setting.
LUMA_TABLE = (
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip
CHROMA_TABLE = (
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99, 99,
    47, 66, 99, 99, 99, 99, 99, 99, *(99,) * 32,
)  # fmt: skip
# JFIF: full-range Y, Cb, Cr of RGB.
FROM_RGB = ((0.299, 0.587, 0.114), (-0.168735892, -0.331264108, 0.5), (0.5, -0.418687589, -0.081312411))
TO_RGB = ((1.0, 0.0, 1.402), (1.0, -0.344136286, -0.714136286), (1.0, 1.772, 0.0))


class _Constants(NamedTuple):
    transform: Tensor  # (64 frequencies, 64 places of a block), orthonormal
    luma_table: Tensor  # (64, 1) steps at quality 50
    chroma_table: Tensor
    from_rgb: Tensor  # (3, 3)
    to_rgb: Tensor


@lru_cache(maxsize=16)
def _constants(device: torch.device) -> _Constants:
    """Kept on the device: a copy from the host inside a CUDA graph's capture would be an error."""
    k = torch.arange(BLOCK, dtype=torch.float64)
    cosine = torch.cos((2 * k[None] + 1) * k[:, None] * torch.pi / (2 * BLOCK)) / 2  # (frequency, place)
    cosine[0] /= 2**0.5

    def table(values: tuple[int, ...]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)[:, None]

    return _Constants(
        torch.kron(cosine, cosine).float().to(device),
        table(LUMA_TABLE),
        table(CHROMA_TABLE),
        torch.tensor(FROM_RGB, device=device),
        torch.tensor(TO_RGB, device=device),
    )


def _tables(quality: Tensor) -> tuple[Tensor, Tensor]:
    """Quantisation steps (N, 64, 1) of luma and chroma at libjpeg's quality (N,) in [1, 100]."""
    constants = _constants(quality.device)
    scale = torch.where(quality < 50, 5000 / quality, 200 - 2 * quality)[:, None, None] / 100
    luma, chroma = (table * scale for table in (constants.luma_table, constants.chroma_table))
    return luma.round().clamp(1, 255), chroma.round().clamp(1, 255)


def _forward(planes: Tensor, table: Tensor) -> Tensor:
    """(N, C, h, w) values to (N, C, 64, h/8, w/8) whole multiples of ``table`` (N or 1, 64, 1)."""
    blocks = F.pixel_unshuffle(planes[:, :, None], BLOCK)  # (N, C, 64, h/8, w/8)
    transform = _constants(planes.device).transform
    return torch.matmul(transform, blocks.flatten(3)).div_(table[:, None]).round_().view_as(blocks)


def _inverse(steps: Tensor, table: Tensor) -> Tensor:
    """Inverse of `_forward` but for the rounding."""
    transform = _constants(steps.device).transform
    blocks = torch.matmul(transform.T, steps.flatten(3) * table[:, None]).view_as(steps)
    return F.pixel_shuffle(blocks, BLOCK)[:, :, 0]


def encode(images: Tensor, quality: Tensor) -> tuple[Tensor, Tensor]:
    """Quantised coefficients of images.

    Args:
        images: (N, 3, H, W) float in [0, 255], RGB, H and W multiples of 16.
        quality: (N,) or (1,) float in [1, 100], as in libjpeg.

    Returns:
        Whole numbers: luma (N, 1, 64, H/8, W/8) and chroma (N, 2, 64, H/16, W/16).
    """
    return _encode(images, *_tables(quality))


def _encode(images: Tensor, luma_table: Tensor, chroma_table: Tensor) -> tuple[Tensor, Tensor]:
    planes = torch.matmul(_constants(images.device).from_rgb, images.flatten(2)).view_as(images)
    luma = _forward(planes[:, :1] - 128, luma_table)
    return luma, _forward(F.avg_pool2d(planes[:, 1:], 2), chroma_table)


def decode(luma: Tensor, chroma: Tensor, quality: Tensor) -> Tensor:
    """Images (N, 3, H, W) in [0, 255] from what `encode` returned; not rounded to whole levels."""
    return _decode(luma, chroma, *_tables(quality))


def _decode(luma: Tensor, chroma: Tensor, luma_table: Tensor, chroma_table: Tensor) -> Tensor:
    colours = _inverse(chroma, chroma_table)
    colours = F.interpolate(colours, scale_factor=2, mode="bilinear", align_corners=False)
    planes = torch.cat([_inverse(luma, luma_table) + 128, colours], dim=1)
    return torch.matmul(_constants(luma.device).to_rgb, planes.flatten(2)).view_as(planes).clamp_(0, 255)


def compress(images: Tensor, quality: Tensor) -> Tensor:
    """What is left of ``images`` after a JPEG file of the given quality.

    Args:
        images: (N, 3, H, W) float in [0, 255], RGB, any size.
        quality: (N,) float in [1, 100], as in libjpeg.

    Returns:
        (N, 3, H, W) float in [0, 255], not rounded to whole levels.
    """
    height, width = images.shape[-2:]
    padded = F.pad(images, (0, -width % 16, 0, -height % 16), mode="replicate")
    tables = _tables(quality)
    return _decode(*_encode(padded, *tables), *tables)[..., :height, :width]
