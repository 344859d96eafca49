# mypy: disable-error-code="assignment, var-annotated"
"""Depthwise 3x3 convolution on channels-last tokens in Triton, forward and backward.

A program walks down a strip of TILE_X columns and CB channels. Every row is loaded three times, shifted by one column,
and serves the three output rows around it, so that a value is fetched 3 times instead of 9. All sums are fp32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from matchattention.ops.triton_overlap import overlapping, wait_for_previous

PLAIN = tl.constexpr(0)
GATE = tl.constexpr(1)
GATE_BACKWARD = tl.constexpr(2)

# Elements of one program's row, four a thread: with eight, nine weights each would crowd out everything else.
ROW_ELEMENTS = 512
# Output rows of one program, forward.
ROWS = 4


@triton.jit
def strip(tiles_x, tiles_y, width, channels, TILE_Y: tl.constexpr, TILE_X: tl.constexpr, CB: tl.constexpr):
    """Image, first row, (TILE_X, 1) columns and (1, CB) channels of this program; channels run fastest."""
    blocks = tl.cdiv(channels, CB)
    program = tl.program_id(0)
    channel = (program % blocks) * CB + tl.arange(0, CB)[None, :]
    program = program // blocks
    x = (program % tiles_x) * TILE_X + tl.arange(0, TILE_X)[:, None]
    program = program // tiles_x
    return (program // tiles_y).to(tl.int64), (program % tiles_y) * TILE_Y, x, channel


@triton.jit
def load_row(base, y, x, height, width, ROW_STRIDE, COLUMN_STRIDE: tl.constexpr, channel, exists):
    """(TILE_X, CB) in fp32 of row y, columns x; zero outside the map."""
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    at = y.to(tl.int64) * ROW_STRIDE + x * COLUMN_STRIDE + channel
    return tl.load(base + at, mask=inside & exists, other=0.0).to(tl.float32)


@triton.jit
def channel_exists(channel, CHANNELS: tl.constexpr, CB: tl.constexpr):
    """(1, CB): which channels are real; a constant where all are, so that loads stay wide."""
    if CHANNELS % CB == 0:
        return tl.full((1, CB), True, tl.int1)
    else:
        return channel < CHANNELS


@triton.jit
def load_taps(weight_pointer, channel, exists, W_CHANNEL: tl.constexpr, W_TAP: tl.constexpr):
    """Tuple of nine (1, CB) weights, row-major, from (C, 1, 3, 3); wide loads where the channels are contiguous."""
    taps = ()
    for i in tl.static_range(9):
        at = channel * W_CHANNEL + i * W_TAP
        taps = taps + (tl.load(weight_pointer + at, mask=exists, other=0.0).to(tl.float32),)
    return taps


@triton.jit
def depthwise_forward_kernel(
    x_pointer,
    weight_pointer,
    bias_pointer,
    value_pointer,
    grad_pointer,
    out_pointer,
    grad_value_pointer,
    height,
    width,
    tiles_x,
    tiles_y,
    X_BATCH,
    X_ROW,
    VALUE_BATCH,
    VALUE_ROW,
    GRAD_VALUE_BATCH,
    GRAD_VALUE_ROW,
    X_UNIT: tl.constexpr,
    X_COLUMN: tl.constexpr,
    VALUE_UNIT: tl.constexpr,
    VALUE_COLUMN: tl.constexpr,
    GRAD_VALUE_UNIT: tl.constexpr,
    GRAD_VALUE_COLUMN: tl.constexpr,
    W_CHANNEL: tl.constexpr,
    W_TAP: tl.constexpr,
    CHANNELS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    MODE: tl.constexpr,
    TILE_Y: tl.constexpr,
    TILE_X: tl.constexpr,
    CB: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    image, first, x, channel = strip(tiles_x, tiles_y, width, CHANNELS, TILE_Y, TILE_X, CB)
    exists = channel_exists(channel, CHANNELS, CB)
    taps = load_taps(weight_pointer, channel, exists, W_CHANNEL, W_TAP)
    start = tl.zeros((TILE_X, CB), tl.float32)
    if HAS_BIAS:
        start += tl.load(bias_pointer + channel, mask=exists, other=0.0).to(tl.float32)
    sums = ()
    for _ in tl.static_range(TILE_Y):
        sums = sums + (start,)
    wait_for_previous(OVERLAP)
    base = x_pointer + image * (X_BATCH * X_UNIT)
    for r in tl.static_range(TILE_Y + 2):
        left = load_row(base, first + r - 1, x - 1, height, width, X_ROW * X_UNIT, X_COLUMN, channel, exists)
        centre = load_row(base, first + r - 1, x, height, width, X_ROW * X_UNIT, X_COLUMN, channel, exists)
        right = load_row(base, first + r - 1, x + 1, height, width, X_ROW * X_UNIT, X_COLUMN, channel, exists)
        updated = ()
        for o in tl.static_range(TILE_Y):
            if (r - o >= 0) and (r - o < 3):
                line = left * taps[(r - o) * 3] + centre * taps[(r - o) * 3 + 1] + right * taps[(r - o) * 3 + 2]
                updated = updated + (sums[o] + line,)
            else:
                updated = updated + (sums[o],)
        sums = updated
    for o in tl.static_range(TILE_Y):
        y = first + o
        inside = (y < height) & (x < width) & exists
        token = (image * height + y) * width + x
        at = token * CHANNELS + channel
        total = sums[o]
        if MODE == PLAIN:
            result = total
        else:
            below = 0.5 * (1.0 + tl.erf(total * 0.7071067811865476))
            value_at = image * (VALUE_BATCH * VALUE_UNIT) + y.to(tl.int64) * (VALUE_ROW * VALUE_UNIT) + x * VALUE_COLUMN
            value = tl.load(value_pointer + value_at + channel, mask=inside, other=0.0).to(tl.float32)
            if MODE == GATE:
                result = total * below * value
            else:
                grad = tl.load(grad_pointer + at, mask=inside, other=0.0).to(tl.float32)
                slope = below + total * (tl.exp(-0.5 * total * total) * 0.3989422804014327)
                result = grad * value * slope
                value_at = (
                    image * (GRAD_VALUE_BATCH * GRAD_VALUE_UNIT)
                    + y.to(tl.int64) * (GRAD_VALUE_ROW * GRAD_VALUE_UNIT)
                    + x * GRAD_VALUE_COLUMN
                )
                grad_value = grad * total * below
                tl.store(
                    grad_value_pointer + value_at + channel,
                    grad_value.to(grad_value_pointer.dtype.element_ty),
                    mask=inside,
                )
        tl.store(out_pointer + at, result.to(out_pointer.dtype.element_ty), mask=inside)


@triton.jit
def depthwise_backward_kernel(
    grad_pointer,
    x_pointer,
    weight_pointer,
    grad_x_pointer,
    partial_pointer,
    height,
    width,
    tiles_x,
    tiles_y,
    images,
    X_BATCH,
    X_ROW,
    GRAD_X_BATCH,
    GRAD_X_ROW,
    X_UNIT: tl.constexpr,
    X_COLUMN: tl.constexpr,
    GRAD_X_UNIT: tl.constexpr,
    GRAD_X_COLUMN: tl.constexpr,
    W_CHANNEL: tl.constexpr,
    W_TAP: tl.constexpr,
    CHANNELS: tl.constexpr,
    TILE_Y: tl.constexpr,
    TILE_X: tl.constexpr,
    CB: tl.constexpr,
):
    """Gradient of x, and this program's part of the gradients of the nine weights and the bias.

    Both need the same 3x3 neighbourhood of the output's gradient: d x = sum_k w_k g_k and d w_k = sum x g_k. A program
    takes the same strip of several images, so that its parts are few enough to add up cheaply.
    """
    first_image, first, x, channel = strip(tiles_x, tiles_y, width, CHANNELS, TILE_Y, TILE_X, CB)
    exists = channel_exists(channel, CHANNELS, CB)
    taps = load_taps(weight_pointer, channel, exists, W_CHANNEL, W_TAP)
    blocks: tl.constexpr = (CHANNELS + CB - 1) // CB
    steps = tl.num_programs(0) // (blocks * tiles_x * tiles_y)
    parts = ()
    for _ in tl.static_range(10):
        parts = parts + (tl.zeros((TILE_X, CB), tl.float32),)
    image = first_image
    while image < images:
        grad_base = grad_pointer + image * height * width * CHANNELS
        x_base = x_pointer + image * (X_BATCH * X_UNIT)
        sums = ()
        rows = ()
        for o in tl.static_range(TILE_Y):
            sums = sums + (tl.zeros((TILE_X, CB), tl.float32),)
            rows = rows + (load_row(x_base, first + o, x, height, width, X_ROW * X_UNIT, X_COLUMN, channel, exists),)
        for r in tl.static_range(TILE_Y + 2):
            y = first + r - 1
            left = load_row(grad_base, y, x - 1, height, width, width * CHANNELS, CHANNELS, channel, exists)
            centre = load_row(grad_base, y, x, height, width, width * CHANNELS, CHANNELS, channel, exists)
            right = load_row(grad_base, y, x + 1, height, width, width * CHANNELS, CHANNELS, channel, exists)
            updated = ()
            for o in tl.static_range(TILE_Y):
                # Output row y lies r - 1 - o below token row o; it was reached through weight row 2 - (r - o).
                if (r - o >= 0) and (r - o < 3):
                    line = left * taps[8 - 3 * (r - o)] + centre * taps[7 - 3 * (r - o)] + right * taps[6 - 3 * (r - o)]
                    updated = updated + (sums[o] + line,)
                    added = ()
                    for i in tl.static_range(10):
                        if i == 8 - 3 * (r - o):
                            added = added + (parts[i] + rows[o] * left,)
                        elif i == 7 - 3 * (r - o):
                            added = added + (parts[i] + rows[o] * centre,)
                        elif i == 6 - 3 * (r - o):
                            added = added + (parts[i] + rows[o] * right,)
                        elif (i == 9) and (r - o == 1):
                            added = added + (parts[i] + tl.where((x < width) & (first + o < height), centre, 0.0),)
                        else:
                            added = added + (parts[i],)
                    parts = added
                else:
                    updated = updated + (sums[o],)
            sums = updated
        for o in tl.static_range(TILE_Y):
            y = first + o
            at = image * (GRAD_X_BATCH * GRAD_X_UNIT) + y.to(tl.int64) * (GRAD_X_ROW * GRAD_X_UNIT) + x * GRAD_X_COLUMN
            tl.store(
                grad_x_pointer + at + channel,
                sums[o].to(grad_x_pointer.dtype.element_ty),
                mask=(y < height) & (x < width) & exists,
            )
        image += steps
    part = tl.program_id(0) // blocks
    for i in tl.static_range(10):
        total = tl.sum(parts[i], 0)[None, :]
        tl.store(partial_pointer + (part * 10 + i).to(tl.int64) * CHANNELS + channel, total, mask=exists)


@dataclass(frozen=True)
class Strips:
    """How (B, H, W, C) is cut into programs."""

    tile_y: int
    tile_x: int
    channel_block: int
    tiles_y: int
    tiles_x: int
    blocks: int

    @property
    def programs_per_image(self) -> int:
        return self.tiles_y * self.tiles_x * self.blocks

    def arguments(self) -> dict[str, int]:
        return {
            "tiles_x": self.tiles_x,
            "tiles_y": self.tiles_y,
            "TILE_Y": self.tile_y,
            "TILE_X": self.tile_x,
            "CB": self.channel_block,
        }


def cut(x: Tensor, rows: int) -> Strips:
    """Strips of `rows` rows; narrow channels make them wider."""
    _, height, width, channels = x.shape
    channel_block = min(64, triton.next_power_of_2(channels))
    tile_x = min(ROW_ELEMENTS // channel_block, max(4, triton.next_power_of_2(width)))
    rows = min(rows, triton.next_power_of_2(height))
    return Strips(rows, tile_x, channel_block, -(-height // rows), -(-width // tile_x), -(-channels // channel_block))


def strides(name: str, tokens: Tensor) -> dict[str, Any]:
    """Strides of (B, H, W, C) as kernel arguments; see `triton_tiles`."""
    batch, row, column, _ = tokens.stride()
    unit = math.gcd(16, batch, row)
    return {f"{name}_BATCH": batch // unit, f"{name}_ROW": row // unit, f"{name}_UNIT": unit, f"{name}_COLUMN": column}


def readable(tokens: Tensor) -> Tensor:
    """`tokens` itself where the kernels can read it in place."""
    return tokens if tokens.stride(-1) == 1 else tokens.contiguous()


def taps_in_order(weight: Tensor) -> Tensor:
    """`weight` (C, 1, 3, 3) itself where its nine taps are evenly spaced, whichever of taps and channels is inner."""
    return weight if weight.stride(2) == 3 * weight.stride(3) else weight.contiguous()


def weight_strides(weight: Tensor) -> dict[str, int]:
    """Strides over channels and taps as kernel arguments."""
    return {"W_CHANNEL": weight.stride(0), "W_TAP": weight.stride(3)}


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """depthwise3x3, (B, H, W, C) contiguous."""
    out = x.new_empty(x.shape)
    if out.numel():
        _launch(readable(x), weight, bias, PLAIN, out)
    return out


def gate_mix(h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """GELU(depthwise3x3(gate)) * value, (B, H, W, D) contiguous, in one kernel."""
    gate, value = readable(h).chunk(2, -1)
    out = gate.new_empty(gate.shape)
    if out.numel():
        _launch(gate, weight, bias, GATE, out, value=value)
    return out


def _launch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    mode: Any,
    out: Tensor,
    value: Tensor | None = None,
    grad: Tensor | None = None,
    grad_value: Tensor | None = None,
) -> None:
    strips = cut(x, ROWS)
    weight = taps_in_order(weight)
    value = x if value is None else value
    grad_value = x if grad_value is None else grad_value
    depthwise_forward_kernel[(x.shape[0] * strips.programs_per_image,)](
        x,
        weight,
        x if bias is None else bias,
        value,
        x if grad is None else grad,
        out,
        grad_value,
        height=x.shape[1],
        width=x.shape[2],
        CHANNELS=x.shape[3],
        HAS_BIAS=bias is not None,
        MODE=mode.value,
        num_warps=4,
        **overlapping(),
        **strides("X", x),
        **strides("VALUE", value),
        **strides("GRAD_VALUE", grad_value),
        **strips.arguments(),
        **weight_strides(weight),
    )


def convolve_backward(grad: Tensor, x: Tensor, weight: Tensor, grad_x: Tensor) -> tuple[Tensor, Tensor]:
    """Writes `grad_x` (any strides, channels contiguous); returns gradients of the weight and of the bias, fp32."""
    channels = x.shape[-1]
    if x.numel() == 0:
        return torch.zeros_like(weight, dtype=torch.float32), weight.new_zeros(channels, dtype=torch.float32)
    x, grad, weight = readable(x), grad.contiguous(), taps_in_order(weight)
    strips = cut(x, rows=2)
    # About 2048 programs fill any GPU; more would only make more partial sums.
    steps = max(1, min(x.shape[0], 2048 // strips.programs_per_image))
    partial = x.new_empty((steps * strips.tiles_y * strips.tiles_x, 10, channels), dtype=torch.float32)
    depthwise_backward_kernel[(steps * strips.programs_per_image,)](
        grad,
        x,
        weight,
        grad_x,
        partial,
        height=x.shape[1],
        width=x.shape[2],
        images=x.shape[0],
        CHANNELS=channels,
        num_warps=4,
        **strides("X", x),
        **strides("GRAD_X", grad_x),
        **strips.arguments(),
        **weight_strides(weight),
    )
    total = partial.sum(0)
    return total[:9].t().contiguous().view(channels, 1, 3, 3), total[9].clone()


def gate_mix_backward(grad: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of h (contiguous), the weight and the bias (fp32)."""
    h = readable(h)
    grad_h = h.new_empty(h.shape)
    gate, value = h.chunk(2, -1)
    grad_gate, grad_value = grad_h.chunk(2, -1)
    grad_sum = gate.new_empty(gate.shape)
    if grad_sum.numel():
        _launch(gate, weight, bias, GATE_BACKWARD, grad_sum, value=value, grad=grad.contiguous(), grad_value=grad_value)
    grad_weight, grad_bias = convolve_backward(grad_sum, gate, weight, grad_gate)
    return grad_h, grad_weight, grad_bias
