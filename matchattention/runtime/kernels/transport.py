# mypy: disable-error-code="assignment, var-annotated"
"""The initial stereo estimate in one kernel, for inference: correlation, Sinkhorn and the local-window estimator.

A program takes one row of the image at 1/32: a (w, w) matrix that stays in registers through all iterations.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from matchattention.ops.triton_overlap import overlapping, wait_for_previous
from matchattention.runtime.kernels.rows import padded

# As in layers.transport: finite, far below any score.
FORBIDDEN = tl.constexpr(-1e4)
# Beyond the row's end: weighs nothing in any sum.
NOTHING = tl.constexpr(-1e30)
# Tokens of a row that few warps can keep in their registers, and how many warps.
NARROW, NARROW_WARPS = 32, 4


@triton.jit
def log_sum(values, other, AXIS: tl.constexpr):
    """log(sum(exp(values)) + exp(other)) along an axis."""
    highest = tl.maximum(tl.max(values, AXIS), other)
    if AXIS == 0:
        total = tl.sum(tl.exp(values - highest[None, :]), 0)
    else:
        total = tl.sum(tl.exp(values - highest[:, None]), 1)
    return highest + tl.log(total + tl.exp(other - highest))


@triton.jit
def log_sum_all(values, other):
    """The same of a vector."""
    highest = tl.maximum(tl.max(values, 0), other)
    return highest + tl.log(tl.sum(tl.exp(values - highest), 0) + tl.exp(other - highest))


@triton.jit
def expected_offset(matching, index, width, WB: tl.constexpr):
    """(WB,) relative position of each row of a matching: mean over the five columns around the best blurred one."""
    column = tl.arange(0, WB)[None, :]
    own = index[:, None]
    matching = matching / tl.maximum(tl.sum(matching, 1), 1e-12)[:, None]
    near = (tl.abs(own - column) <= 2).to(tl.float32)
    blurred = tl.dot(matching, near, input_precision="ieee")
    best = tl.argmax(tl.where(column < width, blurred, -1.0), 1)
    kept = tl.where(tl.abs(column - best[:, None]) <= 2, matching, 0.0)
    kept = kept * ((kept >= 1.0 / width).to(tl.float32) + 1e-6)
    total = tl.maximum(tl.sum(kept, 1), 1e-20)
    return tl.sum(kept * column.to(tl.float32), 1) / total - index.to(tl.float32)


@triton.jit
def store_x(pointer, first, index, real, x, EP: tl.constexpr):
    """Write a row's packed positions: cross x, all else zero."""
    column = tl.arange(0, EP)[None, :]
    at = pointer + (first + index)[:, None] * EP + column
    tl.store(at, tl.where(column == 0, x[:, None], 0.0), mask=real[:, None])


@triton.jit(do_not_specialize=["rows", "width"])
def stereo_transport_kernel(
    projected_pointer,
    bin_pointer,
    position_pointer,
    rows,
    width,
    scale,
    ITERATIONS: tl.constexpr,
    D: tl.constexpr,
    KB: tl.constexpr,
    WB: tl.constexpr,
    EP: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Packed positions (2 images, h, w, EP) from projected tokens (2 images, h, w, [q | k]); `rows` = images * h."""
    program = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, WB)
    real = index < width
    scores = tl.zeros((WB, WB), tl.float32)
    left = projected_pointer + program * width * (2 * D)
    right = projected_pointer + (program + rows) * width * (2 * D) + D
    wait_for_previous(OVERLAP)
    for start in range(0, D, KB):
        channel = start + tl.arange(0, KB)
        inside = real[:, None] & (channel < D)[None, :]
        q = tl.load(left + index[:, None] * (2 * D) + channel[None, :], mask=inside, other=0.0)
        k = tl.load(right + index[:, None] * (2 * D) + channel[None, :], mask=inside, other=0.0)
        scores = tl.dot(q, tl.trans(k), scores, input_precision="ieee")
    scores = tl.where(index[:, None] >= index[None, :], scores * scale, FORBIDDEN)
    scores = tl.where(real[:, None] & real[None, :], scores, NOTHING)

    bin_score = tl.load(bin_pointer)
    mass = tl.log(width.to(tl.float32))
    u = tl.where(real, 0.0, NOTHING)
    v = tl.where(real, 0.0, NOTHING)
    u_bin = bin_score * 0.0
    v_bin = bin_score * 0.0
    for _ in range(ITERATIONS):
        v = tl.where(real, -log_sum(scores + u[:, None], bin_score + u_bin, 0), NOTHING)
        v_bin = mass - log_sum_all(bin_score + u, bin_score + u_bin)
        u = tl.where(real, -log_sum(scores + v[None, :], bin_score + v_bin, 1), NOTHING)
        u_bin = mass - log_sum_all(bin_score + v, bin_score + v_bin)
    known = real[:, None] & real[None, :]
    matching = tl.where(known, tl.exp(tl.where(known, scores + u[:, None] + v[None, :], 0.0)), 0.0)
    store_x(position_pointer, program * width, index, real, expected_offset(matching, index, width, WB), EP)
    matching = tl.trans(matching)
    store_x(position_pointer, (program + rows) * width, index, real, expected_offset(matching, index, width, WB), EP)


def transport_position(projected: Tensor, bin_score: Tensor, iterations: int, row: int) -> Tensor:
    """Positions (2B, h, w, row) fp32 in tokens, x and then zeros, from queries beside keys (2B, h, w, 2d)."""
    images, height, width, both = projected.shape
    channels = both // 2
    position = torch.empty(images, height, width, row, dtype=torch.float32, device=projected.device)
    rows = images // 2 * height
    stereo_transport_kernel[(rows,)](
        projected,
        bin_score,
        position,
        rows,
        width,
        channels**-0.5,
        ITERATIONS=iterations,
        D=channels,
        KB=min(64, padded(channels)),
        WB=padded(width),
        EP=row,
        num_warps=NARROW_WARPS if width <= NARROW else 8,
        **overlapping(),
    )
    return position
