# mypy: disable-error-code="assignment, var-annotated"
"""Gradients of k and v without atomics: each key collects from the queries that look at it.

Queries are sorted by the first key of their window. The queries whose window covers a key then lie in one run of the
sorted list for each row of the window, because neighbouring first keys are neighbours in the list. Sums have a fixed
order: the result is the same in every run.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from matchattention.ops.triton_tiles import ELEMENTS_PER_THREAD, run_of, tiling
from matchattention.ops.triton_window import (
    channel_offsets,
    flat_channels,
    flat_exists,
    sign,
    spread,
    tile_of_queries,
)


@triton.jit
def match_attention_gather_kernel(
    q_pointer, k_pointer, grad_out_pointer, pull_pointer, weights_pointer,
    order_pointer, sorted_pointer, first_pointer, grad_k_pointer, grad_v_pointer,
    height, width, tiles_x, tiles_y, groups,
    Q_TOKEN: tl.constexpr, Q_HEAD: tl.constexpr, K_TOKEN: tl.constexpr, K_HEAD: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr, VALUE_CHANNELS: tl.constexpr,
    HEADS: tl.constexpr, C: tl.constexpr, CV: tl.constexpr, G: tl.constexpr,
    TILE_Y: tl.constexpr, TILE_X: tl.constexpr, DOT: tl.constexpr, PER_HEAD: tl.constexpr,
    Q_RUN: tl.constexpr, V_RUN: tl.constexpr,
):
    """One tile of keys and one group of heads.

    `pull` and `weights` (tokens, HEADS, keys) are what a query gives to each key of its window; `order` are the queries
    sorted by the first key of their window, `sorted` those first keys, and `first` where each first key begins in them.
    """
    T: tl.constexpr = TILE_Y * TILE_X
    KEYS: tl.constexpr = ROWS * COLUMNS
    group, image, y, x, valid = tile_of_queries(height, width, tiles_x, tiles_y, groups, TILE_Y, TILE_X)
    token = (image * height + y[:, None]) * width + x[:, None]
    head = group * G + tl.arange(0, G)[None, :]
    if PER_HEAD:
        images = tl.num_programs(0) // (groups * tiles_x * tiles_y)
        above = tl.minimum(head, HEADS - 1).to(tl.int64) * (images * height * width)
    else:
        above = tl.zeros((1, 1), tl.int64)
    exists = flat_exists(group, HEADS, G, CHANNELS, C)
    v_exists = flat_exists(group, HEADS, G, VALUE_CHANNELS, CV)
    q_channels = flat_channels(group, Q_HEAD, G, CHANNELS, C)
    v_channels = flat_channels(group, VALUE_CHANNELS, G, VALUE_CHANNELS, CV)
    k_at = token * K_TOKEN + flat_channels(group, K_HEAD, G, CHANNELS, C)
    key = tl.load(k_pointer + k_at, mask=exists, other=0.0).to(tl.float32)
    grad_k = tl.zeros((T, G * C), tl.float32)
    grad_v = tl.zeros((T, G * CV), tl.float32)
    for dy in tl.static_range(ROWS):
        line = y[:, None] - dy
        at = above + (image * height + tl.maximum(line, 0)) * width
        begin = tl.load(first_pointer + at + tl.maximum(x[:, None] - (COLUMNS - 1), 0))
        count = tl.load(first_pointer + at + x[:, None] + 1) - begin
        count = tl.where(valid[:, None] & (line >= 0), count, 0)
        longest = tl.max(tl.max(count, 1), 0)
        i = longest * 0
        while i < longest:
            here = i < count
            query = tl.load(order_pointer + begin + i, mask=here, other=0) - above
            query = tl.where(here, query, 0)
            column = tl.load(sorted_pointer + begin + i, mask=here, other=0) - at
            j = tl.where(here, dy * COLUMNS + x[:, None] - column, 0)
            coefficient = (query * HEADS + head) * KEYS + j
            known = here & (head < HEADS)
            pull = tl.load(pull_pointer + coefficient, mask=known, other=0.0)
            weight = tl.load(weights_pointer + coefficient, mask=known, other=0.0)
            q_at = channel_offsets(query * Q_TOKEN, q_channels, T, G, C, Q_RUN)
            q = tl.load(q_pointer + q_at, mask=spread(here, T, G, C) & exists, other=0.0).to(tl.float32)
            v_at = channel_offsets(query * (HEADS * VALUE_CHANNELS), v_channels, T, G, CV, V_RUN)
            grad_out = tl.load(grad_out_pointer + v_at, mask=spread(here, T, G, CV) & v_exists, other=0.0)
            if DOT:
                grad_k += spread(pull, T, G, C) * q
            else:
                grad_k += spread(pull, T, G, C) * sign(q - key)
            grad_v += spread(weight, T, G, CV) * grad_out.to(tl.float32)
            i += 1
    at = token * (HEADS * CHANNELS) + flat_channels(group, CHANNELS, G, CHANNELS, C)
    tl.store(grad_k_pointer + at, grad_k.to(grad_k_pointer.dtype.element_ty), mask=valid[:, None] & exists)
    at = token * (HEADS * VALUE_CHANNELS) + v_channels
    tl.store(grad_v_pointer + at, grad_v.to(grad_v_pointer.dtype.element_ty), mask=valid[:, None] & v_exists)


def gather(
    q: Tensor, k: Tensor, v: Tensor, grad_out: Tensor, pull: Tensor, weights: Tensor, start: Tensor,
    window: tuple[int, int], dot: bool, per_head: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients of k and v.

    Args:
        q, k, v: (B, H, W, heads, c), channels contiguous.
        grad_out: (B, H, W, heads, c_v), contiguous.
        pull: (B, H, W, heads, keys) gradient of each score times gamma.
        weights: (B, H, W, heads, keys) attention weights.
        start: (heads or 1) * B * H * W first keys, heads outermost: head * B * H * W + (image * H + row) * W + column.
        window: rows x columns.
        dot: whether the similarity is the dot product.
        per_head: whether positions differ between heads.
    """
    sorted_starts, order = torch.sort(start, stable=True)
    everywhere = torch.arange(start.numel() + 1, dtype=start.dtype, device=start.device)
    first = torch.searchsorted(sorted_starts, everywhere)
    q, k = _token_strided(q), _token_strided(k)
    cut = tiling(k, v, window, ELEMENTS_PER_THREAD)
    grad_k, grad_v = k.new_empty(k.shape), v.new_empty(v.shape)
    match_attention_gather_kernel[(cut.programs,)](
        q, k, grad_out, pull, weights, order, sorted_starts, first, grad_k, grad_v,
        height=k.shape[1], width=k.shape[2], tiles_x=cut.tiles_x, tiles_y=cut.tiles_y, groups=cut.groups,
        Q_TOKEN=q.stride(2), Q_HEAD=q.stride(3), K_TOKEN=k.stride(2), K_HEAD=k.stride(3),
        ROWS=window[0], COLUMNS=window[1], CHANNELS=k.shape[-1], VALUE_CHANNELS=v.shape[-1], HEADS=k.shape[3],
        C=cut.channel_block, CV=cut.value_block, G=cut.head_block, TILE_Y=cut.tile_y, TILE_X=cut.tile_x,
        DOT=dot, PER_HEAD=per_head, Q_RUN=run_of(q), V_RUN=run_of(grad_out), num_warps=cut.warps,
    )
    return grad_k, grad_v


def _token_strided(features: Tensor) -> Tensor:
    """`features` with one stride over all tokens: itself where rows and images follow each other evenly."""
    _, height, width, _, _ = features.shape
    batch, row, column, _, _ = features.stride()
    even = (row == width * column or height == 1) and (batch == height * width * column or features.shape[0] == 1)
    return features if even else features.contiguous()
