"""Hashes and band-limited noise, in the dialect of `matchattention.synth.rays.dialect`."""

from __future__ import annotations

from matchattention.synth.rays.dialect import as_float, as_int, jit, tl


@jit
def mix_bits(h):
    """Scramble an int32 (wrapping multiplications, arithmetic shifts)."""
    h = (h ^ (h >> 15)) * 739982445
    h = (h ^ (h >> 12)) * 695872825
    return h ^ (h >> 15)


@jit
def hash_cell(x, y, z):
    """Hash of an integer lattice point, uniform in [0, 1)."""
    h = mix_bits(x * 374761393 + y * 668265263 + z * 1274126177)
    return as_float(h & 16777215) * 5.9604644775390625e-08


@jit
def value_noise(x, y, z):
    """Smooth lattice noise in [-1, 1] with period-one cells."""
    x0 = tl.floor(x)
    y0 = tl.floor(y)
    z0 = tl.floor(z)
    u = x - x0
    v = y - y0
    w = z - z0
    u = u * u * (3.0 - 2.0 * u)
    v = v * v * (3.0 - 2.0 * v)
    w = w * w * (3.0 - 2.0 * w)
    i = as_int(x0)
    j = as_int(y0)
    k = as_int(z0)
    a = hash_cell(i, j, k)
    b = hash_cell(i + 1, j, k)
    near = a + u * (b - a)
    a = hash_cell(i, j + 1, k)
    b = hash_cell(i + 1, j + 1, k)
    near = near + v * (a + u * (b - a) - near)
    a = hash_cell(i, j, k + 1)
    b = hash_cell(i + 1, j, k + 1)
    far = a + u * (b - a)
    a = hash_cell(i, j + 1, k + 1)
    b = hash_cell(i + 1, j + 1, k + 1)
    far = far + v * (a + u * (b - a) - far)
    return 2.0 * (near + w * (far - near)) - 1.0


@jit
def sine(x):
    """A wave like sin(x), within 0.001 of it, from two parabolas: textures and terrain need no more."""
    turns = x * 0.15915494
    turns = turns - tl.floor(turns + 0.5)
    wave = turns * (8.0 - 16.0 * tl.abs(turns))
    return wave * (0.775 + 0.225 * tl.abs(wave))


@jit
def band_limit(footprint):
    """Weight of a pattern of period one seen through a pixel that covers `footprint` periods."""
    fade = tl.minimum(tl.maximum((0.75 - footprint) * 2.2, 0.0), 1.0)
    return fade * fade * (3.0 - 2.0 * fade)


@jit
def fractal(x, y, z, footprint, gain):
    """Two sums of octaves of noise: three coarse ones that belong to the object, and fine grain.

    Octaves whose period falls below two pixels fade out, so that a distant surface is smooth instead of
    aliased and both views see the same thing. The grain always has the three octaves that a pixel can just
    resolve: real surfaces have structure at every scale, from however near they are seen.

    Args:
        x: coordinates in periods of the first octave (also y, z).
        footprint: periods of the first octave per pixel.
        gain: amplitude of a coarse octave relative to the one before.

    Returns:
        Coarse sum, roughly in [-1.5, 1.5], and fine sum, roughly in [-1, 1].
    """
    footprint = tl.minimum(tl.maximum(footprint, 1.0e-4), 1.0e3) + 0.0 * x
    level = tl.log2(0.35 / footprint)
    top = tl.floor(level)
    emerging = level - top
    fine = 0.0 * x
    for j in range(4):
        octave = top - j
        scale = tl.exp2(octave)
        # The finest octave grows in while the coarsest fades: no step where the level passes an integer.
        weight = tl.where(j == 0, emerging, tl.where(j == 3, 1.0 - emerging, 1.0))
        shift = 13.7 * octave
        fine = fine + 0.5 * weight * value_noise(x * scale + shift, y * scale - shift, z * scale + 0.5 * shift)
    amplitude = 1.0 + 0.0 * x
    coarse = 0.0 * x
    for _ in range(3):  # not unrolled: the kernel would grow threefold
        coarse = coarse + amplitude * band_limit(footprint) * value_noise(x, y, z)
        # A rotation between octaves hides the lattice; 2.03 keeps the zeros of octaves apart.
        a = 1.624 * x - 1.218 * z + 17.13
        z = 1.218 * x + 1.624 * z + 5.71
        x = a
        y = 2.03 * y + 11.37
        footprint = footprint * 2.03
        amplitude = amplitude * gain
    return coarse, fine


@jit
def fraction(x):
    """Distance above the next lower integer."""
    return x - tl.floor(x)


@jit
def flat_noise(x, y, seed):
    """Smooth 2D lattice noise in [0, 1]."""
    x0 = tl.floor(x)
    y0 = tl.floor(y)
    u = x - x0
    v = y - y0
    u = u * u * (3.0 - 2.0 * u)
    v = v * v * (3.0 - 2.0 * v)
    i = as_int(x0)
    j = as_int(y0)
    a = hash_cell(i, j, seed)
    b = hash_cell(i + 1, j, seed)
    c = hash_cell(i, j + 1, seed)
    d = hash_cell(i + 1, j + 1, seed)
    a = a + u * (b - a)
    c = c + u * (d - c)
    return a + v * (c - a)
