"""Ray intersections and normals of the primitives in their own coordinates (dialect functions).

Every primitive fills at most the cube [-1, 1]^3 of its object space; an affine map per primitive and view turns
camera space into it. A ray keeps its parameter through the map, and camera rays have z = 1, so the parameter of
a hit is its depth. Functions return `MISS` where nothing is hit.

The quadrics take their discriminant from cross products (Lagrange's identity) instead of b² - ac: a wire of
2 mm seen from 5 m has coordinates of 2500 radii, where b² - ac has no digits left in fp32.
"""

from __future__ import annotations

from matchattention.synth.dialect import any_lane, as_int, jit, tl
from matchattention.synth.noise import hash_cell, sine

MISS = tl.constexpr(1.0e30)
NEAR = tl.constexpr(0.02)  # m; hits closer than this belong to an object the camera is inside of

CARD = tl.constexpr(0)
BOX = tl.constexpr(1)
ELLIPSOID = tl.constexpr(2)
FRUSTUM = tl.constexpr(3)
TORUS = tl.constexpr(4)
TERRAIN = tl.constexpr(5)
PRISM = tl.constexpr(6)

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
def hit_box(ox, oy, oz, dx, dy, dz):
    """The cube [-1, 1]^3 from outside, by slabs."""
    ix = 1.0 / tl.where(tl.abs(dx) < 1.0e-12, 1.0e-12, dx)
    iy = 1.0 / tl.where(tl.abs(dy) < 1.0e-12, 1.0e-12, dy)
    iz = 1.0 / tl.where(tl.abs(dz) < 1.0e-12, 1.0e-12, dz)
    enter = tl.maximum(tl.maximum(-ox * ix - tl.abs(ix), -oy * iy - tl.abs(iy)), -oz * iz - tl.abs(iz))
    leave = tl.minimum(tl.minimum(-ox * ix + tl.abs(ix), -oy * iy + tl.abs(iy)), -oz * iz + tl.abs(iz))
    return tl.where((enter < leave) & (enter > NEAR), enter, MISS)


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
def object_normal(kind, x, y, z, p0, p1):
    """Outward normal (not normalised) in object space at a surface point, per lane.

    Args:
        kind: int32 lanes.
        x: object-space hit (also y, z).
        p0: first shape parameter (taper, tube, roughness, sides).
        p1: second shape parameter (terrain's seed, prism's taper).
    """
    ax = tl.abs(x)
    ay = tl.abs(y)
    az = tl.abs(z)
    is_x = (ax >= ay) & (ax >= az)
    is_y = (ay > ax) & (ay >= az)
    is_z = (az > ax) & (az > ay)
    box = kind == BOX
    nx = tl.where(box, tl.where(is_x, x, 0.0), x)
    ny = tl.where(box, tl.where(is_y, y, 0.0), y)
    nz = tl.where(box, tl.where(is_z, z, 0.0), z)
    card = kind == CARD
    nx = tl.where(card, 0.0, nx)
    ny = tl.where(card, 0.0, ny)
    nz = tl.where(card, 1.0, nz)
    frustum = kind == FRUSTUM
    slope = 0.5 * p0
    radius = 1.0 - slope - slope * z
    cap = frustum & (az > 0.9995) & (x * x + y * y < 0.99 * radius * radius)
    nz = tl.where(frustum, slope * radius, nz)
    nx = tl.where(cap, 0.0, nx)
    ny = tl.where(cap, 0.0, ny)
    nz = tl.where(cap, z, nz)
    torus = kind == TORUS
    flat = tl.sqrt(x * x + y * y) + 1.0e-9
    pull = 1.0 - (1.0 - p0) / flat
    nx = tl.where(torus, x * pull, nx)
    ny = tl.where(torus, y * pull, ny)
    nz = tl.where(torus, z, nz)
    terrain = kind == TERRAIN
    e = 0.01
    h = terrain_height(x, y, p0, p1)
    hx = terrain_height(x + e, y, p0, p1) - h
    hy = terrain_height(x, y + e, p0, p1) - h
    nx = tl.where(terrain, -hx / e, nx)
    ny = tl.where(terrain, -hy / e, ny)
    nz = tl.where(terrain, 1.0, nz)
    prism = kind == PRISM
    if any_lane(prism):
        sides = tl.where(prism, p0, 3.0)
        slope = 0.5 * p1
        apothem = sine(1.5707963 - 3.14159265 / sides)
        nearest = tl.where(az > 0.9995, 1.0, -1.0e30)
        fx = 0.0 * x
        fy = 0.0 * x
        fz = tl.where(z > 0.0, 1.0, -1.0) + 0.0 * x
        # The face whose plane the point lies on is the one it exceeds most.
        for k in range(8):
            c, s = side_direction(k + 0.0 * x, sides)
            reach = 1.0 + c * x + s * y - (1.0 - slope - slope * z) * apothem
            on_face = (k < sides) & (reach > nearest + 1.0e-4)
            nearest = tl.where(on_face, reach, nearest)
            fx = tl.where(on_face, c, fx)
            fy = tl.where(on_face, s, fy)
            fz = tl.where(on_face, slope * apothem, fz)
        nx = tl.where(prism, fx, nx)
        ny = tl.where(prism, fy, ny)
        nz = tl.where(prism, fz, nz)
    return nx, ny, nz
