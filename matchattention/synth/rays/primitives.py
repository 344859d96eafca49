"""Every primitive of the rendered world, declared once: `PRIMITIVES` is what caster, shader, builder and config read.

A primitive fills at most the cube [-1, 1]^3 of its object space, which gives its bounds; an affine map per primitive
and view turns camera space into it. A ray keeps its parameter through the map, and camera rays have z = 1, so the
parameter of a hit is its depth. `hit_…` functions return `MISS` where nothing is hit; `normal_…` functions give the
outward normal, not normalised, at a point of the surface. Both are written in the dialect of `dialect`.

The quadrics take their discriminant from cross products (Lagrange's identity) instead of b² - ac: a wire of
2 mm seen from 5 m has coordinates of 2500 radii, where b² - ac has no digits left in fp32.

docs/how-to/primitive.md adds one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from matchattention.synth.dice import Dice
from matchattention.synth.rays.dialect import jit, tl
from matchattention.synth.rays.masks import mask_keeps
from matchattention.synth.rays.noise import sine

MISS = tl.constexpr(1.0e30)
NEAR = tl.constexpr(0.02)  # m; hits closer than this belong to an object the camera is inside of


@jit
def hit_sheet(ox, oy, oz, dx, dy, dz):
    """The plane z = 0 inside [-1, 1]²."""
    t = -oz / tl.where(tl.abs(dz) < 1.0e-12, 1.0e-12, dz)
    inside = (tl.abs(ox + t * dx) <= 1.0) & (tl.abs(oy + t * dy) <= 1.0)
    return tl.where(inside & (t > NEAR), t, MISS)


@jit
def hit_card(ox, oy, oz, dx, dy, dz, mask, scale_u, scale_v, density):
    """The plane z = 0 inside [-1, 1]², less what its mask cuts out."""
    t = -oz / tl.where(tl.abs(dz) < 1.0e-12, 1.0e-12, dz)
    keep = mask_keeps(mask, ox + t * dx, oy + t * dy, scale_u, scale_v, density)
    return tl.where(keep & (t > NEAR), t, MISS)


@jit
def normal_card(x, y, z, p0, p1):
    """Along z; the shader turns it towards the viewer."""
    return 0.0 * x, 0.0 * x, 0.0 * x + 1.0


@jit
def hit_box(ox, oy, oz, dx, dy, dz):
    """The cube [-1, 1]^3 from outside, by slabs."""
    ix = 1.0 / tl.where(tl.abs(dx) < 1.0e-12, 1.0e-12, dx)
    iy = 1.0 / tl.where(tl.abs(dy) < 1.0e-12, 1.0e-12, dy)
    iz = 1.0 / tl.where(tl.abs(dz) < 1.0e-12, 1.0e-12, dz)
    enter = tl.maximum(tl.maximum(-ox * ix - tl.abs(ix), -oy * iy - tl.abs(iy)), -oz * iz - tl.abs(iz))
    leave = tl.minimum(tl.minimum(-ox * ix + tl.abs(ix), -oy * iy + tl.abs(iy)), -oz * iz + tl.abs(iz))
    return tl.where((enter < leave) & (enter > NEAR), enter, MISS)


@jit
def normal_box(x, y, z, p0, p1):
    """Across the face of the largest coordinate."""
    ax = tl.abs(x)
    ay = tl.abs(y)
    az = tl.abs(z)
    nx = tl.where((ax >= ay) & (ax >= az), x, 0.0)
    ny = tl.where((ay > ax) & (ay >= az), y, 0.0)
    nz = tl.where((az > ax) & (az > ay), z, 0.0)
    return nx, ny, nz


@jit
def hit_ellipsoid(ox, oy, oz, dx, dy, dz):
    """The unit sphere from outside."""
    a = dx * dx + dy * dy + dz * dz
    b = ox * dx + oy * dy + oz * dz
    cx = oy * dz - oz * dy
    cy = oz * dx - ox * dz
    cz = ox * dy - oy * dx
    rest = a - (cx * cx + cy * cy + cz * cz)
    t = (-b - tl.sqrt(tl.maximum(rest, 0.0))) / a
    return tl.where((rest > 0.0) & (t > NEAR), t, MISS)


@jit
def normal_ellipsoid(x, y, z, p0, p1):
    """Away from the centre."""
    return x, y, z


@jit
def hit_frustum(ox, oy, oz, dx, dy, dz, taper):
    """Capped cone of radius 1 at z = -1 and 1 - taper at z = 1 from outside; taper 0 is a cylinder."""
    slope = 0.5 * taper
    r0 = 1.0 - slope - slope * oz
    rd = -slope * dz
    a = dx * dx + dy * dy - rd * rd
    b = ox * dx + oy * dy - r0 * rd
    c = ox * ox + oy * oy - r0 * r0
    p = ox * rd - r0 * dx
    q = oy * rd - r0 * dy
    s = ox * dy - oy * dx
    rest = p * p + q * q - s * s
    root = tl.sqrt(tl.maximum(rest, 0.0))
    # Two roots without cancellation: one from the sum of like signs, the other from their product.
    m = tl.where(b > 0.0, -b - root, -b + root)
    m = tl.where(tl.abs(m) < 1.0e-12, 1.0e-12, m)
    t1 = m / tl.where(tl.abs(a) < 1.0e-12, 1.0e-12, a)
    t2 = c / m
    z1 = oz + t1 * dz
    z2 = oz + t2 * dz
    ok1 = (rest >= 0.0) & (tl.abs(z1) <= 1.0) & (t1 > NEAR) & (r0 + t1 * rd >= 0.0)
    ok2 = (rest >= 0.0) & (tl.abs(z2) <= 1.0) & (t2 > NEAR) & (r0 + t2 * rd >= 0.0)
    t = tl.minimum(tl.where(ok1, t1, MISS), tl.where(ok2, t2, MISS))
    iz = 1.0 / tl.where(tl.abs(dz) < 1.0e-12, 1.0e-12, dz)
    t3 = (-1.0 - oz) * iz
    x = ox + t3 * dx
    y = oy + t3 * dy
    t = tl.where((x * x + y * y < 1.0) & (t3 > NEAR), tl.minimum(t, t3), t)
    t4 = (1.0 - oz) * iz
    x = ox + t4 * dx
    y = oy + t4 * dy
    top = 1.0 - taper
    return tl.where((x * x + y * y < top * top) & (t4 > NEAR), tl.minimum(t, t4), t)


@jit
def normal_frustum(x, y, z, taper, p1):
    """Of the mantle, or along z on the caps."""
    slope = 0.5 * taper
    radius = 1.0 - slope - slope * z
    cap = (tl.abs(z) > 0.9995) & (x * x + y * y < 0.99 * radius * radius)
    return tl.where(cap, 0.0, x), tl.where(cap, 0.0, y), tl.where(cap, z, slope * radius)


@jit
def side_direction(k, sides):
    """Direction across the k-th of a prism's sides; its length need not be one, only the same for hit and normal."""
    angle = 6.2831853 * k / sides
    return sine(angle + 1.5707963), sine(angle)


@jit
def hit_prism(ox, oy, oz, dx, dy, dz, sides, taper):
    """Regular prism around z inside the unit cylinder, narrowing to 1 - taper at z = 1: the meet of half spaces.

    Args:
        sides: 3 to 8 (a scalar).
        taper: 0 is a prism, 1 a pyramid.
    """
    slope = 0.5 * taper
    iz = 1.0 / tl.where(tl.abs(dz) < 1.0e-12, 1.0e-12, dz)
    enter = -oz * iz - tl.abs(iz)
    leave = -oz * iz + tl.abs(iz)
    apothem = sine(1.5707963 - 3.14159265 / sides)
    k = 0.0 * sides
    while k < sides:
        c, s = side_direction(k, sides)
        # Inside: c x + s y + slope z apothem <= (1 - slope) apothem.
        ahead = c * dx + s * dy + slope * apothem * dz
        height = (1.0 - slope) * apothem - (c * ox + s * oy + slope * apothem * oz)
        t = height / tl.where(tl.abs(ahead) < 1.0e-12, 1.0e-12, ahead)
        enter = tl.where(ahead < 0.0, tl.maximum(enter, t), enter)
        leave = tl.where(ahead < 0.0, leave, tl.minimum(leave, t))
        k += 1.0
    return tl.where((enter < leave) & (enter > NEAR), enter, MISS)


@jit
def normal_prism(x, y, z, p0, taper):
    """Of the face whose plane the point lies on: the one it exceeds most."""
    sides = tl.maximum(p0, 3.0)  # lanes that are no prism have any number here
    slope = 0.5 * taper
    apothem = sine(1.5707963 - 3.14159265 / sides)
    nearest = tl.where(tl.abs(z) > 0.9995, 1.0, -1.0e30)
    nx = 0.0 * x
    ny = 0.0 * x
    nz = tl.where(z > 0.0, 1.0, -1.0) + 0.0 * x
    for k in range(8):
        c, s = side_direction(k + 0.0 * x, sides)
        reach = 1.0 + c * x + s * y - (1.0 - slope - slope * z) * apothem
        on_face = (k < sides) & (reach > nearest + 1.0e-4)
        nearest = tl.where(on_face, reach, nearest)
        nx = tl.where(on_face, c, nx)
        ny = tl.where(on_face, s, ny)
        nz = tl.where(on_face, slope * apothem, nz)
    return nx, ny, nz


@jit
def torus_distance(x, y, z, tube):
    """Signed distance to a torus around z whose outer radius is 1 and whose tube has radius `tube`."""
    ring = tl.sqrt(x * x + y * y) - (1.0 - tube)
    return tl.sqrt(ring * ring + z * z) - tube


@jit
def hit_torus(ox, oy, oz, dx, dy, dz, tube):
    """Torus (uniformly scaled) by sphere tracing from the bounding sphere, polished by Newton steps.

    A ray that has not converged counts as a miss: no depth is better than an absurd one.
    """
    a = dx * dx + dy * dy + dz * dz
    b = ox * dx + oy * dy + oz * dz
    cx = oy * dz - oz * dy
    cy = oz * dx - ox * dz
    cz = ox * dy - oy * dx
    rest = a - (cx * cx + cy * cy + cz * cz)
    root = tl.sqrt(tl.maximum(rest, 0.0))
    length = tl.sqrt(a)
    # Start at the bounding sphere: positions stay near one, where fp32 has all its digits.
    start = tl.maximum((-b - root) / a, NEAR)
    end = (-b + root) / a
    px = ox + start * dx
    py = oy + start * dy
    pz = oz + start * dz
    ux = dx / length
    uy = dy / length
    uz = dz / length
    s = 0.0 * a
    for _ in range(32):
        s = s + torus_distance(px + s * ux, py + s * uy, pz + s * uz, tube)
    for _ in range(2):
        e = 1.0e-3
        here = torus_distance(px + s * ux, py + s * uy, pz + s * uz, tube)
        ahead = torus_distance(px + (s + e) * ux, py + (s + e) * uy, pz + (s + e) * uz, tube)
        rate = (ahead - here) / e
        s = s - here / tl.where(rate < -0.05, rate, -1.0)
    error = tl.abs(torus_distance(px + s * ux, py + s * uy, pz + s * uz, tube))
    t = start + s / length
    return tl.where((rest > 0.0) & (error < 1.0e-4) & (t > NEAR) & (t < end), t, MISS)


@jit
def normal_torus(x, y, z, tube, p1):
    """Away from the circle in the middle of the tube."""
    pull = 1.0 - (1.0 - tube) / (tl.sqrt(x * x + y * y) + 1.0e-9)
    return x * pull, y * pull, z


@jit
def terrain_height(x, y, rough, seed):
    """Height of a terrain over [-1, 1]², within about [-1, 1]: a few waves whose directions depend on the seed."""
    h = 0.45 * sine(2.1 * x + 1.3 * y + 6.1 * seed) * sine(1.7 * y - 0.6 * x + 9.7 * seed + 1.5707963)
    h = h + 0.25 * sine(5.2 * x - 3.9 * y + 21.0 * seed)
    h = h + 0.16 * rough * sine(9.1 * x + 8.3 * y + 2.0 * h + 33.0 * seed)
    h = h + 0.10 * rough * sine(17.0 * x - 19.0 * y + 3.0 * h + 5.0 * seed)
    return h


@jit
def hit_terrain(ox, oy, oz, dx, dy, dz, rough, seed):
    """Height field z = terrain_height(x, y) over [-1, 1]²: a bounded march, then regula falsi in the bracket."""
    ix = 1.0 / tl.where(tl.abs(dx) < 1.0e-12, 1.0e-12, dx)
    iy = 1.0 / tl.where(tl.abs(dy) < 1.0e-12, 1.0e-12, dy)
    iz = 1.0 / tl.where(tl.abs(dz) < 1.0e-12, 1.0e-12, dz)
    start = tl.maximum(tl.maximum(-ox * ix - tl.abs(ix), -oy * iy - tl.abs(iy)), -oz * iz - tl.abs(iz))
    end = tl.minimum(tl.minimum(-ox * ix + tl.abs(ix), -oy * iy + tl.abs(iy)), -oz * iz + tl.abs(iz))
    start = tl.maximum(start, NEAR)
    step = (end - start) / 28.0
    inside = start < end
    low = start
    found = start > end
    above = oz + start * dz - terrain_height(ox + start * dx, oy + start * dy, rough, seed)
    low_f = above
    high_f = above
    t = start
    for _ in range(28):
        t = t + step
        f = oz + t * dz - terrain_height(ox + t * dx, oy + t * dy, rough, seed)
        crossed = (f < 0.0) & (found == 0) & (above > 0.0)
        low = tl.where(crossed, t - step, low)
        low_f = tl.where(crossed, above, low_f)
        high_f = tl.where(crossed, f, high_f)
        found = found | crossed
        above = f
    high = low + step
    for _ in range(8):
        share = low_f / tl.maximum(low_f - high_f, 1.0e-20)
        t = low + (high - low) * tl.minimum(tl.maximum(share, 0.05), 0.95)
        f = oz + t * dz - terrain_height(ox + t * dx, oy + t * dy, rough, seed)
        positive = f > 0.0
        low = tl.where(positive, t, low)
        low_f = tl.where(positive, f, low_f)
        high = tl.where(positive, high, t)
        high_f = tl.where(positive, high_f, f)
    share = low_f / tl.maximum(low_f - high_f, 1.0e-20)
    t = low + (high - low) * share
    return tl.where(inside & found & (t > NEAR) & (high_f <= 0.0), t, MISS)


@jit
def normal_terrain(x, y, z, rough, seed):
    """From differences of the height."""
    e = 0.01
    h = terrain_height(x, y, rough, seed)
    hx = terrain_height(x + e, y, rough, seed) - h
    hy = terrain_height(x, y + e, rough, seed) - h
    return -hx / e, -hy / e, 0.0 * x + 1.0


Shape = tuple[float | Tensor, ...]


def loose_as_it_is(dice: Dice, size: Tensor, half: Tensor) -> tuple[Tensor, Shape]:
    """No shape parameters and the half extents that were drawn."""
    return half, ()


def loose_frustum(dice: Dice, size: Tensor, half: Tensor) -> tuple[Tensor, Shape]:
    """Long rather than wide; every other one is a cylinder."""
    n = size.shape[1]
    wide, long = size * 0.5 * dice.log_uniform(0.6, 1.0, n), size * dice.log_uniform(0.4, 3.0, n)
    return torch.stack((size * 0.5, wide, long), -1), (torch.where(dice.chance(0.5, n), 0.0, dice.unit(n)),)


def loose_prism(dice: Dice, size: Tensor, half: Tensor) -> tuple[Tensor, Shape]:
    """Three to eight sides; every other one does not taper."""
    n = size.shape[1]
    return half, (dice.integer(3, 9, n).float(), torch.where(dice.chance(0.5, n), 0.0, dice.unit(n)))


def loose_torus(dice: Dice, size: Tensor, half: Tensor) -> tuple[Tensor, Shape]:
    """Round: its distance function holds for a uniform scale only."""
    return torch.stack((size, size, size), -1), (dice.uniform(0.06, 0.4, size.shape[1]),)


@dataclass(frozen=True)
class Primitive:
    """One kind of solid.

    Attributes:
        hit: dialect function of a ray's origin and direction (x, y, z each) in object space and the parameters.
        normal: dialect function of a surface point (x, y, z) and the first two parameters.
        parameters: names of its shape parameters, four at most.
        capacity: most of them in a scene, by default.
        flat: has no third extent.
        costly: the shader computes its normal only where a block of pixels shows one.
        loose: how a floating one is drawn: (dice, size (B, n) m, half (B, n, 3) m) to half extents and parameters.
        share: of the floating objects.
        share_uncurved: of the floating objects where curved ones are switched off.
    """

    hit: Any
    normal: Any
    parameters: tuple[str, ...] = ()
    capacity: int = 128
    flat: bool = False
    costly: bool = False
    loose: Callable[[Dice, Tensor, Tensor], tuple[Tensor, Shape]] = loose_as_it_is
    share: Fraction = Fraction(0)
    share_uncurved: Fraction = Fraction(0)


# A new one goes to the end: scenes of a seed draw the floating objects in this order.
PRIMITIVES: dict[str, Primitive] = {
    "card": Primitive(hit_card, normal_card, ("mask", "scale_u", "scale_v", "density"), flat=True),
    "box": Primitive(hit_box, normal_box, share=Fraction(1, 4), share_uncurved=Fraction(2, 3)),
    "ellipsoid": Primitive(hit_ellipsoid, normal_ellipsoid, capacity=48, share=Fraction(1, 4)),
    "frustum": Primitive(hit_frustum, normal_frustum, ("taper",), loose=loose_frustum, share=Fraction(1, 4)),
    "prism": Primitive(
        hit_prism,
        normal_prism,
        ("sides", "taper"),
        capacity=32,
        costly=True,
        loose=loose_prism,
        share=Fraction(1, 6),
        share_uncurved=Fraction(1, 3),
    ),
    "torus": Primitive(hit_torus, normal_torus, ("tube",), capacity=8, loose=loose_torus, share=Fraction(1, 12)),
    "terrain": Primitive(hit_terrain, normal_terrain, ("rough", "seed"), capacity=1),
}
