# mypy: disable-error-code="assignment, var-annotated"
"""The parts that the forward and backward kernels share: a tile's windows, its scores, its CAS weights.

Shapes inside a kernel: T queries of a tile, G heads of a group, C channels of a head (padded to powers of two).
Features are loaded flat, (T, G*C), so that two channels a head still make wide loads, and folded to (T, G, C) to be
summed. Values of one key of the window are (T, G) tensors, kept in a tuple over the window, row-major: they live in
registers, and no tensor is (w+1)^2 times its input.
"""

import triton
import triton.language as tl

# log2(e): exponentials are powers of two on the hardware.
LOG2E = tl.constexpr(1.4426950408889634)

# A finite "minus infinity", as in the reference: weights of keys beyond a map narrower than the window vanish
# without making a sub-window that holds no key at all NaN.
MASKED = tl.constexpr(-1e30)


@triton.jit
def tile_of_queries(height, width, tiles_x, tiles_y, groups, TILE_Y: tl.constexpr, TILE_X: tl.constexpr):
    """Group of heads, image, and (T,) rows, columns and validity of this program's queries.

    Groups run fastest: the heads of a token share cache lines. Queries beyond the map repeat its last row or column,
    so that every address they form is a valid one.
    """
    program = tl.program_id(0)
    group = program % groups
    program = program // groups
    tile_x = program % tiles_x
    program = program // tiles_x
    tile_y = program % tiles_y
    image = program // tiles_y
    index = tl.arange(0, TILE_Y * TILE_X)
    y = tile_y * TILE_Y + index // TILE_X
    x = tile_x * TILE_X + index % TILE_X
    valid = (y < height) & (x < width)
    return group, image.to(tl.int64), tl.minimum(y, height - 1), tl.minimum(x, width - 1), valid


@triton.jit
def place_axis(centre, lowest, highest, last, EXTENT: tl.constexpr):
    """First key of the window along one axis, and the fraction that weighs the farther sub-windows.

    A NaN is placed somewhere valid, and the fraction brings it back into the result.
    """
    known = tl.where(centre == centre, centre, lowest)
    inside = tl.minimum(tl.maximum(known, lowest), highest)
    base = tl.minimum(tl.floor(inside), last)
    fraction = tl.where(centre == centre, inside - base, centre)
    return base.to(tl.int32) - (EXTENT - 2) // 2, fraction


@triton.jit
def fold(flat, T: tl.constexpr, G: tl.constexpr, C: tl.constexpr):
    """(T, G*C) as (T, G, C)."""
    return tl.reshape(flat, (T, G, C))


@triton.jit
def spread(values, T: tl.constexpr, G: tl.constexpr, C: tl.constexpr):
    """(T, G) or (T, 1) repeated over the channels, flat: (T, G*C) or (T, 1)."""
    if values.shape[1] == 1:
        return values
    else:
        return tl.reshape(tl.broadcast_to(values[:, :, None], (T, G, C)), (T, G * C))


@triton.jit
def flat_channels(group, HEAD_STRIDE: tl.constexpr, G: tl.constexpr, CHANNELS: tl.constexpr, C: tl.constexpr):
    """(1, G*C) offsets of a group's channels inside one token."""
    index = tl.arange(0, G * C)[None, :]
    if HEAD_STRIDE == C and CHANNELS == C:
        return group * (G * C) + index
    else:
        return (group * G + index // C) * HEAD_STRIDE + index % C


@triton.jit
def flat_exists(group, HEADS: tl.constexpr, G: tl.constexpr, CHANNELS: tl.constexpr, C: tl.constexpr):
    """(1, G*C): which of a group's padded channels are real.

    Without padding it is a constant, and loads and stores stay as wide as the channels allow.
    """
    if C == CHANNELS and HEADS % G == 0:
        return tl.full((1, G * C), True, tl.int1)
    else:
        index = tl.arange(0, G * C)[None, :]
        return (index % C < CHANNELS) & (group * G + index // C < HEADS)


@triton.jit
def key_offset(
    row, column, ROW_STRIDE, COLUMN_STRIDE: tl.constexpr, J: tl.constexpr, COLUMNS: tl.constexpr, LARGE: tl.constexpr
):
    """(T, G or 1) offset inside the image of the window's key J."""
    y = row + J // COLUMNS
    x = column + J % COLUMNS
    if LARGE:
        return y.to(tl.int64) * ROW_STRIDE + x.to(tl.int64) * COLUMN_STRIDE
    else:
        return y * ROW_STRIDE + x * COLUMN_STRIDE


@triton.jit
def channel_offsets(offset, channels, T: tl.constexpr, G: tl.constexpr, C: tl.constexpr, RUN: tl.constexpr):
    """(T, G*C) offsets of the channels of the tokens at `offset` (T, G or 1)."""
    at = spread(offset, T, G, C) + channels
    if offset.shape[1] != 1:
        # Positions differ between the heads: only the channels of one head are known to lie side by side.
        at = tl.max_contiguous(tl.multiple_of(at, (1, RUN)), (1, RUN))
    return at


@triton.jit
def load_key(
    base,
    offset,
    channels,
    exists,
    row,
    column,
    height,
    width,
    J: tl.constexpr,
    COLUMNS: tl.constexpr,
    T: tl.constexpr,
    G: tl.constexpr,
    C: tl.constexpr,
    OVERHANGS: tl.constexpr,
    RUN: tl.constexpr,
):
    """(T, G*C) in fp32: key or value J of every query's window."""
    at = channel_offsets(offset, channels, T, G, C, RUN)
    if OVERHANGS:
        inside = spread((row + J // COLUMNS < height) & (column + J % COLUMNS < width), T, G, C)
        found = tl.load(base + at, mask=inside & exists, other=0.0)
    else:
        found = tl.load(base + at, mask=exists, other=0.0)
    return found.to(tl.float32)


@triton.jit
def score(q, key, gamma, DOT: tl.constexpr, T: tl.constexpr, G: tl.constexpr, C: tl.constexpr):
    """(T, G) similarity of each query to one key, times log2(e)."""
    if DOT:
        return tl.sum(fold(q * key, T, G, C), 2) * (gamma * LOG2E)
    else:
        return tl.sum(fold(tl.abs(q - key), T, G, C), 2) * (-gamma * LOG2E)


@triton.jit
def sign(value):
    """-1, 0 or 1."""
    return (value > 0).to(tl.float32) - (value < 0).to(tl.float32)


@triton.jit
def mask_overhang(value, row, column, height, width, J: tl.constexpr, COLUMNS: tl.constexpr, OVERHANGS: tl.constexpr):
    """The score of key J, or MASKED where it lies beyond a map narrower than the window."""
    if OVERHANGS:
        return tl.where((row + J // COLUMNS < height) & (column + J % COLUMNS < width), value, MASKED)
    else:
        return value


@triton.jit
def share_of(right, below, CORNER: tl.constexpr, ROWS: tl.constexpr):
    """(T, G or 1) bilinear weight of a sub-window: 0 upper left, 1 upper right, 2 lower left, 3 lower right."""
    share = right if CORNER % 2 == 1 else 1.0 - right
    if ROWS > 1:
        share = share * (below if CORNER // 2 == 1 else 1.0 - below)
    return share


@triton.constexpr_function
def is_in(key, corner, rows, columns):
    """Whether a key of the expanded window lies in a sub-window; known when compiling."""
    x = key % columns - corner % 2
    y = key // columns - corner // 2
    return 0 <= x < columns - 1 and (rows == 1 or 0 <= y < rows - 1)


@triton.jit
def softmax_of(scores, CORNER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Exponentials of one sub-window's scores below its own maximum (0 outside it), and one over their sum.

    Each sub-window has its own maximum: with a shared one, a sub-window far below the best key would be 0 / 0.
    """
    highest = tl.full(scores[0].shape, float("-inf"), tl.float32)
    for j in tl.static_range(ROWS * COLUMNS):
        if is_in(j, CORNER, ROWS, COLUMNS):
            highest = tl.maximum(highest, scores[j])
    total = tl.zeros_like(highest)
    exponentials = ()
    for j in tl.static_range(ROWS * COLUMNS):
        if is_in(j, CORNER, ROWS, COLUMNS):
            e = tl.exp2(scores[j] - highest)
            total += e
        else:
            e = tl.zeros_like(highest)
        exponentials = exponentials + (e,)
    return exponentials, 1.0 / total


@triton.jit
def sample(scores, grads, right, below, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """CAS and its gradient.

    Args:
        scores: tuple over the window of (T, G), in powers of two.
        grads: gradient of each weight, a tuple like `scores`; None in a forward pass.
        right, below: the fractions, (T, G or 1).

    Returns:
        Tuple of (T, G) weights over the expanded window, which sum to one; the scores' gradients, and those of the two
        fractions (zeros without `grads`). Within a sub-window a = softmax(s) has d s_j = a_j (g_j - G), G = sum a g,
        and G is also the gradient of the sub-window's share.
    """
    weights = scores
    score_grads = scores
    grad_right = tl.zeros(scores[0].shape, tl.float32)
    grad_below = tl.zeros(scores[0].shape, tl.float32)
    for corner in tl.static_range(2 if ROWS == 1 else 4):
        exponentials, inverse = softmax_of(scores, corner, ROWS, COLUMNS)
        mean = tl.zeros(scores[0].shape, tl.float32)
        if grads is not None:
            for j in tl.static_range(ROWS * COLUMNS):
                mean += exponentials[j] * grads[j]
            mean = mean * inverse
        scale = share_of(right, below, corner, ROWS) * inverse
        updated = ()
        updated_grads = ()
        for j in tl.static_range(ROWS * COLUMNS):
            part = exponentials[j] * scale
            part_grad = part * ((grads[j] if grads is not None else 0.0) - mean)
            updated = updated + (part if corner == 0 else part + weights[j],)
            updated_grads = updated_grads + (part_grad if corner == 0 else part_grad + score_grads[j],)
        weights = updated
        score_grads = updated_grads
        along_x = mean
        if ROWS > 1:
            along_x = mean * (below if corner // 2 == 1 else 1.0 - below)
            along_y = mean * (right if corner % 2 == 1 else 1.0 - right)
            grad_below += along_y if corner // 2 == 1 else -along_y
        grad_right += along_x if corner % 2 == 1 else -along_x
    return weights, score_grads, grad_right, grad_below


@triton.jit
def stack(values, COUNT: tl.constexpr, T: tl.constexpr, G: tl.constexpr):
    """Tuple of COUNT (a power of two) tensors (T, G) as one (T, G*COUNT), so that they are stored side by side."""
    parts = values
    for level in tl.static_range(1, 10):
        if COUNT >> level:
            joined = ()
            for i in tl.static_range(COUNT >> level):
                joined = joined + (tl.join(parts[i], parts[i + (COUNT >> level)]),)
            parts = joined
    return tl.reshape(parts[0], (T, G * COUNT))


@triton.jit
def place_window(r_pointer, r_at, y, x, limits, R_AXIS, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Where windows lie: first row and column, the fractions right and below, and the centres x and y they come from.

    `r_at` is the offset of each relative position's x component, y follows R_AXIS later; queries `y` and `x` broadcast
    to its shape. `limits` are the six of `triton_tiles.window_limits`.
    """
    lowest_x, highest_x, last_x, lowest_y, highest_y, last_y = limits
    centre_x = x.to(tl.float32) + tl.load(r_pointer + r_at)
    column, right = place_axis(centre_x, lowest_x, highest_x, last_x, COLUMNS)
    if ROWS == 1:
        row, below, centre_y = tl.broadcast_to(y, column.shape), right, centre_x
    else:
        centre_y = y.to(tl.float32) + tl.load(r_pointer + r_at + R_AXIS)
        row, below = place_axis(centre_y, lowest_y, highest_y, last_y, ROWS)
    return row, column, right, below, centre_x, centre_y


@triton.jit
def attend(
    q,
    k_base,
    v_base,
    row,
    column,
    right,
    below,
    group,
    height,
    width,
    gamma,
    K_ROW,
    K_COLUMN: tl.constexpr,
    K_HEAD: tl.constexpr,
    K_RUN: tl.constexpr,
    V_ROW,
    V_COLUMN: tl.constexpr,
    V_HEAD: tl.constexpr,
    V_RUN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    OVERHANGS: tl.constexpr,
    DOT: tl.constexpr,
    LARGE: tl.constexpr,
    CHANNELS: tl.constexpr,
    VALUE_CHANNELS: tl.constexpr,
    HEADS: tl.constexpr,
    T: tl.constexpr,
    G: tl.constexpr,
    C: tl.constexpr,
    CV: tl.constexpr,
):
    """The operator on one tile: attended values (T, G*CV) in fp32, and the tuple of weights (T, G)."""
    exists = flat_exists(group, HEADS, G, CHANNELS, C)
    k_channels = flat_channels(group, K_HEAD, G, CHANNELS, C)
    scores = ()
    for j in tl.static_range(ROWS * COLUMNS):
        offset = key_offset(row, column, K_ROW, K_COLUMN, j, COLUMNS, LARGE)
        key = load_key(
            k_base, offset, k_channels, exists, row, column, height, width, j, COLUMNS, T, G, C, OVERHANGS, K_RUN
        )
        s = score(q, key, gamma, DOT, T, G, C)
        scores = scores + (mask_overhang(s, row, column, height, width, j, COLUMNS, OVERHANGS),)
    weights, _, _, _ = sample(scores, None, right, below, ROWS, COLUMNS)
    exists = flat_exists(group, HEADS, G, VALUE_CHANNELS, CV)
    v_channels = flat_channels(group, V_HEAD, G, VALUE_CHANNELS, CV)
    total = tl.zeros((T, G * CV), tl.float32)
    for j in tl.static_range(ROWS * COLUMNS):
        offset = key_offset(row, column, V_ROW, V_COLUMN, j, COLUMNS, LARGE)
        value = load_key(
            v_base, offset, v_channels, exists, row, column, height, width, j, COLUMNS, T, G, CV, OVERHANGS, V_RUN
        )
        total += spread(weights[j], T, G, CV) * value
    return total, weights
