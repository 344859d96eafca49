# mypy: disable-error-code="assignment, var-annotated"
"""Half a MATBlock in one kernel, for inference: attention, output projection, residuals, and the next projection."""

import triton
import triton.language as tl

from matchattention.ops.triton_rows import (
    load_features,
    load_matrix,
    normalize,
    position_scale,
    project,
    store_features,
)
from matchattention.ops.triton_window import (
    attend,
    flat_channels,
    flat_exists,
    place_window,
    stack,
    tile_of_queries,
)


@triton.jit
def block_attention_kernel(
    features_pointer, position_pointer, mixed_pointer, beta_pointer,
    out_pointer, out_weights_pointer, out_position_pointer, out_position_weights_pointer,
    matrix_pointer, extras_pointer, bias_pointer,
    new_features_pointer, new_position_pointer, next_pointer,
    height, width, tiles_x, tiles_y, images, gamma, eps,
    lowest_x, highest_x, last_x, lowest_y, highest_y, last_y,
    D: tl.constexpr, DB: tl.constexpr, HEADS: tl.constexpr, CHANNELS: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
    SHIFTS: tl.constexpr, E: tl.constexpr, EP: tl.constexpr, N: tl.constexpr, NB: tl.constexpr, HAS_BIAS: tl.constexpr,
    MIXED: tl.constexpr, RUN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, OVERHANGS: tl.constexpr,
    DOT: tl.constexpr, CROSS: tl.constexpr, KEEP_Y: tl.constexpr, TILE_Y: tl.constexpr, TILE_X: tl.constexpr,
):
    """Attend, project, add to features and positions, norm, and project for what follows.

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
    row, column, right, below = place_window(
        position_pointer, r_at, y, x, lowest_x, highest_x, last_x, lowest_y, highest_y, last_y, 1, ROWS, COLUMNS
    )
    exists = flat_exists(0, HEADS, G, CHANNELS, C)
    channels = flat_channels(0, CHANNELS, G, CHANNELS, C)
    q = tl.load(mixed_pointer + token[:, None] * MIXED + channels, mask=exists, other=0.0).to(tl.float32)
    keys = mixed_pointer + source * height * width * MIXED + INNER
    attended, weights = attend(
        q, keys, keys + INNER, row, column, right, below, 0, height, width, gamma,
        width * MIXED, MIXED, CHANNELS, RUN, width * MIXED, MIXED, CHANNELS, RUN,
        ROWS, COLUMNS, OVERHANGS, DOT, False, CHANNELS, CHANNELS, HEADS, T, G, C, C,
    )
    if CROSS and MIXED > 3 * INNER:
        gate = tl.load(mixed_pointer + token[:, None] * MIXED + 3 * INNER + channels, mask=exists, other=0.0)
        attended = attended * gate.to(tl.float32) * tl.sigmoid(gate.to(tl.float32))

    # The few columns that move positions are never rounded below fp32.
    dtype = out_pointer.dtype.element_ty
    attended = attended.to(dtype)
    inner = tl.arange(0, G * C)
    feature_columns = tl.arange(0, DB)
    shift_columns = tl.arange(0, EP)
    update = tl.dot(attended, load_matrix(out_pointer, inner, feature_columns, INNER, D), input_precision="ieee")
    matrix = load_matrix(out_position_pointer, inner, shift_columns, INNER, SHIFTS)
    shift = tl.dot(attended, matrix, input_precision="ieee")
    if CROSS:
        cues = stack(weights, KEYS, T, G).to(dtype)
        cue = tl.arange(0, G * KEYS)
        matrix = load_matrix(out_weights_pointer, cue, feature_columns, HEADS * KEYS, D)
        update = tl.dot(cues, matrix, update, input_precision="ieee")
        matrix = load_matrix(out_position_weights_pointer, cue, shift_columns, HEADS * KEYS, SHIFTS)
        shift = tl.dot(cues, matrix, shift, input_precision="ieee")
    features = load_features(features_pointer, token, D, DB) + update
    features = store_features(new_features_pointer, token, valid, features, D, DB)

    scale = position_scale(beta_pointer, EP)
    position_at = token[:, None] * EP + shift_columns[None, :]
    position = tl.load(position_pointer + position_at) + shift / scale
    if not KEEP_Y:
        position = tl.where(shift_columns[None, :] == 1, 0.0, position)
    tl.store(new_position_pointer + position_at, position, mask=valid[:, None])

    normed, extras = normalize(features, position * scale, eps, D, DB, E, EP)
    project(
        normed, extras, matrix_pointer, extras_pointer, bias_pointer, next_pointer, token, valid,
        D, DB, E, EP, N, NB, HAS_BIAS, False,
    )
