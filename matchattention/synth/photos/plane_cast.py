"""Which of many planes each place of a frame sees, every plane moved its own way: in torch and as one Triton kernel.

Planes lie behind one another, the background first, pieces of a label map in between, bars in front. A homography
leads from a frame to each plane's own coordinates; the last plane that is there wins. In torch this is sixty small
operations a plane, thousands a batch, which would keep a GPU waiting for their launches.
"""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth.rays.dialect import HAS_TRITON, jit, tl

NEAREST_PLANE = 0.1  # a plane seen at less than a tenth of its distance is not drawn
BLOCK = 256


def apply(matrix: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """(B, ..., 3, 3) on (B, ..., 2): the point, and its plane's relative distance."""
    x, y = place.unbind(-1)
    parts = [matrix[..., k, 0] * x + matrix[..., k, 1] * y + matrix[..., k, 2] for k in range(3)]
    return torch.stack(parts[:2], -1) / parts[2].clamp(min=NEAREST_PLANE)[..., None], parts[2]


def cast_torch(labels: Tensor, shown: Tensor, bars: Tensor, back: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """The reference; see `cast`."""
    batch, height, width, _ = place.shape
    count = shown.shape[1]
    sheet_height, sheet_width = labels.shape[1:]
    flat = labels.flatten(1)
    top = torch.zeros(batch, height, width, dtype=torch.long, device=place.device)
    found = torch.zeros_like(place)

    def mirrored(value: Tensor, last: int) -> Tensor:
        value = value.abs() % (2 * last)
        return torch.where(value > last, 2 * last - value, value).round().long().clamp(0, last)

    for layer in range(count):
        at, distance = apply(back[:, layer, None, None], place)
        x, y = at.unbind(-1)
        if layer == 0:
            wins = torch.ones_like(top, dtype=torch.bool)
        elif layer < count - 1:
            column = mirrored(x * width + 0.5 * (sheet_width - 1), sheet_width - 1)
            row = mirrored(y * width + 0.5 * (sheet_height - 1), sheet_height - 1)
            label = flat.gather(1, (row * sheet_width + column).flatten(1)).view_as(row)
            # Mirror images of a piece beyond the sheet's border would be pieces of their own.
            inside = (x.abs() * width <= 0.5 * sheet_width) & (y.abs() * width <= 0.5 * sheet_height)
            wins = (label == layer - 1) & inside
        else:
            a, b, period, thick, radius, phase = (part[:, None, None] for part in bars.unbind(1))
            across = (a * x + b * y) / period + phase
            wins = ((across - across.floor()) * period < thick) & (x.square() + y.square() < radius.square())
        wins = wins & shown[:, layer, None, None] & (distance > NEAREST_PLANE)
        top = torch.where(wins, layer, top)
        found = torch.where(wins[..., None], at, found)
    return top, found


@jit
def mirrored_index(value, last):
    """The nearest index of a line of last + 1 values that goes back and forth beyond its ends."""
    value = tl.abs(value)
    value = value - tl.floor(value / (2 * last)) * (2 * last)
    value = tl.where(value > last, 2 * last - value, value)
    return tl.minimum((value + 0.5).to(tl.int32), last.to(tl.int32))


@jit
def cast_kernel(labels, shown, bars, back, places, top_out, found_out, pixels, width, sheet_height, sheet_width,
                LAYERS: tl.constexpr, NEAREST: tl.constexpr, SIZE: tl.constexpr):  # fmt: skip
    pair = tl.program_id(1)
    pixel = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = pixel < pixels
    out = pair * pixels + pixel
    place_x = tl.load(places + 2 * out, mask=inside, other=0.0)
    place_y = tl.load(places + 2 * out + 1, mask=inside, other=0.0)
    last_column = 1.0 * (sheet_width - 1)
    last_row = 1.0 * (sheet_height - 1)
    top = tl.zeros((SIZE,), tl.int32)
    found_x = tl.zeros((SIZE,), tl.float32)
    found_y = tl.zeros((SIZE,), tl.float32)
    for layer in range(LAYERS):
        if tl.load(shown + pair * LAYERS + layer) != 0:
            m = back + (pair * LAYERS + layer) * 9
            distance = tl.load(m + 6) * place_x + tl.load(m + 7) * place_y + tl.load(m + 8)
            ahead = tl.maximum(distance, NEAREST)
            x = (tl.load(m) * place_x + tl.load(m + 1) * place_y + tl.load(m + 2)) / ahead
            y = (tl.load(m + 3) * place_x + tl.load(m + 4) * place_y + tl.load(m + 5)) / ahead
            wins = (distance > NEAREST) & inside
            if layer == LAYERS - 1:
                b = bars + pair * 6
                period = tl.load(b + 2)
                radius = tl.load(b + 4)
                across = (tl.load(b) * x + tl.load(b + 1) * y) / period + tl.load(b + 5)
                on = (across - tl.floor(across)) * period < tl.load(b + 3)
                wins = wins & on & (x * x + y * y < radius * radius)
            elif layer > 0:
                wins = wins & (tl.abs(x) * width <= 0.5 * sheet_width) & (tl.abs(y) * width <= 0.5 * sheet_height)
                column = mirrored_index(x * width + 0.5 * last_column, last_column)
                row = mirrored_index(y * width + 0.5 * last_row, last_row)
                at = (pair * sheet_height + row) * sheet_width + column
                wins = wins & (tl.load(labels + at, mask=wins, other=255).to(tl.int32) == layer - 1)
            top = tl.where(wins, layer, top)
            found_x = tl.where(wins, x, found_x)
            found_y = tl.where(wins, y, found_y)
    tl.store(top_out + out, top.to(tl.int64), mask=inside)
    tl.store(found_out + 2 * out, found_x, mask=inside)
    tl.store(found_out + 2 * out + 1, found_y, mask=inside)


def cast_triton(labels: Tensor, shown: Tensor, bars: Tensor, back: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """One program a block of places; see `cast`."""
    batch, height, width, _ = place.shape
    top = torch.empty((batch, height, width), dtype=torch.long, device=place.device)
    found = torch.empty((batch, height, width, 2), device=place.device)
    grid = (-(-height * width // BLOCK), batch)
    cast_kernel[grid](labels.contiguous(), shown.to(torch.uint8), bars.contiguous(), back.contiguous(),
                      place.contiguous(), top, found, height * width, width, *labels.shape[1:],
                      LAYERS=shown.shape[1], NEAREST=NEAREST_PLANE, SIZE=BLOCK)  # fmt: skip
    return top, found


def cast(labels: Tensor, shown: Tensor, bars: Tensor, back: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """The front plane at every place of a frame, and where on the plane that is.

    Args:
        labels: (B, H', W') uint8 regions that pieces come from: piece l has label l - 1.
        shown: (B, L) bool, which planes are there.
        bars: (B, 6) of the bars: normal (x, y), period, thickness, radius, phase.
        back: (B, L, 3, 3) from the frame to each plane's own coordinates.
        place: (B, H, W, 2) from the frame's centre, over its width.

    Returns:
        (B, H, W) int64 planes and (B, H, W, 2) places on them, over the frame's width.
    """
    backend = cast_triton if HAS_TRITON and place.device.type == "cuda" else cast_torch
    return backend(labels, shown, bars, back, place)
