"""Patterns that cut holes into cards (dialect functions), by number: `world.cutouts` has the same as Python numbers."""

from __future__ import annotations

from matchattention.synth.rays.dialect import as_int, jit, tl
from matchattention.synth.rays.noise import flat_noise, fraction, hash_cell, sine

SOLID = tl.constexpr(0)
DISC = tl.constexpr(1)
LATTICE = tl.constexpr(2)
CHAIN = tl.constexpr(3)
LEAVES = tl.constexpr(4)
SLATS = tl.constexpr(5)
FRAME = tl.constexpr(6)
RAGGED = tl.constexpr(7)
GLYPHS = tl.constexpr(8)
BRANCHES = tl.constexpr(9)
GRASS = tl.constexpr(10)
STAR = tl.constexpr(11)
WHEEL = tl.constexpr(12)


@jit
def leaf_layer(x, y, seed, size):
    """Whether (x, y) lies on the one leaf of its unit cell: a randomly turned lens, or none."""
    i = as_int(tl.floor(x))
    j = as_int(tl.floor(y))
    a = fraction(x) - 0.5
    b = fraction(y) - 0.5
    h = hash_cell(i, j, seed)
    a = a - 0.3 * (hash_cell(i, j, seed + 1) - 0.5)
    b = b - 0.3 * (hash_cell(i, j, seed + 2) - 0.5)
    angle = 6.2831853 * h
    c = sine(angle + 1.5707963)
    s = sine(angle)
    along = (c * a + s * b) / size
    across = (c * b - s * a) / size
    # Two parabolas meeting in points at both ends.
    return tl.abs(across) < 0.42 * (1.0 - along * along)


@jit
def mask_keeps(mask, u, v, scale_u, scale_v, density):
    """Whether the point (u, v) in [-1, 1]² of a card is material.

    Args:
        mask: which cut-out (a scalar).
        u: card coordinates (also v).
        scale_u: cells of the pattern per unit of u (also scale_v).
        density: in (0, 1), how much material the pattern has; its digits also seed the pattern.
    """
    x = u * scale_u
    y = v * scale_v
    seed = as_int(density * 65536.0)
    keep = (tl.abs(u) <= 1.0) & (tl.abs(v) <= 1.0)
    if mask == DISC:
        keep = keep & (u * u + v * v <= 1.0)
    elif mask == LATTICE:
        width = 0.06 + 0.3 * density
        keep = keep & ((fraction(x) < width) | (fraction(y) < width))
    elif mask == CHAIN:
        width = 0.05 + 0.2 * density
        keep = keep & ((fraction(x + y) < width) | (fraction(x - y) < width))
    elif mask == LEAVES:
        first = leaf_layer(x, y, seed, 0.36 + 0.2 * density)
        second = leaf_layer(0.8 * x + 0.6 * y + 0.37, 0.8 * y - 0.6 * x + 0.71, seed + 7, 0.36 + 0.2 * density)
        # The outline is ragged so that a cluster does not look like a sheet.
        reach = u * u + v * v + 1.1 * (flat_noise(x * 0.45, y * 0.45, seed + 3) - 0.5)
        keep = keep & (first | second) & (reach < 0.85)
    elif mask == SLATS:
        keep = keep & ((fraction(x) < 0.2 + 0.6 * density) | (tl.abs(v) > 0.94))
    elif mask == FRAME:
        rim = 0.06 + 0.25 * density
        keep = keep & ((tl.abs(u) > 1.0 - rim) | (tl.abs(v) > 1.0 - rim * scale_u / scale_v))
    elif mask == RAGGED:
        n = 0.65 * flat_noise(x, y, seed) + 0.35 * flat_noise(2.7 * x + 3.1, 2.7 * y + 1.7, seed)
        keep = keep & (n < 0.25 + 0.45 * density)
    elif mask == GLYPHS:
        stroke = hash_cell(as_int(tl.floor(4.0 * x)), as_int(tl.floor(5.0 * y)), seed) < 0.55
        gap = (fraction(x) < 0.82) & (fraction(y) < 0.75)
        keep = keep & stroke & gap
    elif mask == BRANCHES:
        bend = x + 0.35 * sine(1.7 * y + 6.0 * density) + 0.12 * sine(5.3 * y)
        fork = x + 0.8 * y + 0.3 * sine(2.9 * y)
        keep = keep & ((fraction(bend) < 0.05 + 0.2 * density) | (fraction(0.7 * fork) < 0.03 + 0.1 * density))
    elif mask == GRASS:
        column = as_int(tl.floor(x))
        lean = (hash_cell(column, seed, seed + 1) - 0.5) * 0.5
        height = 0.35 + 0.65 * hash_cell(column, seed, seed + 2)
        up = (1.0 - v) * 0.5 / height
        off = tl.abs(fraction(x) - 0.5 - lean * up * up)
        keep = keep & (up < 1.0) & (off < 0.3 * density * (1.0 - up) + 0.02)
    elif mask == STAR:
        # |sin| of a multiple angle without an arc tangent: the Chebyshev polynomial of the cosine.
        r2 = u * u + v * v + 1.0e-6
        c2 = (u * u - v * v) / r2
        lobes = 4.0 * c2 * c2 * c2 - 3.0 * c2
        limit = 0.62 + 0.33 * density * lobes
        keep = keep & (r2 < limit * limit)
    elif mask == WHEEL:
        # Sixteen spokes where sin of eight times the angle vanishes: the direction squared three times.
        r2 = u * u + v * v + 1.0e-6
        c = u * u - v * v
        s = 2.0 * u * v
        a = c * c - s * s
        s = 2.0 * c * s
        c = a * a - s * s
        s = 2.0 * a * s
        spoke = tl.abs(s) < (0.06 + 0.5 * density) * r2 * r2 * r2 * tl.sqrt(r2)
        rim = (r2 > 0.8 - 0.2 * density) | (r2 < 0.015 + 0.03 * density)
        keep = keep & (r2 <= 1.0) & (spoke | rim)
    return keep
