# mypy: disable-error-code="assignment, var-annotated"
"""The operator's backward pass: weights are computed again.

Gradients of q and of the relative position belong to one query and are written once. Those of k and v are sums over
every query that looks at a key, which only the positions know. There are two ways to them:

- fp32 atomics: one kernel, here, nothing of the window's size stored, for narrow heads. The order of the sums varies
  from run to run.
- `triton_gather`: a kernel of `triton_wide` leaves the two coefficients of every query and key, queries are sorted by
  where they look, and another kernel collects them key by key, without atomics and in a fixed order. For wide heads and
  2D windows, where atomics would move each gradient once a query; and what `torch.use_deterministic_algorithms(True)`
  gets.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from matchattention.ops.match_attention import triton_tiles
from matchattention.ops.match_attention.triton_gather import gather
from matchattention.ops.match_attention.triton_tiles import (
    ELEMENTS_PER_THREAD,
    call_arguments,
    group_arguments,
    is_wide,
    readable,
    run_of,
    tiling,
    wide_tiling,
)
from matchattention.ops.match_attention.triton_wide import match_attention_coefficients_kernel
from matchattention.ops.match_attention.triton_window import (
    channel_offsets,
    flat_channels,
    flat_exists,
    fold,
    key_offset,
    load_key,
    mask_overhang,
    place_window,
    sample,
    score,
    sign,
    spread,
    tile_of_queries,
)

# A thread holds what belongs to each key of its window: 36 of them fill its registers and take the compiler seconds.
MOST_KEYS = 16


@triton.jit
def match_attention_backward_kernel(
    q_pointer,
    k_pointer,
    v_pointer,
    r_pointer,
    grad_out_pointer,
    grad_weights_pointer,
    grad_q_pointer,
    grad_k_pointer,
    grad_v_pointer,
    grad_r_pointer,
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
    LARGE: tl.constexpr,
    K_RUN: tl.constexpr,
    V_RUN: tl.constexpr,
    GRAD_RUN: tl.constexpr,
    GRAD_V_RUN: tl.constexpr,
    HAS_GRAD_WEIGHTS: tl.constexpr,
):
    """All gradients of a group of heads; those of k and v are added in memory."""
    T: tl.constexpr = TILE_Y * TILE_X
    KEYS: tl.constexpr = ROWS * COLUMNS
    group, image, y, x, valid = tile_of_queries(height, width, tiles_x, tiles_y, groups, TILE_Y, TILE_X)
    head = group * G + tl.arange(0, G)[None, :]
    token = (image * height + y[:, None]) * width + x[:, None]

    r_at = image * R_BATCH + y[:, None].to(tl.int64) * R_ROW + x[:, None] * R_COLUMN
    if PER_HEAD:
        r_at = r_at + tl.minimum(head, HEADS - 1) * R_HEAD
    limits = (lowest_x, highest_x, last_x, lowest_y, highest_y, last_y)
    row, column, right, below, centre_x, centre_y = place_window(
        r_pointer, r_at, y[:, None], x[:, None], limits, R_AXIS, ROWS, COLUMNS
    )
    exists = flat_exists(group, HEADS, G, CHANNELS, C)
    v_exists = flat_exists(group, HEADS, G, VALUE_CHANNELS, CV)
    q_at = image * (Q_BATCH * Q_UNIT) + y[:, None].to(tl.int64) * (Q_ROW * Q_UNIT) + x[:, None] * Q_COLUMN
    q = tl.load(q_pointer + q_at + flat_channels(group, Q_HEAD, G, CHANNELS, C), mask=exists, other=0.0).to(tl.float32)
    out_channels = flat_channels(group, VALUE_CHANNELS, G, VALUE_CHANNELS, CV)
    grad_out = tl.load(
        grad_out_pointer + token * (HEADS * VALUE_CHANNELS) + out_channels, mask=valid[:, None] & v_exists, other=0.0
    ).to(tl.float32)

    k_base = k_pointer + image * (K_BATCH * K_UNIT)
    v_base = v_pointer + image * (V_BATCH * V_UNIT)
    k_channels = flat_channels(group, K_HEAD, G, CHANNELS, C)
    v_channels = flat_channels(group, V_HEAD, G, VALUE_CHANNELS, CV)
    scores = ()
    grads = ()
    for j in tl.static_range(KEYS):
        offset = key_offset(row, column, K_ROW * K_UNIT, K_COLUMN, j, COLUMNS, LARGE)
        key = load_key(
            k_base, offset, k_channels, exists, row, column, height, width, j, COLUMNS, T, G, C, OVERHANGS, K_RUN
        )
        s = score(q, key, gamma, DOT, T, G, C)
        scores = scores + (mask_overhang(s, row, column, height, width, j, COLUMNS, OVERHANGS),)
        offset = key_offset(row, column, V_ROW * V_UNIT, V_COLUMN, j, COLUMNS, LARGE)
        value = load_key(
            v_base, offset, v_channels, v_exists, row, column, height, width, j, COLUMNS, T, G, CV, OVERHANGS, V_RUN
        )
        g = tl.sum(fold(grad_out * value, T, G, CV), 2)
        if HAS_GRAD_WEIGHTS:
            g += tl.load(
                grad_weights_pointer + token * (HEADS * KEYS) + head * KEYS + j,
                mask=valid[:, None] & (head < HEADS),
                other=0.0,
            )
        grads = grads + (g,)

    weights, score_grads, grad_right, grad_below = sample(scores, grads, right, below, ROWS, COLUMNS)

    # Gradients of keys are contiguous buffers: (B, H, W, heads, c).
    grad_k_base = grad_k_pointer + image * height * width * (HEADS * CHANNELS)
    grad_v_base = grad_v_pointer + image * height * width * (HEADS * VALUE_CHANNELS)
    grad_channels = flat_channels(group, CHANNELS, G, CHANNELS, C)
    grad_q = tl.zeros((T, G * C), tl.float32)
    for j in tl.static_range(KEYS):
        offset = key_offset(row, column, K_ROW * K_UNIT, K_COLUMN, j, COLUMNS, LARGE)
        key = load_key(
            k_base, offset, k_channels, exists, row, column, height, width, j, COLUMNS, T, G, C, OVERHANGS, K_RUN
        )
        pull = spread(score_grads[j] * gamma, T, G, C)
        if DOT:
            grad_q += pull * key
            grad_key = pull * q
        else:
            grad_key = pull * sign(q - key)
            grad_q -= grad_key
        inside = valid[:, None]
        if OVERHANGS:
            inside = inside & (row + j // COLUMNS < height) & (column + j % COLUMNS < width)
        offset = key_offset(row, column, width * (HEADS * CHANNELS), HEADS * CHANNELS, j, COLUMNS, LARGE)
        at = channel_offsets(offset, grad_channels, T, G, C, GRAD_RUN)
        tl.atomic_add(grad_k_base + at, grad_key, mask=spread(inside, T, G, C) & exists, sem="relaxed")
        offset = key_offset(row, column, width * (HEADS * VALUE_CHANNELS), HEADS * VALUE_CHANNELS, j, COLUMNS, LARGE)
        at = channel_offsets(offset, out_channels, T, G, CV, GRAD_V_RUN)
        grad_value = spread(weights[j], T, G, CV) * grad_out
        tl.atomic_add(grad_v_base + at, grad_value, mask=spread(inside, T, G, CV) & v_exists, sem="relaxed")

    tl.store(
        grad_q_pointer + token * (HEADS * CHANNELS) + grad_channels,
        grad_q.to(grad_q_pointer.dtype.element_ty),
        mask=valid[:, None] & exists,
    )
    # The clamp has no gradient outside.
    grad_x = tl.where((centre_x >= lowest_x) & (centre_x <= highest_x), grad_right, 0.0)
    grad_y = tl.zeros_like(grad_x)
    if ROWS > 1:
        grad_y = tl.where((centre_y >= lowest_y) & (centre_y <= highest_y), grad_below, 0.0)
    if PER_HEAD:
        r_mask = valid[:, None] & (head < HEADS)
        r_grad_at = (token * HEADS + head) * 2
    else:
        # One position for all heads: this group's part of the sum.
        grad_x = tl.sum(tl.where(head < HEADS, grad_x, 0.0), 1)[:, None]
        grad_y = tl.sum(tl.where(head < HEADS, grad_y, 0.0), 1)[:, None]
        r_mask = valid[:, None]
        r_grad_at = (token * groups + group) * 2
    tl.store(grad_r_pointer + r_grad_at, grad_x, mask=r_mask)
    tl.store(grad_r_pointer + r_grad_at + 1, grad_y, mask=r_mask)


def backward(
    grad_out: Tensor,
    grad_weights: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative_position: Tensor,
    window: tuple[int, int],
    dot: bool,
    atomic: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Launch the backward kernels.

    Args:
        grad_out: (B, H, W, heads, c_v).
        grad_weights: (B, H, W, heads, rows*columns) fp32, or None when the weights were not used.
        q, k, v, relative_position, window, dot: as in `forward`.
        atomic: which way to k's and v's gradients; None for the better one.

    Returns:
        Gradients of q, k, v (contiguous, in their dtypes) and of the relative position (fp32).
    """
    if grad_out.numel() == 0:
        return tuple(torch.zeros(t.shape, dtype=t.dtype, device=t.device) for t in (q, k, v, relative_position))  # type: ignore[return-value]
    if atomic is None:
        atomic = not is_wide(q, v, window) and not torch.are_deterministic_algorithms_enabled()
    grad_out = grad_out.contiguous()
    grad_weights = None if grad_weights is None else grad_weights.contiguous()
    way = _added if atomic else _gathered
    return way(grad_out, grad_weights, readable(q), readable(k), readable(v), relative_position, window, dot)


def _added(
    grad_out: Tensor,
    grad_weights: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative_position: Tensor,
    window: tuple[int, int],
    dot: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients by atomics."""
    grad_q = q.new_empty(q.shape)
    grad_k, grad_v = (torch.zeros(t.shape, dtype=torch.float32, device=t.device) for t in (k, v))
    cut = tiling(q, v, window, ELEMENTS_PER_THREAD if window[0] == 1 else ELEMENTS_PER_THREAD // 2)
    per_head = relative_position.shape[3] > 1
    grad_r = relative_position.new_empty((*q.shape[:3], q.shape[3] if per_head else cut.groups, 2))
    match_attention_backward_kernel[(cut.programs,)](
        q,
        k,
        v,
        relative_position,
        grad_out,
        grad_out if grad_weights is None else grad_weights,
        grad_q,
        grad_k,
        grad_v,
        grad_r,
        HAS_GRAD_WEIGHTS=grad_weights is not None,
        GRAD_RUN=run_of(grad_k),
        GRAD_V_RUN=run_of(grad_v),
        **call_arguments(q, k, v, relative_position, window, dot),
        **group_arguments(k, v, cut),
    )
    if not per_head and cut.groups > 1:
        grad_r = grad_r.sum(3, keepdim=True)
    return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype), grad_r


def _gathered(
    grad_out: Tensor,
    grad_weights: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative_position: Tensor,
    window: tuple[int, int],
    dot: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients by coefficients and `gather`."""
    grad_q, grad_r, coefficients, start = coefficients_of(
        grad_out, grad_weights, q, k, v, relative_position, window, dot
    )
    per_head = relative_position.shape[3] > 1
    if not per_head and q.shape[3] > 1:
        grad_r = grad_r.sum(3, keepdim=True)
    return grad_q, *gather(q, k, v, grad_out, coefficients, start, window, dot, per_head), grad_r


def coefficients_of(
    grad_out: Tensor,
    grad_weights: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative_position: Tensor,
    window: tuple[int, int],
    dot: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What each query knows of the gradients, before any key has collected them.

    Returns:
        Gradient of q; that of the relative position (B, H, W, heads, 2); two coefficients a query and key
        (B, H, W, heads, keys, 2); the first key of each window, (heads or 1) * B * H * W.
    """
    grad_q = q.new_empty(q.shape)
    grad_r = relative_position.new_empty((*q.shape[:4], 2))
    coefficients = q.new_empty((*q.shape[:4], window[0] * window[1], 2), dtype=torch.float32)
    places = relative_position[..., 0].numel()
    start = q.new_empty(places, dtype=torch.int32 if places < 2**31 else torch.int64)
    (across, down, bands), cut = wide_tiling(q, v, window, triton_tiles.COEFFICIENTS_CUT)
    match_attention_coefficients_kernel[(across * q.shape[3], down, bands)](
        q,
        k,
        v,
        relative_position,
        grad_out,
        grad_out if grad_weights is None else grad_weights,
        grad_q,
        coefficients,
        grad_r,
        start,
        HAS_GRAD_WEIGHTS=grad_weights is not None,
        **call_arguments(q, k, v, relative_position, window, dot),
        **cut,
    )
    return grad_q, grad_r, coefficients, start
