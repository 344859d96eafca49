# mypy: disable-error-code="assignment, var-annotated"
"""Rows of features through LayerNorms and projections, for inference: what lies between operations that look around.

A program holds whole rows of a tile of tokens, so that a projection, the residual, the next LayerNorm and the next
projection are one launch. Positions of a token are one row of fp32: cross x, cross y, then x and y of every head's self
position, padded to EP columns; the first E of them are normed together with the features. LayerNorm weights are folded
into the projection behind them. Sums are fp32; features are rounded where they are stored.
"""

import triton
import triton.language as tl

from matchattention.ops.triton_overlap import wait_for_previous


def padded(size: int, least: int = 16) -> int:
    """A power of two that tensor cores take."""
    return max(least, triton.next_power_of_2(size))


@triton.jit
def load_matrix(pointer, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A (rows, columns) tile of the transpose of a stored (COLUMNS, ROWS) matrix; zero beyond it."""
    mask = (rows[:, None] < ROWS) & (columns[None, :] < COLUMNS)
    return tl.load(pointer + columns[None, :] * ROWS + rows[:, None], mask=mask, other=0.0)


@triton.jit
def load_features(pointer, token, first, D: tl.constexpr, DB: tl.constexpr):
    """(T, DB) fp32 channels, from the first on, of rows of (tokens, D)."""
    channel = first + tl.arange(0, DB)[None, :]
    return tl.load(pointer + token[:, None] * D + channel, mask=channel < D, other=0.0).to(tl.float32)


@triton.jit
def store_features(pointer, token, valid, values, first, D: tl.constexpr, DB: tl.constexpr):
    """Write (T, DB) channels, from the first on; returns them as rounded, which is what a separate kernel reads."""
    channel = first + tl.arange(0, DB)[None, :]
    rounded = values.to(pointer.dtype.element_ty)
    tl.store(pointer + token[:, None] * D + channel, rounded, mask=valid[:, None] & (channel < D))
    return rounded.to(tl.float32)


@triton.jit
def position_scale(beta_pointer, EP: tl.constexpr):
    """(1, EP): beta for the two cross components, one for the self components."""
    column = tl.arange(0, EP)[None, :]
    return tl.load(beta_pointer + column, mask=column < 2, other=1.0)


@triton.jit
def scaled_positions(position_pointer, beta_pointer, token, E: tl.constexpr, EP: tl.constexpr, T: tl.constexpr):
    """(T, EP) positions as features; zeros where a LayerNorm does not see them."""
    if E > 0:
        column = tl.arange(0, EP)[None, :]
        return tl.load(position_pointer + token[:, None] * EP + column) * position_scale(beta_pointer, EP)
    else:
        return tl.zeros((T, EP), tl.float32)


@triton.jit
def normalize(features, extras, eps, D: tl.constexpr, DB: tl.constexpr, E: tl.constexpr, EP: tl.constexpr):
    """LayerNorm over D features and the first E extras together, without its weight; both parts in fp32."""
    channel = tl.arange(0, DB)[None, :] < D
    extra = tl.arange(0, EP)[None, :] < E
    count: tl.constexpr = D + E
    total = tl.sum(tl.where(channel, features, 0.0), 1)
    if E > 0:
        total += tl.sum(tl.where(extra, extras, 0.0), 1)
    mean = (total / count)[:, None]
    features = tl.where(channel, features - mean, 0.0)
    extras = tl.where(extra, extras - mean, 0.0)
    total = tl.sum(features * features, 1)
    if E > 0:
        total += tl.sum(extras * extras, 1)
    scale = (1.0 / tl.sqrt(total / count + eps))[:, None]
    return features * scale, extras * scale


@triton.jit
def gelu(value):
    """The exact one."""
    return 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))


@triton.constexpr_function
def columns_of_program(outputs, columns, shares):
    """Of a program that divides a projection's columns with others: a multiple of those multiplied at once."""
    return -(-outputs // (shares * columns)) * columns


@triton.jit
def first_columns(
    matrix_pointer, D: tl.constexpr, DB: tl.constexpr, N: tl.constexpr, NB: tl.constexpr, SHARES: tl.constexpr
):
    """What `project` begins with, loaded early: the program's part of the matrix where that is one tile."""
    if columns_of_program(N, NB, SHARES) == NB:
        columns = tl.program_id(1) * NB + tl.arange(0, NB)
        return load_matrix(matrix_pointer, tl.arange(0, DB), columns, D, N)
    else:
        return 0


@triton.jit
def project(
    normed,
    extras,
    loaded,
    matrix_pointer,
    extras_pointer,
    bias_pointer,
    out_pointer,
    token,
    valid,
    D: tl.constexpr,
    DB: tl.constexpr,
    E: tl.constexpr,
    EP: tl.constexpr,
    N: tl.constexpr,
    NB: tl.constexpr,
    SHARES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    GELU: tl.constexpr,
):
    """Multiply normed rows by a stored (N, D) matrix and its (N, E) part for the extras; write (tokens, N).

    The SHARES programs of the grid's second axis have the same rows and divide the columns among them. `loaded` is
    what `first_columns` found.
    """
    SHARE: tl.constexpr = columns_of_program(N, NB, SHARES)
    first = tl.program_id(1) * SHARE
    dtype = matrix_pointer.dtype.element_ty
    a = normed.to(dtype)
    b = extras.to(dtype)
    rows = tl.arange(0, DB)
    extra_rows = tl.arange(0, EP)
    for start in range(0, SHARE, NB):
        columns = first + start + tl.arange(0, NB)
        if SHARE == NB:
            matrix = loaded
        else:
            matrix = load_matrix(matrix_pointer, rows, columns, D, N)
        total = tl.dot(a, matrix, input_precision="ieee")
        if E > 0:
            total = tl.dot(b, load_matrix(extras_pointer, extra_rows, columns, E, N), total, input_precision="ieee")
        if HAS_BIAS:
            total += tl.load(bias_pointer + columns[None, :], mask=columns[None, :] < N, other=0.0)
        if GELU:
            total = gelu(total)
        mask = valid[:, None] & (columns[None, :] < N)
        tl.store(out_pointer + token[:, None] * N + columns[None, :], total.to(out_pointer.dtype.element_ty), mask=mask)


@triton.jit
def tile_of_tokens(tokens, T: tl.constexpr):
    """(T,) token indices of this program, kept inside, and which of them are real."""
    token = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    return tl.minimum(token, tokens - 1), token < tokens


@triton.jit(do_not_specialize=["tokens"])
def norm_project_kernel(
    features_pointer,
    shift_pointer,
    position_pointer,
    beta_pointer,
    matrix_pointer,
    extras_pointer,
    bias_pointer,
    new_features_pointer,
    out_pointer,
    tokens,
    eps,
    D: tl.constexpr,
    DB: tl.constexpr,
    E: tl.constexpr,
    EP: tl.constexpr,
    N: tl.constexpr,
    NB: tl.constexpr,
    SHARES: tl.constexpr,
    HAS_SHIFT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    GELU: tl.constexpr,
    T: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """LayerNorm of [features, positions], then a projection; HAS_SHIFT adds a vector to all features first."""
    token, valid = tile_of_tokens(tokens, T)
    loaded = first_columns(matrix_pointer, D, DB, N, NB, SHARES)
    wait_for_previous(OVERLAP)
    features = load_features(features_pointer, token, 0, D, DB)
    if HAS_SHIFT:
        columns = tl.arange(0, DB)[None, :]
        features += tl.load(shift_pointer + columns, mask=columns < D, other=0.0)
        once = valid & (tl.program_id(1) == 0)
        features = store_features(new_features_pointer, token, once, features, 0, D, DB)
    extras = scaled_positions(position_pointer, beta_pointer, token, E, EP, T)
    features, extras = normalize(features, extras, eps, D, DB, E, EP)
    project(
        features,
        extras,
        loaded,
        matrix_pointer,
        extras_pointer,
        bias_pointer,
        out_pointer,
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
        GELU,
    )


@triton.jit(do_not_specialize=["tokens"])
def contract_kernel(
    features_pointer,
    scale_pointer,
    hidden_pointer,
    contract_pointer,
    contract_bias_pointer,
    position_pointer,
    beta_pointer,
    matrix_pointer,
    extras_pointer,
    bias_pointer,
    new_features_pointer,
    next_pointer,
    tokens,
    eps,
    D: tl.constexpr,
    DB: tl.constexpr,
    HIDDEN: tl.constexpr,
    KB: tl.constexpr,
    HAS_SCALE: tl.constexpr,
    HAS_CONTRACT_BIAS: tl.constexpr,
    E: tl.constexpr,
    EP: tl.constexpr,
    N: tl.constexpr,
    NB: tl.constexpr,
    SHARES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    GELU: tl.constexpr,
    NORMED: tl.constexpr,
    T: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """features * scale + hidden @ matrix + bias; then, where N > 0, LayerNorm and the next projection.

    With NORMED the LayerNorm's result itself is what comes next. With nothing to come, the programs of the grid's
    second axis divide the features' columns among them, DB each.
    """
    token, valid = tile_of_tokens(tokens, T)
    WHOLE: tl.constexpr = N > 0 or NORMED
    first = 0 if WHOLE else tl.program_id(1) * DB
    columns = first + tl.arange(0, DB)
    wait_for_previous(OVERLAP)
    total = tl.zeros((T, DB), tl.float32)
    for start in range(0, HIDDEN, KB):
        channel = start + tl.arange(0, KB)
        at = token[:, None] * HIDDEN + channel[None, :]
        hidden = tl.load(hidden_pointer + at, mask=channel[None, :] < HIDDEN, other=0.0)
        matrix = load_matrix(contract_pointer, channel, columns, HIDDEN, D)
        total = tl.dot(hidden, matrix, total, input_precision="ieee")
    real = columns[None, :] < D
    if HAS_CONTRACT_BIAS:
        total += tl.load(contract_bias_pointer + columns[None, :], mask=real, other=0.0)
    features = load_features(features_pointer, token, first, D, DB)
    if HAS_SCALE:
        features = features * tl.load(scale_pointer + columns[None, :], mask=real, other=0.0)
    once = valid & (tl.program_id(1) == 0) if WHOLE else valid
    features = store_features(new_features_pointer, token, once, features + total, first, D, DB)
    if N > 0:
        extras = scaled_positions(position_pointer, beta_pointer, token, E, EP, T)
        normed, extras = normalize(features, extras, eps, D, DB, E, EP)
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
            GELU,
        )
    if NORMED:
        normed, _ = normalize(features, scaled_positions(position_pointer, beta_pointer, token, 0, EP, T), eps,
                              D, DB, 0, EP)  # fmt: skip
        store_features(next_pointer, token, once, normed, 0, D, DB)
