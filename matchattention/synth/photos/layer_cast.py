"""Which of many slanted paper layers each pixel of two views sees: exact, in torch and as one Triton kernel.

Layers live on sheets: label maps in a canonical view between the cameras, mirrored beyond their border. Layer l has
disparity a + b u + c y at canonical (u, y), both from the image's centre. A view at offset s (left: s, right: s - 1)
sees canonical u at x = u + s (a + b u + c y), which is inverted in closed form; the nearest layer wins.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from matchattention.synth.rays.dialect import HAS_TRITON, jit, tl

BLOCK = 256


class Seen(NamedTuple):
    """What each pixel of V views sees, V = 2 B, left views first.

    Attributes:
        layer: (V, H, W) int32.
        column: (V, H, W) float, px of the sheet, already mirrored into it.
        disparity: (V, H, W) float, px, positive.
    """

    layer: Tensor
    column: Tensor
    disparity: Tensor


def cast_torch(labels: Tensor, planes: Tensor, sheets: Tensor, offset: Tensor, width: int) -> Seen:
    """The reference; see `cast`."""
    pairs, _, height, sheet_width = labels.shape
    device = labels.device
    y = torch.arange(height, device=device, dtype=torch.float32)[:, None] - 0.5 * (height - 1)
    x = torch.arange(width, device=device, dtype=torch.float32)[None] - 0.5 * (width - 1)
    middle, last = 0.5 * (sheet_width - 1), float(sheet_width - 1)
    shape = (2 * pairs, height, width)
    disparity = torch.zeros(shape, device=device)
    column = torch.zeros(shape, device=device)
    layer = torch.zeros(shape, device=device, dtype=torch.int32)
    expanded = labels.repeat(2, 1, 1, 1)
    coefficients = planes.repeat(2, 1, 1)
    s = offset.view(-1, 1, 1)
    for index in range(planes.shape[1]):
        a, b, c = (part.view(-1, 1, 1) for part in coefficients[:, index].unbind(1))
        level = a + c * y  # (V, H, 1)
        u = (x - s * level) / (1 + s * b)
        nearness = level + b * u
        place = (u + middle).abs() % (2 * last)
        place = torch.where(place > last, 2 * last - place, place)
        label = torch.gather(expanded[:, int(sheets[index, 0])], 2, (place + 0.5).long().clamp(max=sheet_width - 1))
        wins = (label == sheets[index, 1]) & (nearness > disparity)
        disparity = torch.where(wins, nearness, disparity)
        column = torch.where(wins, place, column)
        layer = torch.where(wins, index, layer)
    return Seen(layer, column, disparity)


@jit
def cast_kernel(labels, planes, sheets, offset, layer_out, column_out, disparity_out, pairs, sheet_count,
                height, width, sheet_width, LAYERS: tl.constexpr, SIZE: tl.constexpr):  # fmt: skip
    view = tl.program_id(1)
    pair = view % pairs
    pixel = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = pixel < height * width
    row = pixel // width
    x = (pixel % width).to(tl.float32) - 0.5 * (width - 1)
    y = row.to(tl.float32) - 0.5 * (height - 1)
    s = tl.load(offset + view)
    middle = 0.5 * (sheet_width - 1)
    last = 1.0 * (sheet_width - 1)
    best = tl.zeros((SIZE,), tl.float32)
    column = tl.zeros((SIZE,), tl.float32)
    layer = tl.zeros((SIZE,), tl.int32)
    for index in range(LAYERS):
        p = planes + (pair * LAYERS + index) * 3
        a = tl.load(p)
        b = tl.load(p + 1)
        if a > -1e8:
            level = a + tl.load(p + 2) * y
            u = (x - s * level) / (1 + s * b)
            nearness = level + b * u
            place = tl.abs(u + middle)
            place = place - tl.floor(place / (2 * last)) * (2 * last)
            place = tl.where(place > last, 2 * last - place, place)
            nearest = tl.minimum((place + 0.5).to(tl.int32), sheet_width - 1)
            sheet = tl.load(sheets + 2 * index)
            wanted = tl.load(sheets + 2 * index + 1)
            at = ((pair * sheet_count + sheet) * height + row) * sheet_width + nearest
            label = tl.load(labels + at, mask=inside, other=255).to(tl.int32)
            wins = (label == wanted) & (nearness > best)
            best = tl.where(wins, nearness, best)
            column = tl.where(wins, place, column)
            layer = tl.where(wins, index, layer)
    out = view * height * width + pixel
    tl.store(layer_out + out, layer, mask=inside)
    tl.store(column_out + out, column, mask=inside)
    tl.store(disparity_out + out, best, mask=inside)


def cast_triton(labels: Tensor, planes: Tensor, sheets: Tensor, offset: Tensor, width: int) -> Seen:
    """One program a block of pixels; see `cast`."""
    pairs, sheet_count, height, sheet_width = labels.shape
    shape = (2 * pairs, height, width)
    layer = torch.empty(shape, device=labels.device, dtype=torch.int32)
    column = torch.empty(shape, device=labels.device)
    disparity = torch.empty(shape, device=labels.device)
    grid = (-(-height * width // BLOCK), 2 * pairs)
    cast_kernel[grid](labels.contiguous(), planes.contiguous(), sheets.to(labels.device, torch.int32), offset,
                      layer, column, disparity, pairs, sheet_count, height, width, sheet_width,
                      LAYERS=planes.shape[1], SIZE=BLOCK)  # fmt: skip
    return Seen(layer, column, disparity)


def cast(labels: Tensor, planes: Tensor, sheets: Tensor, offset: Tensor, width: int) -> Seen:
    """First hits of all pixels of both views.

    Args:
        labels: (B, S, H, W') uint8 label maps of the sheets, W' >= 2.
        planes: (B, L, 3) a, b, c of each layer; a <= -1e8 hides a layer. |b| < 1.
        sheets: (L, 2) integers on the host: sheet of a layer and the label it has there.
        offset: (2 B,) where the view lies: left s, right s - 1.
        width: of the views, px.
    """
    backend = cast_triton if HAS_TRITON and labels.device.type == "cuda" else cast_torch
    return backend(labels, planes, sheets, offset, width)
