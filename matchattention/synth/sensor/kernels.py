"""The sensor's stages between lens and file as three Triton kernels: one pass over memory each.

The torch functions of `pipeline` say what is computed and are what runs on a CPU; these do the same
on a GPU, where some forty passes over a batch of images would cost more than the arithmetic. An image that an
ingredient was not drawn for skips it: the branch is the same for the whole program.
"""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth.rays.dialect import jit, tl

BLOCK = 1024
DEVELOP_BLOCK = 256
# Columns of the table that `develop_kernel` reads for each image.
DEVELOP_COLUMNS = 14  # nine of the colour matrix, then mosaic, shoulder, exponent, contrast, black level


@jit
def expose_kernel(images, iso, seeds, size, shot, read, SIZE: tl.constexpr):
    """Add shot and read noise in place; grid (blocks, images)."""
    image = tl.program_id(1)
    level = tl.load(iso + image)
    if level > 0:
        place = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
        inside = place < size
        pointer = images + image.to(tl.int64) * size + place
        value = tl.load(pointer, mask=inside, other=0.0)
        deviation = tl.sqrt(tl.maximum(value, 0.0) * (level * shot) + level * read * level * read)
        value += deviation * tl.randn(tl.load(seeds + image), place)
        tl.store(pointer, value, mask=inside)


@jit
def toned(value, shoulder, exponent, contrast, black):
    """Linear light to a grey level in [0, 255]."""
    value = value * (1.0 + shoulder) / (1.0 + shoulder * tl.maximum(value, 0.0))
    value = tl.minimum(tl.maximum(value, 0.0), 1.0)
    value = tl.where(value > 0.0, tl.exp2(exponent * tl.log2(tl.maximum(value, 1e-30))), 0.0)
    value += contrast * (value * value * (3.0 - 2.0 * value) - value)
    value += black * (1.0 - value)
    return 255.0 * tl.minimum(tl.maximum(value, 0.0), 1.0)


@jit
def develop_kernel(images, out, table, height, width, COLUMNS: tl.constexpr, SIZE: tl.constexpr):
    """Mosaic and its interpolation, colour matrix and tone curve; grid (blocks, images)."""
    image = tl.program_id(1)
    row_of_table = table + image * COLUMNS
    mosaic = tl.load(row_of_table + 9)
    place = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    area = height * width
    inside = place < area
    images += image.to(tl.int64) * 3 * area
    out += image.to(tl.int64) * 3 * area
    red = tl.load(images + place, mask=inside, other=0.0)
    green = tl.load(images + area + place, mask=inside, other=0.0)
    blue = tl.load(images + 2 * area + place, mask=inside, other=0.0)
    if mosaic > 0:
        y = place // width
        x = place % width
        red_sites = tl.zeros([SIZE], tl.float32)
        green_sites = tl.zeros([SIZE], tl.float32)
        blue_sites = tl.zeros([SIZE], tl.float32)
        for dy in tl.static_range(3):
            for dx in tl.static_range(3):
                # Reflection keeps the pattern's parity across the border.
                row = tl.abs(y + (dy - 1))
                row = tl.where(row >= height, 2 * height - 2 - row, row)
                column = tl.abs(x + (dx - 1))
                column = tl.where(column >= width, 2 * width - 2 - column, column)
                near = row * width + column
                odd = row % 2 + column % 2
                corner = (2 - (dy - 1) * (dy - 1)) * (2 - (dx - 1) * (dx - 1)) * 0.25
                red_sites += corner * tl.load(images + near, mask=inside & (odd == 0), other=0.0)
                blue_sites += corner * tl.load(images + 2 * area + near, mask=inside & (odd == 2), other=0.0)
                if (dy - 1) * (dx - 1) == 0:  # green's sites around a pixel are a cross
                    cross = 1.0 - 0.75 * ((dy - 1) * (dy - 1) + (dx - 1) * (dx - 1))
                    green_sites += cross * tl.load(images + area + near, mask=inside & (odd == 1), other=0.0)
        red += mosaic * (red_sites - red)
        green += mosaic * (green_sites - green)
        blue += mosaic * (blue_sites - blue)
    shoulder = tl.load(row_of_table + 10)
    exponent = tl.load(row_of_table + 11)
    contrast = tl.load(row_of_table + 12)
    black = tl.load(row_of_table + 13)
    for channel in tl.static_range(3):
        weights = row_of_table + 3 * channel
        mixed = tl.load(weights) * red + tl.load(weights + 1) * green + tl.load(weights + 2) * blue
        tl.store(out + channel * area + place, toned(mixed, shoulder, exponent, contrast, black), mask=inside)


@jit
def sharpen_kernel(images, out, amounts, kernel, height, width, SIZE: tl.constexpr):
    """Unsharp mask with a 5x5 kernel, border repeated; grid (blocks, images * 3)."""
    plane = tl.program_id(1)
    amount = tl.load(amounts + plane // 3)
    place = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    area = height * width
    inside = place < area
    images += plane.to(tl.int64) * area
    value = tl.load(images + place, mask=inside, other=0.0)
    if amount > 0:
        y = place // width
        x = place % width
        halo = tl.zeros([SIZE], tl.float32)
        for dy in tl.static_range(5):
            row = tl.minimum(tl.maximum(y + (dy - 2), 0), height - 1) * width
            for dx in tl.static_range(5):
                column = tl.minimum(tl.maximum(x + (dx - 2), 0), width - 1)
                halo += tl.load(kernel + 5 * dy + dx) * tl.load(images + row + column, mask=inside, other=0.0)
        value = tl.minimum(tl.maximum(value + amount * (value - halo), 0.0), 255.0)
    tl.store(out + plane.to(tl.int64) * area + place, value, mask=inside)


def expose(images: Tensor, iso: Tensor, seeds: Tensor, shot: float, read: float) -> Tensor:
    """Noise in place: images (N, 3, H, W) contiguous, iso (N,) ISO / 100, seeds (N,) int64."""
    size = images[0].numel()
    grid = (-(-size // BLOCK), images.shape[0])
    expose_kernel[grid](images, iso.contiguous(), seeds, size, shot, read, SIZE=BLOCK)
    return images


def develop(images: Tensor, table: Tensor) -> Tensor:
    """Linear light to grey levels.

    Args:
        images: (N, 3, H, W) contiguous; at least 2 px a side.
        table: (N, 14): colour matrix by rows, mosaic, shoulder, exponent, contrast, black level.
    """
    out = torch.empty_like(images)
    height, width = images.shape[-2:]
    grid = (-(-height * width // DEVELOP_BLOCK), images.shape[0])
    develop_kernel[grid](images, out, table.contiguous(), height, width, COLUMNS=DEVELOP_COLUMNS, SIZE=DEVELOP_BLOCK)
    return out


def sharpen(images: Tensor, amounts: Tensor, kernel: Tensor) -> Tensor:
    """Unsharp mask of grey levels: images (N, 3, H, W) contiguous, amounts (N,), kernel (5, 5)."""
    out = torch.empty_like(images)
    height, width = images.shape[-2:]
    grid = (-(-height * width // BLOCK), 3 * images.shape[0])
    sharpen_kernel[grid](images, out, amounts.contiguous(), kernel.contiguous(), height, width, SIZE=BLOCK)
    return out
