"""Procedural surface colours (dialect functions).

A material is a row of numbers (`COLUMNS`); its colour is a function of the point on the object alone, so both
views see the same texture. Patterns are filtered by the pixel's footprint instead of sampled, because aliasing
would be different in the two views and teach the network that textures disagree.
"""

from __future__ import annotations

from matchattention.synth.rays.dialect import any_lane, as_float, as_int, at, jit, tl
from matchattention.synth.rays.noise import band_limit, fractal, fraction, hash_cell, sine

PATTERNS = (
    "mottled",
    "marble",
    "stripes",
    "checkers",
    "bricks",
    "camouflage",
    "text",
    "photo",
    "speckle",
    "windows",
    "wood",
    "plaid",
)

COLUMNS = (
    "pattern",
    "frequency",
    "gain",
    "amount",
    "aspect",
    "seed",
    "red0",
    "green0",
    "blue0",
    "red1",
    "green1",
    "blue1",
    "red2",
    "green2",
    "blue2",
    "detail",
    "dirt",
    "specular",
    "exponent",
    "mirror",
    "clear",
    "emission",
    "environment",
    "photo",
    "tint",
)

PATTERN = tl.constexpr(COLUMNS.index("pattern"))
FREQUENCY = tl.constexpr(COLUMNS.index("frequency"))
GAIN = tl.constexpr(COLUMNS.index("gain"))
AMOUNT = tl.constexpr(COLUMNS.index("amount"))
ASPECT = tl.constexpr(COLUMNS.index("aspect"))
SEED = tl.constexpr(COLUMNS.index("seed"))
FIRST = tl.constexpr(COLUMNS.index("red0"))
SECOND = tl.constexpr(COLUMNS.index("red1"))
THIRD = tl.constexpr(COLUMNS.index("red2"))
DETAIL = tl.constexpr(COLUMNS.index("detail"))
DIRT = tl.constexpr(COLUMNS.index("dirt"))
SPECULAR = tl.constexpr(COLUMNS.index("specular"))
EXPONENT = tl.constexpr(COLUMNS.index("exponent"))
MIRROR = tl.constexpr(COLUMNS.index("mirror"))
CLEAR = tl.constexpr(COLUMNS.index("clear"))
EMISSION = tl.constexpr(COLUMNS.index("emission"))
ENVIRONMENT = tl.constexpr(COLUMNS.index("environment"))
IMAGE = tl.constexpr(COLUMNS.index("photo"))
TINT = tl.constexpr(COLUMNS.index("tint"))

MARBLE = tl.constexpr(PATTERNS.index("marble"))
STRIPES = tl.constexpr(PATTERNS.index("stripes"))
CHECKERS = tl.constexpr(PATTERNS.index("checkers"))
BRICKS = tl.constexpr(PATTERNS.index("bricks"))
CAMOUFLAGE = tl.constexpr(PATTERNS.index("camouflage"))
TEXT = tl.constexpr(PATTERNS.index("text"))
PHOTO = tl.constexpr(PATTERNS.index("photo"))
SPECKLE = tl.constexpr(PATTERNS.index("speckle"))
WINDOWS = tl.constexpr(PATTERNS.index("windows"))
WOOD = tl.constexpr(PATTERNS.index("wood"))
PLAID = tl.constexpr(PATTERNS.index("plaid"))


@jit
def square_wave(u, duty, footprint):
    """Share of the pixel on the bars of a wave of period one whose bars fill `duty` of it."""
    soft = tl.maximum(2.0 * footprint, 0.01)
    bar = tl.minimum(tl.maximum((duty - tl.abs(fraction(u) - 0.5) * 2.0) / soft + 0.5, 0.0), 1.0)
    return duty + (bar - duty) * band_limit(footprint * 0.7)


@jit
def flat_coordinates(x, y, z, nx, ny, nz):
    """Two coordinates on the face of the object's box that the normal points at."""
    ax = tl.abs(nx)
    ay = tl.abs(ny)
    az = tl.abs(nz)
    face_x = (ax >= ay) & (ax > az)
    face_y = (ay > ax) & (ay > az)
    u = tl.where(face_x, z, x)
    v = tl.where(face_y, z, y)
    return u, v


@jit
def weights(pattern, x, y, z, u, v, coarse, footprint, amount, aspect, seed):
    """How much of the second and the third colour a point shows.

    Args:
        pattern: int32 lanes, index into `PATTERNS`.
        x: coordinates in periods of the pattern (also y, z; u, v on the face).
        coarse: low octaves of noise at the point.
        footprint: periods per pixel.
        amount: free parameter of the pattern in [0, 1].
        aspect: free parameter, height over width of a cell.
        seed: the object's number.
    """
    second = tl.minimum(tl.maximum(0.5 + 0.6 * coarse, 0.0), 1.0)
    third = 0.0 * x
    key = as_int(seed)
    if any_lane(pattern == MARBLE):
        vein = 0.5 + 0.5 * sine(6.2831853 * (x + 0.3 * y + (0.3 + 1.2 * amount) * coarse))
        second = tl.where(pattern == MARBLE, vein * vein, second)
    if any_lane(pattern == STRIPES):
        is_bar = square_wave(v / aspect + 0.06 * amount * coarse, 0.2 + 0.6 * amount, footprint / aspect)
        second = tl.where(pattern == STRIPES, is_bar, second)
        wide = square_wave(v / aspect * 0.2, 0.3, footprint / aspect * 0.2)
        third = tl.where(pattern == STRIPES, is_bar * wide, third)
    if any_lane(pattern == CHECKERS):
        a = square_wave(u * 0.5, 0.5, footprint * 0.5)
        b = square_wave(v * 0.5 / aspect, 0.5, footprint * 0.5 / aspect)
        second = tl.where(pattern == CHECKERS, a + b - 2.0 * a * b, second)
    if any_lane((pattern == BRICKS) | (pattern == WINDOWS)):
        brick = pattern == BRICKS
        row = tl.floor(v / aspect)
        along = u + tl.where(brick, 0.5 * row, 0.0)
        solid = 0.86 + 0.12 * amount
        solid = tl.where(brick, solid, 0.25 + 0.5 * amount)
        body = square_wave(along, solid, footprint) * square_wave(v / aspect, solid, footprint / aspect)
        cell = hash_cell(as_int(tl.floor(along)), as_int(row), key)
        second = tl.where(brick, 1.0 - body, second)
        third = tl.where(brick, body * cell * band_limit(footprint * 0.5), third)
        frame = square_wave(along, solid + 0.12, footprint) * square_wave(v / aspect, solid + 0.12, footprint / aspect)
        second = tl.where(pattern == WINDOWS, frame, second)
        third = tl.where(pattern == WINDOWS, body * (0.75 + 0.25 * cell), third)
    if any_lane(pattern == CAMOUFLAGE):
        edge = 8.0 / (1.0 + 8.0 * footprint)
        first = tl.minimum(tl.maximum(edge * (coarse - 0.1) + 0.5, 0.0), 1.0)
        other = tl.minimum(tl.maximum(edge * (-coarse - 0.35 + 0.3 * amount) + 0.5, 0.0), 1.0)
        second = tl.where(pattern == CAMOUFLAGE, first, second)
        third = tl.where(pattern == CAMOUFLAGE, other, third)
    if any_lane(pattern == TEXT):
        # Lines of words of letters: strokes in cells of a fifth of a letter, gaps between words and lines.
        line = tl.floor(v)
        stroke = hash_cell(as_int(tl.floor(u * 5.0)), as_int(tl.floor(v * 6.0)), key) < 0.55
        word = hash_cell(as_int(tl.floor(u * 0.31 + 0.37 * line)), as_int(line), key + 5) < 0.85
        on_line = (fraction(v) < 0.66) & (fraction(u) < 0.82)
        paragraph = hash_cell(as_int(tl.floor(v * 0.12)), as_int(tl.floor(u * 0.05)), key + 9) < 0.4 + 0.5 * amount
        ink = tl.where(stroke & word & on_line & paragraph, 1.0, 0.0)
        faded = tl.where(word & paragraph & on_line, 0.45, 0.0)
        second = tl.where(pattern == TEXT, faded + (ink - faded) * band_limit(footprint * 4.0), second)
    if any_lane(pattern == SPECKLE):
        grain = hash_cell(as_int(tl.floor(x * 3.0)), as_int(tl.floor(y * 3.0)), as_int(tl.floor(z * 3.0)) + key)
        spot = tl.where(grain > 0.55 + 0.3 * amount, 1.0, 0.0)
        rare = tl.where(grain < 0.08, 1.0, 0.0)
        fade = band_limit(footprint * 2.5)
        second = tl.where(pattern == SPECKLE, 0.3 + (spot - 0.3) * fade, second)
        third = tl.where(pattern == SPECKLE, rare * fade, third)
    if any_lane(pattern == WOOD):
        ring = 0.5 + 0.5 * sine(6.2831853 * (2.5 * coarse + 0.4 * y))
        second = tl.where(pattern == WOOD, 0.35 * ring + 0.5 * second, second)
    if any_lane(pattern == PLAID):
        a = square_wave(u, 0.25 + 0.4 * amount, footprint)
        b = square_wave(v, 0.25 + 0.4 * amount, footprint)
        thin = square_wave(u * 3.0 + 0.5, 0.12, footprint * 3.0)
        second = tl.where(pattern == PLAID, 0.5 * (a + b), second)
        third = tl.where(pattern == PLAID, 0.7 * thin, third)
    return second, third


@jit
def texel(photos, place, x, y, side):
    """Display values of one texel of an image of `side` x `side`, mirrored beyond its edges."""
    x = x & (2 * side - 1)
    y = y & (2 * side - 1)
    x = tl.where(x >= side, 2 * side - 1 - x, x)
    y = tl.where(y >= side, 2 * side - 1 - y, y)
    packed = at(photos, place + y * side + x)
    return as_float(packed & 255), as_float((packed >> 8) & 255), as_float((packed >> 16) & 255)


@jit
def photo_level(photos, starts, layer, u, v, level, PHOTO_SIZE: tl.constexpr):
    """Bilinear display values of a photo at one level of its pyramid; u, v in images."""
    side = PHOTO_SIZE >> level
    scale = as_float(side)
    x = u * scale - 0.5
    y = v * scale - 0.5
    x0 = tl.floor(x)
    y0 = tl.floor(y)
    x = x - x0
    y = y - y0
    i = as_int(x0)
    j = as_int(y0)
    place = at(starts, level) + layer * side * side
    r0, g0, b0 = texel(photos, place, i, j, side)
    r1, g1, b1 = texel(photos, place, i + 1, j, side)
    r0 = r0 + x * (r1 - r0)
    g0 = g0 + x * (g1 - g0)
    b0 = b0 + x * (b1 - b0)
    r2, g2, b2 = texel(photos, place, i, j + 1, side)
    r1, g1, b1 = texel(photos, place, i + 1, j + 1, side)
    r2 = r2 + x * (r1 - r2)
    g2 = g2 + x * (g1 - g2)
    b2 = b2 + x * (b1 - b2)
    return r0 + y * (r2 - r0), g0 + y * (g2 - g0), b0 + y * (b2 - b0)


@jit
def photo_colour(photos, starts, layer, u, v, footprint, PHOTO_SIZE: tl.constexpr, LEVELS: tl.constexpr):
    """Linear colour of a photo, filtered over the pixel's footprint (images per pixel)."""
    detail = tl.log2(tl.maximum(footprint * PHOTO_SIZE, 1.0))
    detail = tl.minimum(detail, LEVELS - 1.001)
    lower = tl.floor(detail)
    share = detail - lower
    level = as_int(lower)
    r0, g0, b0 = photo_level(photos, starts, layer, u, v, level, PHOTO_SIZE)
    r1, g1, b1 = photo_level(photos, starts, layer, u, v, level + 1, PHOTO_SIZE)
    red = (r0 + share * (r1 - r0)) / 255.0 + 1.0e-4
    green = (g0 + share * (g1 - g0)) / 255.0 + 1.0e-4
    blue = (b0 + share * (b1 - b0)) / 255.0 + 1.0e-4
    return tl.exp2(2.2 * tl.log2(red)), tl.exp2(2.2 * tl.log2(green)), tl.exp2(2.2 * tl.log2(blue))


@jit
def albedo(
    material, x, y, z, nx, ny, nz, seed, footprint, photos, starts, PHOTO_SIZE: tl.constexpr, LEVELS: tl.constexpr
):
    """Diffuse colour of a material.

    Args:
        material: row of `COLUMNS`.
        x: point on the object in metres, in the object's axes (also y, z).
        nx: normal in the object's axes (also ny, nz).
        seed: the object's number.
        footprint: metres of surface per pixel.
        photos: packed texels of the bank's pyramid, `starts` the first of each level.
        PHOTO_SIZE: px, side of the largest level, of `LEVELS`.

    Returns:
        Linear red, green, blue; brightness factor of the grain.
    """
    pattern = as_int(at(material, PATTERN))
    frequency = at(material, FREQUENCY)
    x = x * frequency
    y = y * frequency
    z = z * frequency
    footprint = footprint * frequency
    shift = fraction(seed * 0.137 + at(material, SEED)) * 31.0
    # Wood and brushed surfaces are noise stretched along one axis.
    squeeze = tl.where(pattern == WOOD, 7.0, 1.0)
    coarse, fine = fractal(
        x + shift, y * squeeze + 0.7 * shift, z * squeeze - shift, footprint * squeeze, at(material, GAIN)
    )
    u, v = flat_coordinates(x, y, z, nx, ny, nz)
    u = u + 0.37 * shift
    v = v + 0.61 * shift
    amount = at(material, AMOUNT)
    second, third = weights(pattern, x, y, z, u, v, coarse, footprint, amount, at(material, ASPECT), seed)
    grain = 1.0 + at(material, DETAIL) * fine + at(material, DIRT) * coarse
    grain = tl.maximum(grain, 0.05)
    red = at(material, FIRST) + second * (at(material, SECOND) - at(material, FIRST))
    green = at(material, FIRST + 1) + second * (at(material, SECOND + 1) - at(material, FIRST + 1))
    blue = at(material, FIRST + 2) + second * (at(material, SECOND + 2) - at(material, FIRST + 2))
    red = red + third * (at(material, THIRD) - red)
    green = green + third * (at(material, THIRD + 1) - green)
    blue = blue + third * (at(material, THIRD + 2) - blue)
    is_photo = pattern == PHOTO
    if any_lane(is_photo):
        layer = tl.where(is_photo, as_int(at(material, IMAGE)), 0)
        r, g, b = photo_colour(photos, starts, layer, u, v, footprint, PHOTO_SIZE, LEVELS)
        tint = at(material, TINT)
        red = tl.where(is_photo, r * (1.0 - tint + tint * 3.0 * red), red)
        green = tl.where(is_photo, g * (1.0 - tint + tint * 3.0 * green), green)
        blue = tl.where(is_photo, b * (1.0 - tint + tint * 3.0 * blue), blue)
    return red * grain, green * grain, blue * grain, grain
