# mypy: disable-error-code="assignment, var-annotated"
"""The operator's forward pass in one kernel: keys, CAS weights and values of a tile, nothing written in between.

The kernel here works on groups of narrow heads; `triton_wide` has the one for wide heads and 2D windows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from matchattention.ops.match_attention import triton_tiles
from matchattention.ops.match_attention.triton_tiles import (
    call_arguments,
    group_arguments,
    heads_in_turn,
    is_wide,
    readable,
    tiling,
    wide_tiling,
)
from matchattention.ops.match_attention.triton_wide import match_attention_wide_forward_kernel
from matchattention.ops.match_attention.triton_window import (
    attend,
    flat_channels,
    flat_exists,
    place_window,
    stack,
    tile_of_queries,
)


@triton.jit
def match_attention_forward_kernel(
    q_pointer,
    k_pointer,
    v_pointer,
    r_pointer,
    out_pointer,
    weights_pointer,
    height,
    width,
    tiles_x,
    tiles_y,
    groups,
    gamma,
    lowest_x,
    highest_x,
    last_x,
    lowest_y,
    highest_y,
    last_y,
    R_BATCH,
    R_ROW,
    R_COLUMN,
    R_HEAD,
    R_AXIS,
    Q_BATCH,
    Q_ROW,
    Q_UNIT: tl.constexpr,
    Q_COLUMN: tl.constexpr,
    Q_HEAD: tl.constexpr,
    K_BATCH,
    K_ROW,
    K_UNIT: tl.constexpr,
    K_COLUMN: tl.constexpr,
    K_HEAD: tl.constexpr,
    V_BATCH,
    V_ROW,
    V_UNIT: tl.constexpr,
    V_COLUMN: tl.constexpr,
    V_HEAD: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    OVERHANGS: tl.constexpr,
    CHANNELS: tl.constexpr,
    VALUE_CHANNELS: tl.constexpr,
    HEADS: tl.constexpr,
    C: tl.constexpr,
    CV: tl.constexpr,
    G: tl.constexpr,
    TILE_Y: tl.constexpr,
    TILE_X: tl.constexpr,
    DOT: tl.constexpr,
    PER_HEAD: tl.constexpr,
    NEED_WEIGHTS: tl.constexpr,
    LARGE: tl.constexpr,
    K_RUN: tl.constexpr,
    V_RUN: tl.constexpr,
):
    T: tl.constexpr = TILE_Y * TILE_X
    KEYS: tl.constexpr = ROWS * COLUMNS
    group, image, y, x, valid = tile_of_queries(height, width, tiles_x, tiles_y, groups, TILE_Y, TILE_X)
    head = group * G + tl.arange(0, G)[None, :]

    r_at = image * R_BATCH + y[:, None].to(tl.int64) * R_ROW + x[:, None] * R_COLUMN
    if PER_HEAD:
        r_at = r_at + tl.minimum(head, HEADS - 1) * R_HEAD
    limits = (lowest_x, highest_x, last_x, lowest_y, highest_y, last_y)
    row, column, right, below, _, _ = place_window(
        r_pointer, r_at, y[:, None], x[:, None], limits, R_AXIS, ROWS, COLUMNS
    )
    exists = flat_exists(group, HEADS, G, CHANNELS, C)
    q_at = image * (Q_BATCH * Q_UNIT) + y[:, None].to(tl.int64) * (Q_ROW * Q_UNIT) + x[:, None] * Q_COLUMN
    q = tl.load(q_pointer + q_at + flat_channels(group, Q_HEAD, G, CHANNELS, C), mask=exists, other=0.0).to(tl.float32)
    total, weights = attend(
        q,
        k_pointer + image * (K_BATCH * K_UNIT),
        v_pointer + image * (V_BATCH * V_UNIT),
        row,
        column,
        right,
        below,
        group,
        height,
        width,
        gamma,
        K_ROW * K_UNIT,
        K_COLUMN,
        K_HEAD,
        K_RUN,
        V_ROW * V_UNIT,
        V_COLUMN,
        V_HEAD,
        V_RUN,
        ROWS,
        COLUMNS,
        OVERHANGS,
        DOT,
        LARGE,
        CHANNELS,
        VALUE_CHANNELS,
        HEADS,
        T,
        G,
        C,
        CV,
    )

    v_exists = flat_exists(group, HEADS, G, VALUE_CHANNELS, CV)
    token = (image * height + y[:, None]) * width + x[:, None]
    out_at = token * (HEADS * VALUE_CHANNELS) + flat_channels(group, VALUE_CHANNELS, G, VALUE_CHANNELS, CV)
    tl.store(out_pointer + out_at, total.to(out_pointer.dtype.element_ty), mask=valid[:, None] & v_exists)
    if NEED_WEIGHTS:
        if (KEYS & (KEYS - 1)) == 0:
            at = token * (HEADS * KEYS) + flat_channels(group, KEYS, G, KEYS, KEYS)
            found = flat_exists(group, HEADS, G, KEYS, KEYS)
            tl.store(weights_pointer + at, stack(weights, KEYS, T, G), mask=valid[:, None] & found)
        else:
            for j in tl.static_range(KEYS):
                at = token * (HEADS * KEYS) + head * KEYS + j
                tl.store(weights_pointer + at, weights[j], mask=valid[:, None] & (head < HEADS))


def forward(
    q: Tensor, k: Tensor, v: Tensor, relative_position: Tensor, window: tuple[int, int], dot: bool, need_weights: bool
) -> tuple[Tensor, Tensor]:
    """Launch a forward kernel.

    Returns:
        Values (B, H, W, heads, c_v) in v's dtype, and weights (B, H, W, heads, rows*columns) in fp32, or an empty
        tensor when they are not needed.
    """
    out = v.new_empty(v.shape)
    weights = q.new_empty((*q.shape[:4], window[0] * window[1]) if need_weights else (0,), dtype=torch.float32)
    if out.numel() == 0:
        return out, weights
    q, k, v = readable(q), readable(k), readable(v)
    arguments = call_arguments(q, k, v, relative_position, window, dot)
    if is_wide(q, v, window):
        (across, down, bands), cut = wide_tiling(q, v, window, triton_tiles.FORWARD_CUT)
        in_turn = heads_in_turn(across * down * bands, q.shape[3], triton_tiles.FORWARD_CUT)
        match_attention_wide_forward_kernel[(across * q.shape[3] // in_turn, down, bands)](
            q,
            k,
            v,
            relative_position,
            out,
            weights,
            NEED_WEIGHTS=need_weights,
            IN_TURN=in_turn,
            **arguments,
            **cut,
        )
    else:
        groups = tiling(q, v, window)
        match_attention_forward_kernel[(groups.programs,)](
            q,
            k,
            v,
            relative_position,
            out,
            weights,
            NEED_WEIGHTS=need_weights,
            **arguments,
            **group_arguments(k, v, groups),
        )
    return out, weights
