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

from matchattention.ops.match_attention import triton_tiles
from matchattention.ops.match_attention.triton_tiles import may_overflow, wide_tiling
from matchattention.ops.match_attention.triton_wide import lane_channels, tile_of_lanes
from matchattention.ops.match_attention.triton_window import sign

# Chunks of channels that one program sums side by side.
MOST_CHUNKS = 4


@triton.jit
def load_block(pointer, lanes, at, CHANNELS: tl.constexpr, PADDED: tl.constexpr):
    """(L, T, S, V) features in fp32 from `pointer` (L, T, 1, 1) on; 0 beyond CHANNELS."""
    here = pointer + lanes + at
    if CHANNELS == PADDED:
        return tl.load(here).to(tl.float32)
    else:
        return tl.load(here, mask=tl.broadcast_to(lanes + at < CHANNELS, here.shape), other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["height", "width", "band", "bands"])
def match_attention_gather_kernel(
    q_pointer,
    k_pointer,
    grad_out_pointer,
    coefficients_pointer,
    order_pointer,
    sorted_pointer,
    first_pointer,
    grad_k_pointer,
    grad_v_pointer,
    height,
    width,
    band,
    bands,
    Q_TOKEN: tl.constexpr,
    Q_HEAD: tl.constexpr,
    K_TOKEN: tl.constexpr,
    K_HEAD: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHANNELS: tl.constexpr,
    VALUE_CHANNELS: tl.constexpr,
    HEADS: tl.constexpr,
    CHUNK: tl.constexpr,
    S: tl.constexpr,
    BLOCKS: tl.constexpr,
    AT_ONCE: tl.constexpr,
    L: tl.constexpr,
    N: tl.constexpr,
    V: tl.constexpr,
    TILE_Y: tl.constexpr,
    TILE_X: tl.constexpr,
    DOT: tl.constexpr,
    PER_HEAD: tl.constexpr,
    LARGE: tl.constexpr,
):
    """One tile of keys, and S of the BLOCKS * S chunks of one head's channels; other shapes as in `triton_wide`.

    `coefficients` (tokens, HEADS, keys, 2) are what a query gives to each key of its window; `order` are the queries
    sorted by the first key of their window, `sorted` those first keys, and `first` where each first key begins in them.
    """
    T: tl.constexpr = TILE_Y * TILE_X
    KEYS: tl.constexpr = ROWS * COLUMNS
    index = tl.int64 if LARGE else tl.int32
    group, image, y, x, valid = tile_of_lanes(height, width, band, bands, HEADS * BLOCKS, TILE_Y, TILE_X, L)
    head = group // BLOCKS
    images = tl.num_programs(2) // bands
    token = ((image * height + y) * width + x).to(index)
    above = head.to(index) * images * height * width if PER_HEAD else tl.zeros((), index)

    # The runs of the window's rows one after the other: where each ends, and how far its place is from its number.
    ends = ()
    shifts = ()
    total = tl.zeros((L, T), index)
    for dy in tl.static_range(ROWS):
        line = above + token - tl.minimum(y, dy) * width
        begin = tl.load(first_pointer + line - tl.minimum(x, COLUMNS - 1)).to(index)
        count = tl.load(first_pointer + line + 1).to(index) - begin
        shifts = shifts + (begin - total,)
        total += tl.where(y >= dy, count, 0)
        ends = ends + (total,)

    # A key that no query looks at reads some query, which weighs nothing.
    last_shift = tl.where(total > 0, shifts[ROWS - 1], above)

    BLOCK: tl.constexpr = CHUNK * S
    at = tl.arange(0, S)[None, None, :, None] * CHUNK
    lanes = group % BLOCKS * BLOCK + lane_channels(L, V)
    k_from = k_pointer + (token * K_TOKEN + head * K_HEAD)[:, :, None, None]
    k = load_block(k_from, lanes, at, CHANNELS, BLOCK * BLOCKS)
    grad_k = tl.zeros((L, T, S, V), tl.float32)
    grad_v = tl.zeros((L, T, S, V), tl.float32)
    longest = tl.max(tl.max(total, 1), 0)
    number = longest * 0
    while number < longest:
        for i in tl.static_range(AT_ONCE):
            # Past its own end a key reads its last query again, which weighs nothing then.
            mine = tl.maximum(tl.minimum(number + i, total - 1), 0)
            shift = last_shift
            skipped = tl.full((L, T), (ROWS - 1) * (width - COLUMNS), tl.int32)
            for dy in tl.static_range(ROWS - 2, -1, -1):
                shift = tl.where(mine < ends[dy], shifts[dy], shift)
                skipped = tl.where(mine < ends[dy], dy * (width - COLUMNS), skipped)
            query = tl.load(order_pointer + (mine + shift)).to(index) - above
            key = (above + token - tl.load(sorted_pointer + (mine + shift)).to(index)).to(tl.int32) - skipped
            coefficient_at = ((query * HEADS + head) * KEYS + key)[:, :, None] * 2 + tl.arange(0, 2)[None, None, :]
            here = (number + i < total)[:, :, None]
            pull, weight = tl.split(tl.load(coefficients_pointer + coefficient_at, mask=here, other=0.0))
            q_from = q_pointer + (query * Q_TOKEN + head * Q_HEAD)[:, :, None, None]
            q = load_block(q_from, lanes, at, CHANNELS, BLOCK * BLOCKS)
            grad_k += pull[:, :, None, None] * (q if DOT else sign(q - k))
            grad_out_from = grad_out_pointer + ((query * HEADS + head) * VALUE_CHANNELS)[:, :, None, None]
            grad_out = load_block(grad_out_from, lanes, at, VALUE_CHANNELS, BLOCK * BLOCKS)
            grad_v += weight[:, :, None, None] * grad_out
        number += AT_ONCE
    seen = (total > 0)[:, :, None, None]
    valid = valid[:, :, None, None]
    k_to = grad_k_pointer + ((token * HEADS + head) * CHANNELS)[:, :, None, None]
    grad_k = tl.where(seen, grad_k, 0.0).to(grad_k_pointer.dtype.element_ty)
    tl.store(k_to + lanes + at, grad_k, mask=valid & (lanes + at < CHANNELS))
    v_to = grad_v_pointer + ((token * HEADS + head) * VALUE_CHANNELS)[:, :, None, None]
    grad_v = tl.where(seen, grad_v, 0.0).to(grad_v_pointer.dtype.element_ty)
    tl.store(v_to + lanes + at, grad_v, mask=valid & (lanes + at < VALUE_CHANNELS))


def sorted_by_start(start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """First keys in order, the queries in that order, and where each first key begins among them."""
    sorted_starts, order = torch.sort(start, stable=True)
    everywhere = torch.arange(start.numel() + 1, dtype=start.dtype, device=start.device)
    first = torch.searchsorted(sorted_starts, everywhere, out_int32=start.dtype == torch.int32)
    return sorted_starts, order, first


def collect(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad_out: Tensor,
    coefficients: Tensor,
    sorted_starts: Tensor,
    order: Tensor,
    first: Tensor,
    window: tuple[int, int],
    dot: bool,
    per_head: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients of k and v from what `gather` has sorted."""
    q, k = _token_strided(q), _token_strided(k)
    heads = k.shape[3]
    (across, down, bands), cut = wide_tiling(k, v, window, triton_tiles.GATHER_CUT)
    chunks = -(-max(k.shape[-1], v.shape[-1]) // cut["CHUNK"])
    blocks = -(-chunks // MOST_CHUNKS)
    grad_k, grad_v = k.new_empty(k.shape), v.new_empty(v.shape)
    match_attention_gather_kernel[(across * heads * blocks, down, bands)](
        q,
        k,
        grad_out,
        coefficients,
        order,
        sorted_starts,
        first,
        grad_k,
        grad_v,
        height=k.shape[1],
        width=k.shape[2],
        Q_TOKEN=q.stride(2),
        Q_HEAD=q.stride(3),
        K_TOKEN=k.stride(2),
        K_HEAD=k.stride(3),
        ROWS=window[0],
        COLUMNS=window[1],
        CHANNELS=k.shape[-1],
        VALUE_CHANNELS=v.shape[-1],
        HEADS=heads,
        S=triton.next_power_of_2(-(-chunks // blocks)),
        BLOCKS=blocks,
        AT_ONCE=triton_tiles.GATHER_CUT.queries_at_once,
        DOT=dot,
        PER_HEAD=per_head,
        LARGE=any(may_overflow(t) for t in (q, k, grad_out, coefficients)),
        **cut,
    )
    return grad_k, grad_v


def gather(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad_out: Tensor,
    coefficients: Tensor,
    start: Tensor,
    window: tuple[int, int],
    dot: bool,
    per_head: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients of k and v.

    Args:
        q, k, v: (B, H, W, heads, c), channels contiguous.
        grad_out: (B, H, W, heads, c_v), contiguous.
        coefficients: (B, H, W, heads, keys, 2): gradient of each score times gamma, and its weight.
        start: (heads or 1) * B * H * W first keys, heads outermost: head * B * H * W + (image * H + row) * W + column.
        window: rows x columns.
        dot: whether the similarity is the dot product.
        per_head: whether positions differ between heads.
    """
    return collect(q, k, v, grad_out, coefficients, *sorted_by_start(start), window, dot, per_head)


def _token_strided(features: Tensor) -> Tensor:
    """`features` with one stride over all tokens: itself where rows and images follow each other evenly."""
    _, height, width, _, _ = features.shape
    batch, row, column, _, _ = features.stride()
    even = (row == width * column or height == 1) and (batch == height * width * column or features.shape[0] == 1)
    return features if even else features.contiguous()
