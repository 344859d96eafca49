# mypy: disable-error-code="assignment, var-annotated"
"""The operator for one head a program: its channels in chunks, a few lanes of a warp to each query.

Shapes inside a kernel: L lanes of a query, T queries of a tile, N keys of its window (padded), V neighbouring channels
of one lane (16 bytes). A chunk of features is (L, T, 1, V), of the window's keys (L, T, N, V). Everything that belongs
to a query is (L, T), the same in all its lanes: the compiler then gives neighbouring lanes to one query and all keys to
one thread, channels are summed by a few shuffles, and nothing passes through shared memory.
"""

import triton
import triton.language as tl

from matchattention.ops.match_attention.triton_window import (
    LOG2E,
    MASKED,
    place_window,
    share_of,
    sign,
)

# What changes with an image's size and its place in memory: no new kernel for it.
SIZES = [
    "height",
    "width",
    "band",
    "bands",
    "R_BATCH",
    "R_ROW",
    "R_COLUMN",
    "R_HEAD",
    "R_AXIS",
    "Q_BATCH",
    "Q_ROW",
    "K_BATCH",
    "K_ROW",
    "V_BATCH",
    "V_ROW",
]


@triton.jit
def tile_of_lanes(
    height, width, band, bands, GROUPS: tl.constexpr, TILE_Y: tl.constexpr, TILE_X: tl.constexpr, L: tl.constexpr
):
    """Group of heads, image, and (L, T) rows, columns and validity of this program's queries.

    The grid is that of `wide_tiling`: groups run fastest, because they share tokens, then the tiles across a band, then
    down it. Queries beyond the map repeat its last row or column.
    """
    group = tl.program_id(0) % GROUPS
    image = tl.program_id(2) // bands
    tile_x = (tl.program_id(2) - image * bands) * band + tl.program_id(0) // GROUPS
    index = tl.arange(0, TILE_Y * TILE_X)[None, :] + tl.zeros((L, 1), tl.int32)
    y = tl.program_id(1) * TILE_Y + index // TILE_X
    x = tile_x * TILE_X + index % TILE_X
    valid = (y < height) & (x < width)
    return group, image.to(tl.int64), tl.minimum(y, height - 1), tl.minimum(x, width - 1), valid


@triton.jit
def lane_channels(L: tl.constexpr, V: tl.constexpr):
    """(L, 1, 1, V): the channels of each lane within a chunk."""
    return tl.arange(0, L)[:, None, None, None] * V + tl.arange(0, V)[None, None, None, :]


@triton.jit
def first_keys(pointer, row, column, ROW_STRIDE, COLUMN_STRIDE: tl.constexpr, LARGE: tl.constexpr):
    """(L, T, 1, 1) pointers to the first keys of windows."""
    if LARGE:
        first = row.to(tl.int64) * ROW_STRIDE + column.to(tl.int64) * COLUMN_STRIDE
    else:
        first = row * ROW_STRIDE + column * COLUMN_STRIDE
    return pointer + first[:, :, None, None]


@triton.jit
def existing_keys(
    row, column, height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr, OVERHANGS: tl.constexpr, N: tl.constexpr
):
    """(1 or L, 1 or T, N): which keys are in the window and on the map."""
    j = tl.arange(0, N)[None, None, :]
    exist = j < ROWS * COLUMNS
    if OVERHANGS:
        exist = exist & (row[:, :, None] + j // COLUMNS < height) & (column[:, :, None] + j % COLUMNS < width)
    return exist


@triton.jit
def load_chunk(pointer, at, CHANNELS: tl.constexpr, CHUNK: tl.constexpr, L: tl.constexpr, V: tl.constexpr):
    """(L, T, 1, V) in fp32: a chunk of features, 0 beyond the channels."""
    here = pointer + lane_channels(L, V) + at
    if CHANNELS % CHUNK:
        exists = tl.broadcast_to(at + lane_channels(L, V) < CHANNELS, here.shape)
        return tl.load(here, mask=exists, other=0.0).to(tl.float32)
    else:
        return tl.load(here).to(tl.float32)


@triton.jit
def load_keys(
    pointer,
    at,
    exist,
    ROW_STRIDE,
    COLUMN_STRIDE: tl.constexpr,
    COLUMNS: tl.constexpr,
    MASKED_KEYS: tl.constexpr,
    CHANNELS: tl.constexpr,
    CHUNK: tl.constexpr,
    L: tl.constexpr,
    N: tl.constexpr,
    V: tl.constexpr,
):
    """(L, T, N, V) in fp32: a chunk of the windows whose first keys are at `pointer`, 0 for what does not exist."""
    j = tl.arange(0, N)[None, None, :, None]
    # In this order, so that only rows take additions: columns are constants in the loads.
    here = pointer + lane_channels(L, V) + at + j // COLUMNS * ROW_STRIDE + j % COLUMNS * COLUMN_STRIDE
    if MASKED_KEYS or CHANNELS % CHUNK:
        mask = exist[:, :, :, None] & (at + lane_channels(L, V) < CHANNELS)
        return tl.load(here, mask=tl.broadcast_to(mask, here.shape), other=0.0).to(tl.float32)
    else:
        return tl.load(here).to(tl.float32)


@triton.jit
def store_chunk(
    pointer, at, values, valid, CHANNELS: tl.constexpr, CHUNK: tl.constexpr, L: tl.constexpr, V: tl.constexpr
):
    """Store a chunk (L, T, 1, V) of the queries' features from `pointer` (L, T, 1, 1) on."""
    mask = valid[:, :, None, None]
    if CHANNELS % CHUNK:
        mask = mask & (at + lane_channels(L, V) < CHANNELS)
    tl.store(pointer + lane_channels(L, V) + at, values.to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def window_sums(
    query_from,
    keys_from,
    before,
    exist,
    ROW_STRIDE,
    COLUMN_STRIDE: tl.constexpr,
    COLUMNS: tl.constexpr,
    MASKED_KEYS: tl.constexpr,
    DOT: tl.constexpr,
    CHANNELS: tl.constexpr,
    CHUNK: tl.constexpr,
    L: tl.constexpr,
    T: tl.constexpr,
    N: tl.constexpr,
    V: tl.constexpr,
):
    """(1, T, N): products of query and key, or their L1 distances, summed over the channels.

    `before` (L, T, N) holds parts that are summed with them.
    """
    parts = before
    for at in tl.range(0, CHANNELS, CHUNK):
        query = load_chunk(query_from, at, CHANNELS, CHUNK, L, V)
        keys = load_keys(
            keys_from, at, exist, ROW_STRIDE, COLUMN_STRIDE, COLUMNS, MASKED_KEYS, CHANNELS, CHUNK, L, N, V
        )
        parts += tl.sum(query * keys if DOT else tl.abs(query - keys), 3)
    return tl.sum(parts, 0, keep_dims=True)


@triton.jit
def is_in(CORNER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, N: tl.constexpr):
    """(1, 1, N): which keys lie in a sub-window."""
    j = tl.arange(0, N)[None, None, :]
    x = j % COLUMNS - CORNER % 2
    inside = (x >= 0) & (x < COLUMNS - 1) & (j < ROWS * COLUMNS)
    if ROWS > 1:
        y = j // COLUMNS - CORNER // 2
        inside = inside & (y >= 0) & (y < ROWS - 1)
    return inside


@triton.jit
def softmax_of(scores, inside):
    """Exponentials of one sub-window's scores below its own maximum (0 outside it), and one over their sum (1, T, 1).

    Each sub-window has its own maximum: with a shared one, a sub-window far below the best key would be 0 / 0.
    """
    scores = tl.where(inside, scores, float("-inf"))
    exponentials = tl.exp2(scores - tl.max(scores, 2, keep_dims=True))
    # What lies outside is known when compiling. Selected away, and -0 in sums, it costs nothing.
    return exponentials, 1.0 / tl.sum(tl.where(inside, exponentials, -0.0), 2, keep_dims=True)


@triton.jit
def sample(
    scores,
    grads,
    right,
    below,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    L: tl.constexpr,
    T: tl.constexpr,
    N: tl.constexpr,
):
    """`triton_window.sample` in this layout: weights and scores' gradients (L, T, N), the fractions' (L, T)."""
    weights = tl.zeros((L, T, N), tl.float32)
    score_grads = tl.zeros((L, T, N), tl.float32)
    grad_right = tl.zeros((L, T), tl.float32)
    grad_below = tl.zeros((L, T), tl.float32)
    for corner in tl.static_range(2 if ROWS == 1 else 4):
        inside = is_in(corner, ROWS, COLUMNS, N)
        exponentials, inverse = softmax_of(scores, inside)
        if grads is not None:
            mean = tl.sum(tl.where(inside, exponentials * grads, -0.0), 2, keep_dims=True) * inverse
        part = exponentials * (share_of(right, below, corner, ROWS)[:, :, None] * inverse)
        weights = tl.where(inside, weights + part, weights)
        if grads is not None:
            score_grads = tl.where(inside, score_grads + part * (grads - mean), score_grads)
            along_x = tl.sum(mean, 2)
            if ROWS > 1:
                along_y = along_x * (right if corner % 2 == 1 else 1.0 - right)
                along_x = along_x * (below if corner // 2 == 1 else 1.0 - below)
                grad_below += along_y if corner // 2 == 1 else -along_y
            grad_right += along_x if corner % 2 == 1 else -along_x
    return weights, score_grads, grad_right, grad_below


@triton.jit
def dealt_keys(L: tl.constexpr, N: tl.constexpr):
    """(L, 1, N / L): the keys whose values each lane loads or stores."""
    return tl.arange(0, L)[:, None, None] * (N // L) + tl.arange(0, N // L)[None, None, :]


@triton.jit
def deal(values, L: tl.constexpr, T: tl.constexpr, N: tl.constexpr):
    """(L, T, N / L): of a window's values (L, T, N), those that each lane stores."""
    mine = tl.arange(0, L)[:, None, None, None] == tl.arange(0, L)[None, None, :, None]
    return tl.sum(tl.where(mine, tl.reshape(values, (L, T, L, N // L)), -0.0), 2)


@triton.jit
def undealt(values, L: tl.constexpr, T: tl.constexpr, N: tl.constexpr):
    """(L, T, N) from what each lane has loaded, (L, T, N / L): 0 where another lane has the value."""
    mine = tl.arange(0, L)[:, None, None, None] == tl.arange(0, L)[None, None, :, None]
    return tl.reshape(tl.where(mine, values[:, :, None, :], 0.0), (L, T, N))


@triton.jit(do_not_specialize=SIZES)
def match_attention_wide_forward_kernel(
    q_pointer,
    k_pointer,
    v_pointer,
    r_pointer,
    out_pointer,
    weights_pointer,
    height,
    width,
    band,
    bands,
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
    CHUNK: tl.constexpr,
    L: tl.constexpr,
    N: tl.constexpr,
    V: tl.constexpr,
    TILE_Y: tl.constexpr,
    TILE_X: tl.constexpr,
    DOT: tl.constexpr,
    PER_HEAD: tl.constexpr,
    LARGE: tl.constexpr,
    NEED_WEIGHTS: tl.constexpr,
    IN_TURN: tl.constexpr,
):
    """One tile of queries, and IN_TURN heads one after the other."""
    T: tl.constexpr = TILE_Y * TILE_X
    KEYS: tl.constexpr = ROWS * COLUMNS
    MASKED_KEYS: tl.constexpr = OVERHANGS or N != KEYS
    group, image, y, x, valid = tile_of_lanes(height, width, band, bands, HEADS // IN_TURN, TILE_Y, TILE_X, L)
    token = (image * height + y) * width + x
    r_at = image * R_BATCH + y.to(tl.int64) * R_ROW + x * R_COLUMN
    limits = (lowest_x, highest_x, last_x, lowest_y, highest_y, last_y)
    if not PER_HEAD:
        row, column, right, below, _, _ = place_window(r_pointer, r_at, y, x, limits, R_AXIS, ROWS, COLUMNS)
    for turn in tl.range(0, IN_TURN):
        head = group * IN_TURN + turn
        if PER_HEAD:
            row, column, right, below, _, _ = place_window(
                r_pointer, r_at + head * R_HEAD, y, x, limits, R_AXIS, ROWS, COLUMNS
            )
        exist = existing_keys(row, column, height, width, ROWS, COLUMNS, OVERHANGS, N)
        q_at = image * (Q_BATCH * Q_UNIT) + y.to(tl.int64) * (Q_ROW * Q_UNIT) + x * Q_COLUMN + head * Q_HEAD
        k_from = k_pointer + image * (K_BATCH * K_UNIT) + head * K_HEAD
        k_from = first_keys(k_from, row, column, K_ROW * K_UNIT, K_COLUMN, LARGE)
        distances = window_sums(
            q_pointer + q_at[:, :, None, None],
            k_from,
            tl.zeros((L, T, N), tl.float32),
            exist,
            K_ROW * K_UNIT,
            K_COLUMN,
            COLUMNS,
            MASKED_KEYS,
            DOT,
            CHANNELS,
            CHUNK,
            L,
            T,
            N,
            V,
        )
        scores = distances * (gamma * LOG2E if DOT else -gamma * LOG2E)
        if MASKED_KEYS:
            scores = tl.where(exist, scores, MASKED)
        weights, _, _, _ = sample(scores, None, right, below, ROWS, COLUMNS, L, T, N)

        v_from = v_pointer + image * (V_BATCH * V_UNIT) + head * V_HEAD
        v_from = first_keys(v_from, row, column, V_ROW * V_UNIT, V_COLUMN, LARGE)
        out_to = out_pointer + (token * (HEADS * VALUE_CHANNELS) + head * VALUE_CHANNELS)[:, :, None, None]
        for at in tl.range(0, VALUE_CHANNELS, CHUNK):
            values = load_keys(
                v_from, at, exist, V_ROW * V_UNIT, V_COLUMN, COLUMNS, MASKED_KEYS, VALUE_CHANNELS, CHUNK, L, N, V
            )
            total = tl.sum(weights[:, :, :, None] * values, 2, keep_dims=True)
            store_chunk(out_to, at, total, valid, VALUE_CHANNELS, CHUNK, L, V)
        if NEED_WEIGHTS:
            at = dealt_keys(L, N)
            weights_to = weights_pointer + (token * (HEADS * KEYS) + head * KEYS)[:, :, None] + at
            tl.store(weights_to, deal(weights, L, T, N), mask=valid[:, :, None] & (at < KEYS))


@triton.jit(do_not_specialize=SIZES)
def match_attention_coefficients_kernel(
    q_pointer,
    k_pointer,
    v_pointer,
    r_pointer,
    grad_out_pointer,
    grad_weights_pointer,
    grad_q_pointer,
    coefficients_pointer,
    grad_r_pointer,
    start_pointer,
    height,
    width,
    band,
    bands,
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
    CHUNK: tl.constexpr,
    L: tl.constexpr,
    N: tl.constexpr,
    V: tl.constexpr,
    TILE_Y: tl.constexpr,
    TILE_X: tl.constexpr,
    DOT: tl.constexpr,
    PER_HEAD: tl.constexpr,
    LARGE: tl.constexpr,
    HAS_GRAD_WEIGHTS: tl.constexpr,
):
    """What a query knows of its gradients: its own, its position's, and what it gives to each key of its window.

    `coefficients` (tokens, HEADS, keys, 2) takes the gradient of each score times gamma, and the weight; `start` the
    first key of each window, `grad_r` (tokens, HEADS, 2) the position's gradient.
    """
    T: tl.constexpr = TILE_Y * TILE_X
    KEYS: tl.constexpr = ROWS * COLUMNS
    MASKED_KEYS: tl.constexpr = OVERHANGS or N != KEYS
    head, image, y, x, valid = tile_of_lanes(height, width, band, bands, HEADS, TILE_Y, TILE_X, L)
    token = (image * height + y) * width + x
    r_at = image * R_BATCH + y.to(tl.int64) * R_ROW + x * R_COLUMN
    if PER_HEAD:
        r_at = r_at + head * R_HEAD
    limits = (lowest_x, highest_x, last_x, lowest_y, highest_y, last_y)
    row, column, right, below, centre_x, centre_y = place_window(r_pointer, r_at, y, x, limits, R_AXIS, ROWS, COLUMNS)
    exist = existing_keys(row, column, height, width, ROWS, COLUMNS, OVERHANGS, N)
    q_at = image * (Q_BATCH * Q_UNIT) + y.to(tl.int64) * (Q_ROW * Q_UNIT) + x * Q_COLUMN + head * Q_HEAD
    q_from = q_pointer + q_at[:, :, None, None]
    k_from = k_pointer + image * (K_BATCH * K_UNIT) + head * K_HEAD
    k_from = first_keys(k_from, row, column, K_ROW * K_UNIT, K_COLUMN, LARGE)
    distances = window_sums(
        q_from,
        k_from,
        tl.zeros((L, T, N), tl.float32),
        exist,
        K_ROW * K_UNIT,
        K_COLUMN,
        COLUMNS,
        MASKED_KEYS,
        DOT,
        CHANNELS,
        CHUNK,
        L,
        T,
        N,
        V,
    )
    scores = distances * (gamma * LOG2E if DOT else -gamma * LOG2E)
    if MASKED_KEYS:
        scores = tl.where(exist, scores, MASKED)

    token_head = token * HEADS + head
    if HAS_GRAD_WEIGHTS:
        given = tl.load(
            grad_weights_pointer + (token_head * KEYS)[:, :, None] + dealt_keys(L, N),
            mask=valid[:, :, None] & (dealt_keys(L, N) < KEYS),
            other=0.0,
        )
        given = undealt(given, L, T, N)
    else:
        given = tl.zeros((L, T, N), tl.float32)
    v_from = v_pointer + image * (V_BATCH * V_UNIT) + head * V_HEAD
    v_from = first_keys(v_from, row, column, V_ROW * V_UNIT, V_COLUMN, LARGE)
    grad_out_from = grad_out_pointer + (token_head * VALUE_CHANNELS)[:, :, None, None]
    grads = window_sums(
        grad_out_from,
        v_from,
        given,
        exist,
        V_ROW * V_UNIT,
        V_COLUMN,
        COLUMNS,
        MASKED_KEYS,
        True,
        VALUE_CHANNELS,
        CHUNK,
        L,
        T,
        N,
        V,
    )
    weights, score_grads, grad_right, grad_below = sample(scores, grads, right, below, ROWS, COLUMNS, L, T, N)
    pull = score_grads * gamma

    pairs = tl.join(deal(pull, L, T, N), deal(weights, L, T, N))
    pairs_at = ((token_head * KEYS)[:, :, None] + dealt_keys(L, N))[:, :, :, None] * 2 + tl.arange(0, 2)
    pairs_mask = valid[:, :, None] & (dealt_keys(L, N) < KEYS)
    tl.store(coefficients_pointer + pairs_at, pairs, mask=pairs_mask[:, :, :, None])
    once = valid & (tl.arange(0, L)[:, None] == 0)
    start_key = (image * height + row) * width + column
    if PER_HEAD:
        above = head.to(tl.int64) * (tl.num_programs(2) // bands) * height * width
        tl.store(start_pointer + above + token, above + start_key, mask=once)
    else:
        tl.store(start_pointer + token, start_key, mask=once & (head == 0))
    # The clamp has no gradient outside.
    grad_x = tl.where((centre_x >= lowest_x) & (centre_x <= highest_x), grad_right, 0.0)
    grad_y = tl.zeros_like(grad_x)
    if ROWS > 1:
        grad_y = tl.where((centre_y >= lowest_y) & (centre_y <= highest_y), grad_below, 0.0)
    tl.store(grad_r_pointer + token_head * 2, grad_x, mask=once)
    tl.store(grad_r_pointer + token_head * 2 + 1, grad_y, mask=once)

    grad_q_to = grad_q_pointer + (token_head * CHANNELS)[:, :, None, None]
    for at in tl.range(0, CHANNELS, CHUNK):
        keys = load_keys(k_from, at, exist, K_ROW * K_UNIT, K_COLUMN, COLUMNS, MASKED_KEYS, CHANNELS, CHUNK, L, N, V)
        if not DOT:
            keys = sign(keys - load_chunk(q_from, at, CHANNELS, CHUNK, L, V))
        total = tl.sum(pull[:, :, :, None] * keys, 2, keep_dims=True)
        store_chunk(grad_q_to, at, total, valid, CHANNELS, CHUNK, L, V)
