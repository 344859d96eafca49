# mypy: disable-error-code="assignment, var-annotated"
"""From a coarse map to a finer one, for inference: convex upsampling of positions, joining of features."""

import triton
import triton.language as tl

from matchattention.ops.triton_overlap import wait_for_previous
from matchattention.runtime.kernels.rows import load_matrix, tile_of_tokens


@triton.jit(do_not_specialize=["height", "width", "tokens"])
def convex_kernel(
    logits_pointer,
    matrix_pointer,
    bias_pointer,
    position_pointer,
    out_pointer,
    height,
    width,
    tokens,
    D: tl.constexpr,
    DB: tl.constexpr,
    FACTOR: tl.constexpr,
    HEADS: tl.constexpr,
    EP: tl.constexpr,
    OUT: tl.constexpr,
    ZERO_BORDER: tl.constexpr,
    T: tl.constexpr,
):
    """Softmax over the nine neighbours and their convex combination, values times FACTOR.

    With D > 0 the logits are still to be computed, from D hidden channels. Reads packed positions, EP wide.
    With OUT = EP it writes packed positions of the finer map, in which every head takes the heads' mean; with OUT = 2
    the cross position alone.
    """
    SUBS: tl.constexpr = FACTOR * FACTOR
    token, valid = tile_of_tokens(tokens, T)
    x = (token % width).to(tl.int32)
    y = ((token // width) % height).to(tl.int32)
    first = token - token % (height * width)
    sub = tl.arange(0, SUBS)[None, :]
    if D > 0:
        channel = tl.arange(0, DB)
        hidden = tl.load(logits_pointer + token[:, None] * D + channel[None, :], mask=channel[None, :] < D, other=0.0)
    logits = ()
    highest = tl.full((T, SUBS), float("-inf"), tl.float32)
    for k in tl.static_range(9):
        if D > 0:
            matrix = load_matrix(matrix_pointer + k * SUBS * D, channel, tl.arange(0, SUBS), D, SUBS)
            value = tl.dot(hidden, matrix, input_precision="ieee") + tl.load(bias_pointer + k * SUBS + sub)
        else:
            value = tl.load(logits_pointer + token[:, None] * (9 * SUBS) + k * SUBS + sub).to(tl.float32)
        highest = tl.maximum(highest, value)
        logits = logits + (value,)
    total = tl.zeros((T, SUBS), tl.float32)
    cross_x = tl.zeros((T, SUBS), tl.float32)
    cross_y = tl.zeros((T, SUBS), tl.float32)
    self_x = tl.zeros((T, SUBS), tl.float32)
    self_y = tl.zeros((T, SUBS), tl.float32)
    for k in tl.static_range(9):
        weight = tl.exp(logits[k] - highest)
        total += weight
        near_y = y + (k // 3 - 1)
        near_x = x + (k % 3 - 1)
        inside = (near_y >= 0) & (near_y < height) & (near_x >= 0) & (near_x < width)
        near_y = tl.minimum(tl.maximum(near_y, 0), height - 1)
        near_x = tl.minimum(tl.maximum(near_x, 0), width - 1)
        if ZERO_BORDER:
            read = inside
        else:
            read = near_y >= 0
        at = (first + near_y * width + near_x) * EP
        cross_x += weight * tl.load(position_pointer + at, mask=read, other=0.0)[:, None]
        cross_y += weight * tl.load(position_pointer + at + 1, mask=read, other=0.0)[:, None]
        if OUT > 2:
            mean_x = tl.zeros((T,), tl.float32)
            mean_y = tl.zeros((T,), tl.float32)
            for h in tl.static_range(HEADS):
                mean_x += tl.load(position_pointer + at + 2 + 2 * h, mask=read, other=0.0)
                mean_y += tl.load(position_pointer + at + 3 + 2 * h, mask=read, other=0.0)
            self_x += weight * (mean_x / HEADS)[:, None]
            self_y += weight * (mean_y / HEADS)[:, None]
    scale = FACTOR / total
    fine_y = y[:, None] * FACTOR + sub // FACTOR
    fine_x = x[:, None] * FACTOR + sub % FACTOR
    fine = first[:, None] * SUBS + fine_y.to(tl.int64) * (width * FACTOR) + fine_x
    column = tl.arange(0, OUT)[None, None, :]
    result = tl.where(column == 0, (cross_x * scale)[:, :, None], (cross_y * scale)[:, :, None])
    if OUT > 2:
        own = tl.where(column % 2 == 0, (self_x * scale)[:, :, None], (self_y * scale)[:, :, None])
        result = tl.where(column < 2, result, tl.where(column < 2 + 2 * HEADS, own, 0.0))
    tl.store(out_pointer + fine[:, :, None] * OUT + column, result, mask=valid[:, None, None] & (column < OUT))


@triton.jit(do_not_specialize=["height", "width", "tokens"])
def join_kernel(
    encoded_pointer,
    lifted_pointer,
    matrix_pointer,
    bias_pointer,
    out_pointer,
    height,
    width,
    tokens,
    D: tl.constexpr,
    DB: tl.constexpr,
    KB: tl.constexpr,
    T: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """ReLU(encoded @ matrix + lifted + bias) on the finer map of height x width.

    `lifted` (coarse tokens, 2, 2, D) is the coarser map after its transposed convolution and its half of the joining
    matrix, which one product has applied together.
    """
    token, valid = tile_of_tokens(tokens, T)
    columns = tl.arange(0, DB)
    wait_for_previous(OVERLAP)
    total = tl.zeros((T, DB), tl.float32)
    for start in range(0, D, KB):
        channel = start + tl.arange(0, KB)
        encoded = tl.load(encoded_pointer + token[:, None] * D + channel[None, :], mask=channel[None, :] < D, other=0.0)
        matrix = load_matrix(matrix_pointer, channel, columns, D, D)
        total = tl.dot(encoded, matrix, total, input_precision="ieee")
    x = token % width
    y = (token // width) % height
    parent = (token // (height * width)) * (height * width // 4) + (y // 2) * (width // 2) + x // 2
    part = (parent * 4 + (y % 2) * 2 + x % 2) * D
    real = columns[None, :] < D
    total += tl.load(lifted_pointer + part[:, None] + columns[None, :], mask=real, other=0.0).to(tl.float32)
    total += tl.load(bias_pointer + columns[None, :], mask=real, other=0.0)
    result = tl.maximum(total, 0.0).to(out_pointer.dtype.element_ty)
    tl.store(out_pointer + token[:, None] * D + columns[None, :], result, mask=valid[:, None] & real)
