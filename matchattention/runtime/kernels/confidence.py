# mypy: disable-error-code="assignment, var-annotated"
"""A confidence head's pixels in two kernels, before its convolutions and after them; the head itself is the twin."""

import triton
import triton.language as tl

from matchattention.runtime.kernels.rows import load_matrix, tile_of_tokens


@triton.jit
def pixel_cues(
    agreement_pointer,
    field_pointer,
    after_pointer,
    token,
    height,
    width,
    rows,
    columns,
    SCALE: tl.constexpr,
    FARTHEST: tl.constexpr,
):
    """What the head knows of each pixel of T tokens, (T, SCALE * SCALE) each: where it lies, whether that is real.

    Then how far views disagree, how far the match lies, how far from the token's, and whether it is out of view.
    """
    sub = tl.arange(0, SCALE * SCALE)[None, :]
    across = (token % columns).to(tl.int32)[:, None] * SCALE + sub % SCALE
    # The image was padded at the top and at the right, by repeating its border.
    down = ((token // columns) % rows).to(tl.int32)[:, None] * SCALE + sub // SCALE
    down -= rows * SCALE - height
    real = (down >= 0) & (across < width)
    image = (token // (rows * columns))[:, None]
    at = image * height * width + tl.maximum(down, 0) * width + tl.minimum(across, width - 1)
    agreement = tl.load(agreement_pointer + at)
    x = tl.load(field_pointer + 2 * at)
    y = tl.load(field_pointer + 2 * at + 1)
    from_x = x - SCALE * tl.load(after_pointer + 2 * token)[:, None]
    from_y = y - SCALE * tl.load(after_pointer + 2 * token + 1)[:, None]
    apart = tl.minimum(-2.0 * tl.log(tl.maximum(agreement, 1e-30)), FARTHEST)
    disagree = tl.log(1.0 + 8.0 * apart)
    length = tl.log(1.0 + tl.sqrt(x * x + y * y))
    from_token = tl.log(1.0 + 8.0 * tl.sqrt(from_x * from_x + from_y * from_y))
    return at, real, disagree, length, from_token, (agreement <= 0).to(tl.float32)


@triton.jit(do_not_specialize=["height", "width", "rows", "columns", "tokens"])
def token_cues_kernel(
    features_pointer,
    before_pointer,
    after_pointer,
    field_pointer,
    agreement_pointer,
    mean_pointer,
    deviation_pointer,
    out_pointer,
    height,
    width,
    rows,
    columns,
    tokens,
    C: tl.constexpr,
    CB: tl.constexpr,
    OUT: tl.constexpr,
    SCALE: tl.constexpr,
    FARTHEST: tl.constexpr,
    T: tl.constexpr,
):
    """Normed features, the mean of the pixels' cues and how far the match was moved: (tokens, OUT), then zeros."""
    token, valid = tile_of_tokens(tokens, T)
    channel = tl.arange(0, CB)[None, :]
    known = channel < C
    features = tl.load(features_pointer + token[:, None] * C + channel, mask=known, other=0.0).to(tl.float32)
    features -= tl.load(mean_pointer + channel, mask=known, other=0.0)
    features /= tl.load(deviation_pointer + channel, mask=known, other=1.0)
    tl.store(out_pointer + token[:, None] * OUT + channel, features, mask=valid[:, None] & known)
    _, _, disagree, length, from_token, out_of_view = pixel_cues(
        agreement_pointer, field_pointer, after_pointer, token, height, width, rows, columns, SCALE, FARTHEST
    )  # fmt: skip
    pixels: tl.constexpr = SCALE * SCALE
    out = out_pointer + token * OUT + C
    tl.store(out, tl.sum(disagree, 1) / pixels, mask=valid)
    tl.store(out + 1, tl.sum(length, 1) / pixels, mask=valid)
    tl.store(out + 2, tl.sum(from_token, 1) / pixels, mask=valid)
    tl.store(out + 3, tl.sum(out_of_view, 1) / pixels, mask=valid)
    x = tl.load(after_pointer + 2 * token) - tl.load(before_pointer + 2 * token)
    y = tl.load(after_pointer + 2 * token + 1) - tl.load(before_pointer + 2 * token + 1)
    tl.store(out + 4, tl.log(1.0 + 8.0 * SCALE * tl.sqrt(x * x + y * y)), mask=valid)
    for rest in tl.static_range(C + 5, OUT):
        tl.store(out_pointer + token * OUT + rest, tl.zeros((T,), tl.float32), mask=valid)


@triton.jit
def mixed(mix_pointer, index, handed, disagree, length, from_token, out_of_view, PIXEL: tl.constexpr):
    """A channel of the hidden layer: (T, pixels), after its ReLU, which leaves NaN what it is."""
    row = mix_pointer + index * (PIXEL + 5)  # its weights, then its bias
    total = tl.load(row + PIXEL) * disagree + tl.load(row + PIXEL + 4)
    total += tl.load(row + PIXEL + 1) * length
    total += tl.load(row + PIXEL + 2) * from_token
    total += tl.load(row + PIXEL + 3) * out_of_view
    for channel in tl.static_range(PIXEL):
        total += tl.load(row + channel) * handed[channel]
    return tl.where(total < 0, 0.0, total)


@triton.jit(do_not_specialize=["height", "width", "rows", "columns", "tokens"])
def decide_kernel(
    hidden_pointer,
    after_pointer,
    field_pointer,
    agreement_pointer,
    hand_pointer,
    hand_bias_pointer,
    mix_pointer,
    decide_pointer,
    confidence_pointer,
    error_pointer,
    height,
    width,
    rows,
    columns,
    tokens,
    distance,
    beyond,
    log_beyond,
    finest,
    coarsest,
    WIDTH: tl.constexpr,
    WB: tl.constexpr,
    PIXEL: tl.constexpr,
    MIX: tl.constexpr,
    STEPS: tl.constexpr,
    SCALE: tl.constexpr,
    FARTHEST: tl.constexpr,
    T: tl.constexpr,
):
    """From the last convolution (tokens, WIDTH) to every pixel's confidence and error.

    Args:
        hidden_pointer: of the last convolution.
        mix_pointer: (MIX, PIXEL + 4 + 1): the hidden layer's weights, and its bias.
        decide_pointer: (MIX + 1, 3): the last layer's weights, and its bias.
        distance: px, of which the confidence is the probability.
        beyond: share of the errors that are larger than the one found.
        log_beyond: its logarithm.
    """
    token, valid = tile_of_tokens(tokens, T)
    at, real, disagree, length, from_token, out_of_view = pixel_cues(
        agreement_pointer, field_pointer, after_pointer, token, height, width, rows, columns, SCALE, FARTHEST
    )  # fmt: skip
    pixels: tl.constexpr = SCALE * SCALE
    channel = tl.arange(0, WB)
    known = channel[None, :] < WIDTH
    hidden = tl.load(hidden_pointer + token[:, None] * WIDTH + channel[None, :], mask=known, other=0.0).to(tl.float32)
    sub = tl.arange(0, pixels)
    handed = ()
    for part in tl.static_range(PIXEL):
        matrix = load_matrix(hand_pointer + part * pixels * WIDTH, channel, sub, WIDTH, pixels)
        bias = tl.load(hand_bias_pointer + part * pixels + sub)[None, :]
        handed = handed + (tl.dot(hidden, matrix, input_precision="ieee") + bias,)
    last = decide_pointer + MIX * 3
    first = tl.zeros((T, pixels), tl.float32) + tl.load(last)
    second = tl.zeros((T, pixels), tl.float32) + tl.load(last + 1)
    third = tl.zeros((T, pixels), tl.float32) + tl.load(last + 2)
    for index in range(MIX):
        value = mixed(mix_pointer, index, handed, disagree, length, from_token, out_of_view, PIXEL)
        first += value * tl.load(decide_pointer + 3 * index)
        second += value * tl.load(decide_pointer + 3 * index + 1)
        third += value * tl.load(decide_pointer + 3 * index + 2)
    narrow = tl.minimum(tl.maximum(tl.exp(first), finest), coarsest)
    wide = tl.minimum(narrow * (1.0 + tl.exp(second)), coarsest)
    share = tl.minimum(tl.maximum(1.0 / (1.0 + tl.exp(-third)), 1e-4), 1.0 - 1e-4)
    right = 1.0 - share
    within = right * (1.0 - tl.exp(-distance / narrow)) + share * (1.0 - tl.exp(-distance / wide))
    # See `Mixture.quantile`.
    found = tl.maximum(narrow * tl.log(right / beyond), wide * tl.log(share / beyond))
    found = tl.maximum(narrow * -log_beyond, found)
    for _ in tl.static_range(STEPS):
        near = right * tl.exp(-found / narrow)
        far = share * tl.exp(-found / wide)
        found += (near + far - beyond) / (near / narrow + far / wide)
    broken = (first != first) | (second != second) | (third != third)
    mask = real & valid[:, None]
    tl.store(confidence_pointer + at, tl.where(broken, float("nan"), within), mask=mask)
    tl.store(error_pointer + at, tl.where(broken, float("nan"), found), mask=mask)
