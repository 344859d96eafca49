# mypy: disable-error-code="assignment, var-annotated"
"""Half a MATBlock in one kernel, for inference: attention, output projection, residuals, and the next projection."""

import triton
import triton.language as tl

from matchattention.ops.match_attention.triton_window import (
    attend,
    flat_channels,
    flat_exists,
    place_window,
    stack,
    tile_of_queries,
)
from matchattention.ops.triton_overlap import wait_for_previous
from matchattention.runtime.kernels.rows import (
    first_columns,
    load_features,
    load_matrix,
    normalize,
    position_scale,
    project,
    store_features,
)


@triton.jit
def few_columns(values, pointer, rows, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EP: tl.constexpr):
    """(T, EP): values times the transpose of a stored (COLUMNS, ROWS) matrix, in fp32, for few columns."""
    column = tl.arange(0, EP)[None, :]
    total = tl.zeros((values.shape[0], EP), tl.float32)
    for i in tl.static_range(COLUMNS):
        weight = tl.load(pointer + i * ROWS + rows, mask=rows < ROWS, other=0.0).to(tl.float32)
        part = tl.sum(values.to(tl.float32) * weight[None, :], 1)[:, None]
        total = tl.where(column == i, part, total)
    return total


@triton.jit(do_not_specialize=["height", "width", "tiles_x", "tiles_y", "images"])
def block_attention_kernel(
    features_pointer,
    position_pointer,
    mixed_pointer,
    beta_pointer,
    out_pointer,
    out_weights_pointer,
    out_position_pointer,
    out_position_weights_pointer,
    matrix_pointer,
    extras_pointer,
    bias_pointer,
    new_features_pointer,
    new_position_pointer,
    next_pointer,
    height,
    width,
    tiles_x,
    tiles_y,
    images,
    gamma,
    eps,
    lowest_x,
    highest_x,
    last_x,
    lowest_y,
    highest_y,
    last_y,
    D: tl.constexpr,
    DB: tl.constexpr,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    G: tl.constexpr,
    C: tl.constexpr,
    SHIFTS: tl.constexpr,
    E: tl.constexpr,
    EP: tl.constexpr,
    N: tl.constexpr,
    NB: tl.constexpr,
    SHARES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    MIXED: tl.constexpr,
    RUN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    OVERHANGS: tl.constexpr,
    DOT: tl.constexpr,
    CROSS: tl.constexpr,
    KEEP_Y: tl.constexpr,
    TILE_Y: tl.constexpr,
    TILE_X: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Attend, project, add to features and positions; then, where N > 0, norm and project for what follows.

    Self: each head looks where its self position points, in the same view; the update moves every position. Cross: all
    heads look where the cross position points, in the other view; the output is gated, joined by the attention weights,
    and moves the cross position only. SHIFTS counts the position components that move.
    """
    T: tl.constexpr = TILE_Y * TILE_X
    INNER: tl.constexpr = HEADS * CHANNELS
    KEYS: tl.constexpr = ROWS * COLUMNS
    _, image, y, x, valid = tile_of_queries(height, width, tiles_x, tiles_y, 1, TILE_Y, TILE_X)
    token = (image * height + y) * width + x
    r_at = token[:, None] * EP
    if CROSS:
        source = (image + images // 2) % images
    else:
        source = image
        r_at = r_at + 2 + 2 * tl.minimum(tl.arange(0, G)[None, :], HEADS - 1)
    wait_for_previous(OVERLAP)
    limits = (lowest_x, highest_x, last_x, lowest_y, highest_y, last_y)
    row, column, right, below, _, _ = place_window(
        position_pointer, r_at, y[:, None], x[:, None], limits, 1, ROWS, COLUMNS
    )
    exists = flat_exists(0, HEADS, G, CHANNELS, C)
    channels = flat_channels(0, CHANNELS, G, CHANNELS, C)
    q = tl.load(mixed_pointer + token[:, None] * MIXED + channels, mask=exists, other=0.0).to(tl.float32)
    keys = mixed_pointer + source * height * width * MIXED + INNER
    attended, weights = attend(
        q,
        keys,
        keys + INNER,
        row,
        column,
        right,
        below,
        0,
        height,
        width,
        gamma,
        width * MIXED,
        MIXED,
        CHANNELS,
        RUN,
        width * MIXED,
        MIXED,
        CHANNELS,
        RUN,
        ROWS,
        COLUMNS,
        OVERHANGS,
        DOT,
        False,
        CHANNELS,
        CHANNELS,
        HEADS,
        T,
        G,
        C,
        C,
    )
    if CROSS and MIXED > 3 * INNER:
        gate = tl.load(mixed_pointer + token[:, None] * MIXED + 3 * INNER + channels, mask=exists, other=0.0)
        attended = attended * gate.to(tl.float32) * tl.sigmoid(gate.to(tl.float32))

    dtype = out_pointer.dtype.element_ty
    attended = attended.to(dtype)
    inner = tl.arange(0, G * C)
    if C != CHANNELS:
        inner = inner // C * CHANNELS + inner % C  # attended is zero where this runs into the next head
    feature_columns = tl.arange(0, DB)
    shift_columns = tl.arange(0, EP)
    update = tl.dot(attended, load_matrix(out_pointer, inner, feature_columns, INNER, D), input_precision="ieee")
    if CROSS:
        cues = stack(weights, KEYS, T, G).to(dtype)
        cue = tl.arange(0, G * KEYS)
        matrix = load_matrix(out_weights_pointer, cue, feature_columns, HEADS * KEYS, D)
        update = tl.dot(cues, matrix, update, input_precision="ieee")
        # Sums, not products: products of two columns would force their layout upon those of all features.
        shift = few_columns(attended, out_position_pointer, inner, INNER, SHIFTS, EP)
        shift += few_columns(cues, out_position_weights_pointer, cue, HEADS * KEYS, SHIFTS, EP)
    else:
        matrix = load_matrix(out_position_pointer, inner, shift_columns, INNER, SHIFTS)
        shift = tl.dot(attended, matrix, input_precision="ieee")
    features = load_features(features_pointer, token, 0, D, DB) + update
    once = valid & (tl.program_id(1) == 0)  # programs that share a tile all come to the same rows
    features = store_features(new_features_pointer, token, once, features, 0, D, DB)

    scale = position_scale(beta_pointer, EP)
    position_at = token[:, None] * EP + shift_columns[None, :]
    position = tl.load(position_pointer + position_at) + shift / scale
    if not KEEP_Y:
        position = tl.where(shift_columns[None, :] == 1, 0.0, position)
    tl.store(new_position_pointer + position_at, position, mask=once[:, None])

    if N > 0:
        normed, extras = normalize(features, position * scale, eps, D, DB, E, EP)
        project(
            normed,
            extras,
            first_columns(matrix_pointer, D, DB, N, NB, SHARES),
            matrix_pointer,
            extras_pointer,
            bias_pointer,
            next_pointer,
            token,
            valid,
            D,
            DB,
            E,
            EP,
            N,
            NB,
            SHARES,
            HAS_BIAS,
            False,
        )
