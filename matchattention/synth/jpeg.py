"""The loss of baseline JPEG without the file: 4:2:0 chroma, 8x8 cosine transform, quantisation.

Entropy coding is lossless, so it is left out. Transforms are 64x64 matrix products over whole batches.
"""

from __future__ import annotations

from functools import lru_cache

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


@lru_cache(maxsize=16)
def _constants(device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Kept on the device: a copy from the host inside a CUDA graph's capture would be an error."""
    k = torch.arange(BLOCK, dtype=torch.float64)
    cosine = torch.cos((2 * k[None] + 1) * k[:, None] * torch.pi / (2 * BLOCK)) / 2  # (frequency, place)
    cosine[0] /= 2**0.5
    transform = torch.kron(cosine, cosine).float()  # (64 frequencies, 64 places of a block), orthonormal
    tables = (torch.tensor(table, dtype=torch.float32)[:, None] for table in (LUMA_TABLE, CHROMA_TABLE))
    matrices = (torch.tensor(matrix) for matrix in (FROM_RGB, TO_RGB))
    luma, chroma = tables
    from_rgb, to_rgb = matrices
    return (
        transform.to(device), luma.to(device), chroma.to(device), from_rgb.to(device), to_rgb.to(device)
    )  # fmt: skip


def _quantise(plane: Tensor, table: Tensor, transform: Tensor) -> Tensor:
    """Transform, round to multiples of ``table`` and back. plane (N, 1, h, w), table (N, 64, 1)."""
    blocks = F.pixel_unshuffle(plane, BLOCK)  # (N, 64, h/8, w/8)
    steps = torch.matmul(transform, blocks.flatten(2)).div_(table).round_().mul_(table)
    return F.pixel_shuffle(torch.matmul(transform.T, steps).view_as(blocks), BLOCK)


def compress(images: Tensor, quality: Tensor) -> Tensor:
    """What is left of ``images`` after a JPEG file of the given quality.

    Args:
        images: (N, 3, H, W) float in [0, 255], RGB, any size.
        quality: (N,) float in [1, 100], as in libjpeg.

    Returns:
        (N, 3, H, W) float in [0, 255], not rounded to whole levels.
    """
    height, width = images.shape[-2:]
    transform, luma_table, chroma_table, from_rgb, to_rgb = _constants(images.device)
    scale = torch.where(quality < 50, 5000 / quality, 200 - 2 * quality)[:, None, None] / 100
    luma_table = (luma_table * scale).round().clamp(1, 255)  # (N, 64, 1)
    chroma_table = (chroma_table * scale).round().clamp(1, 255)

    padded = F.pad(images, (0, -width % 16, 0, -height % 16), mode="replicate")
    planes = torch.matmul(from_rgb, padded.flatten(2)).view_as(padded)
    luma = _quantise(planes[:, :1] - 128, luma_table, transform) + 128
    chroma = F.avg_pool2d(planes[:, 1:], 2).flatten(0, 1)[:, None]  # (2N, 1, H/2, W/2)
    chroma = _quantise(chroma, chroma_table.repeat_interleave(2, 0), transform)
    chroma = F.interpolate(chroma, scale_factor=2, mode="bilinear", align_corners=False)
    planes = torch.cat([luma, chroma.view_as(planes[:, 1:])], dim=1)
    decoded = torch.matmul(to_rgb, planes.flatten(2)).view_as(padded)
    return decoded[..., :height, :width].clamp_(0, 255)
