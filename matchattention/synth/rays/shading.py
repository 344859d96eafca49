"""Light on surfaces (dialect functions): diffuse, specular, ambient, shadow map, haze, sky."""

from __future__ import annotations

from matchattention.synth.rays.dialect import any_lane, as_int, at, jit, tl
from matchattention.synth.rays.dispatch import CARD, object_normal
from matchattention.synth.rays.materials import EMISSION, ENVIRONMENT, EXPONENT, FIRST, SPECULAR, albedo
from matchattention.synth.rays.noise import fractal
from matchattention.synth.rays.primitives import hit_sheet

AMBIENCE = (
    "key_x",
    "key_y",
    "key_z",
    "key_red",
    "key_green",
    "key_blue",
    "fill_x",
    "fill_y",
    "fill_z",
    "fill_red",
    "fill_green",
    "fill_blue",
    "above_red",
    "above_green",
    "above_blue",
    "below_red",
    "below_green",
    "below_blue",
    "up_x",
    "up_y",
    "up_z",
    "east_x",
    "east_y",
    "east_z",
    "north_x",
    "north_y",
    "north_z",
    "eye_height",
    "haze_red",
    "haze_green",
    "haze_blue",
    "haze_density",
    "horizon_red",
    "horizon_green",
    "horizon_blue",
    "zenith_red",
    "zenith_green",
    "zenith_blue",
    "clouds",
    "sky_seed",
    "contact",
    "contact_length",
    "key_reach",
    "shadow",
    "shadow_focal",
    "shadow_bias",
    *(f"shadow_{row}{column}" for row in "xyz" for column in "xyzw"),
)
KEY = tl.constexpr(AMBIENCE.index("key_x"))
KEY_COLOUR = tl.constexpr(AMBIENCE.index("key_red"))
FILL = tl.constexpr(AMBIENCE.index("fill_x"))
FILL_COLOUR = tl.constexpr(AMBIENCE.index("fill_red"))
ABOVE = tl.constexpr(AMBIENCE.index("above_red"))
BELOW = tl.constexpr(AMBIENCE.index("below_red"))
UP = tl.constexpr(AMBIENCE.index("up_x"))
EAST = tl.constexpr(AMBIENCE.index("east_x"))
NORTH = tl.constexpr(AMBIENCE.index("north_x"))
EYE_HEIGHT = tl.constexpr(AMBIENCE.index("eye_height"))
HAZE = tl.constexpr(AMBIENCE.index("haze_red"))
HAZE_DENSITY = tl.constexpr(AMBIENCE.index("haze_density"))
HORIZON = tl.constexpr(AMBIENCE.index("horizon_red"))
ZENITH = tl.constexpr(AMBIENCE.index("zenith_red"))
CLOUDS = tl.constexpr(AMBIENCE.index("clouds"))
SKY_SEED = tl.constexpr(AMBIENCE.index("sky_seed"))
CONTACT = tl.constexpr(AMBIENCE.index("contact"))
CONTACT_LENGTH = tl.constexpr(AMBIENCE.index("contact_length"))
KEY_REACH = tl.constexpr(AMBIENCE.index("key_reach"))
SHADOW = tl.constexpr(AMBIENCE.index("shadow"))
SHADOW_FOCAL = tl.constexpr(AMBIENCE.index("shadow_focal"))
SHADOW_BIAS = tl.constexpr(AMBIENCE.index("shadow_bias"))
TO_LIGHT = tl.constexpr(AMBIENCE.index("shadow_xx"))  # first of twelve that map camera space to the light's camera


@jit
def affine(row, first, x, y, z):
    """One row of a 3x4 matrix, from column `first` of a table on, times a point."""
    return at(row, first) * x + at(row, first + 1) * y + at(row, first + 2) * z + at(row, first + 3)


@jit
def lit_share(ambience, px, py, pz, shadow_map, SHADOW_SIZE: tl.constexpr):
    """Share of the key light that reaches points in camera space: four taps of the light's depth map."""
    lx = affine(ambience, TO_LIGHT, px, py, pz)
    ly = affine(ambience, TO_LIGHT + 4, px, py, pz)
    lz = affine(ambience, TO_LIGHT + 8, px, py, pz)
    focal = at(ambience, SHADOW_FOCAL)
    centre = 0.5 * (SHADOW_SIZE - 1)
    depth = tl.maximum(lz, 1.0e-3)
    u = focal * lx / depth + centre
    v = focal * ly / depth + centre
    known = (u > 0.0) & (v > 0.0) & (u < SHADOW_SIZE - 1.001) & (v < SHADOW_SIZE - 1.001) & (lz > 0.01)
    u = tl.where(known, u, 0.0)
    v = tl.where(known, v, 0.0)
    u0 = tl.floor(u)
    v0 = tl.floor(v)
    u = u - u0
    v = v - v0
    place = as_int(v0) * SHADOW_SIZE + as_int(u0)
    limit = lz - at(ambience, SHADOW_BIAS)
    a = tl.where(at(shadow_map, place) > limit, 1.0, 0.0)
    b = tl.where(at(shadow_map, place + 1) > limit, 1.0, 0.0)
    c = tl.where(at(shadow_map, place + SHADOW_SIZE) > limit, 1.0, 0.0)
    d = tl.where(at(shadow_map, place + SHADOW_SIZE + 1) > limit, 1.0, 0.0)
    a = a + u * (b - a)
    c = c + u * (d - c)
    lit = a + v * (c - a)
    return 1.0 - at(ambience, SHADOW) * tl.where(known, 1.0 - lit, 0.0)


@jit
def sky(ambience, dx, dy, dz):
    """Colour of the sky in a (normalised) direction: a gradient and clouds, which stay where they are in the world."""
    climb = at(ambience, UP) * dx + at(ambience, UP + 1) * dy + at(ambience, UP + 2) * dz
    east = at(ambience, EAST) * dx + at(ambience, EAST + 1) * dy + at(ambience, EAST + 2) * dz
    north = at(ambience, NORTH) * dx + at(ambience, NORTH + 1) * dy + at(ambience, NORTH + 2) * dz
    share = tl.sqrt(tl.maximum(climb, 0.0))
    flat = 1.0 / (tl.maximum(climb, 0.0) + 0.12)
    east = 2.0 * east * flat + at(ambience, SKY_SEED)
    coarse, fine = fractal(east, -2.0 * climb, 2.0 * north * flat, 0.02 * flat, 0.5)
    cloud = tl.minimum(tl.maximum(1.4 * (coarse + 0.4 * fine) + 2.0 * at(ambience, CLOUDS) - 1.0, 0.0), 1.0)
    cloud = cloud * tl.minimum(at(ambience, CLOUDS) * 4.0, 1.0)
    red = at(ambience, HORIZON) + share * (at(ambience, ZENITH) - at(ambience, HORIZON))
    green = at(ambience, HORIZON + 1) + share * (at(ambience, ZENITH + 1) - at(ambience, HORIZON + 1))
    blue = at(ambience, HORIZON + 2) + share * (at(ambience, ZENITH + 2) - at(ambience, HORIZON + 2))
    white = at(ambience, HORIZON) * 1.15
    return red + cloud * (white - red), green + cloud * (white - green), blue + cloud * (white - blue)


@jit
def shade(
    ray,
    kind,
    surface,
    material,
    ambience,
    shadow_map,
    px,
    py,
    pz,
    vx,
    vy,
    vz,
    travelled,
    missed,
    focal,
    photos,
    starts,
    SHADOW_SIZE: tl.constexpr,
    PHOTO_SIZE: tl.constexpr,
    LEVELS: tl.constexpr,
):
    """Radiance that leaves a point towards the viewer, and the surface's normal.

    Args:
        ray: row of the hit primitive's ray table.
        kind: int32 lanes, kind of the primitive.
        surface: row (half extents in m, object number).
        material: row of `materials.COLUMNS`.
        ambience: row of `AMBIENCE`.
        shadow_map: the scene's depth map of the key light, flat.
        px: the point in camera space, m (also py, pz).
        vx: unit direction in which the ray travels (also vy, vz).
        travelled: m, length of the whole path.
        missed: lanes that see the sky.
        focal: px.
        photos: texels of the photo bank, `starts` of its levels.
        SHADOW_SIZE: width of the shadow map.
        PHOTO_SIZE: px, side of a photo, `LEVELS` of its pyramid.

    Returns:
        Linear red, green, blue; unit normal x, y, z in camera space.
    """
    x = at(ray, 9) + (at(ray, 0) * px + at(ray, 1) * py + at(ray, 2) * pz)
    y = at(ray, 10) + (at(ray, 3) * px + at(ray, 4) * py + at(ray, 5) * pz)
    z = at(ray, 11) + (at(ray, 6) * px + at(ray, 7) * py + at(ray, 8) * pz)
    gx, gy, gz = object_normal(kind, x, y, z, at(ray, 12), at(ray, 13))
    nx = at(ray, 0) * gx + at(ray, 3) * gy + at(ray, 6) * gz
    ny = at(ray, 1) * gx + at(ray, 4) * gy + at(ray, 7) * gz
    nz = at(ray, 2) * gx + at(ray, 5) * gy + at(ray, 8) * gz
    length = 1.0 / tl.sqrt(nx * nx + ny * ny + nz * nz + 1.0e-20)
    nx = nx * length
    ny = ny * length
    nz = nz * length
    facing = vx * nx + vy * ny + vz * nz
    side = tl.where((kind == CARD) & (facing > 0.0), -1.0, 1.0)
    nx = nx * side
    ny = ny * side
    nz = nz * side
    facing = tl.abs(facing)
    hx = at(surface, 0)
    hy = at(surface, 1)
    hz = at(surface, 2)
    # Between the two axes of the pixel's ellipse on the surface, nearer the short one where it is slanted: rows of
    # both views sample a road at the same places, so what aliases along it aliases alike.
    footprint = travelled / focal / tl.maximum(tl.sqrt(facing), 0.4)
    red, green, blue, grain = albedo(
        material,
        x * hx,
        y * hy,
        z * hz,
        gx / hx,
        gy / hy,
        gz / hz,
        at(surface, 3),
        footprint,
        photos,
        starts,
        PHOTO_SIZE,
        LEVELS,
    )

    up_x = at(ambience, UP)
    up_y = at(ambience, UP + 1)
    up_z = at(ambience, UP + 2)
    upward = 0.5 + 0.5 * (nx * up_x + ny * up_y + nz * up_z)
    above_ground = tl.maximum(at(ambience, EYE_HEIGHT) + px * up_x + py * up_y + pz * up_z, 0.0)
    # Ambient occlusion where things stand: dimmer close to the ground, most where they face down.
    contact = 1.0 - at(ambience, CONTACT) * (1.0 - 0.6 * upward) * tl.exp(-above_ground / at(ambience, CONTACT_LENGTH))
    light_r = (at(ambience, BELOW) + upward * (at(ambience, ABOVE) - at(ambience, BELOW))) * contact
    light_g = (at(ambience, BELOW + 1) + upward * (at(ambience, ABOVE + 1) - at(ambience, BELOW + 1))) * contact
    light_b = (at(ambience, BELOW + 2) + upward * (at(ambience, ABOVE + 2) - at(ambience, BELOW + 2))) * contact

    kx = at(ambience, KEY) - px
    ky = at(ambience, KEY + 1) - py
    kz = at(ambience, KEY + 2) - pz
    distance2 = kx * kx + ky * ky + kz * kz + 1.0e-6
    inverse = 1.0 / tl.sqrt(distance2)
    kx = kx * inverse
    ky = ky * inverse
    kz = kz * inverse
    reach = at(ambience, KEY_REACH)
    strength = reach * reach / (distance2 + 0.1 * reach * reach)
    strength = strength * lit_share(ambience, px, py, pz, shadow_map, SHADOW_SIZE)
    lambert = tl.maximum(nx * kx + ny * ky + nz * kz, 0.0) * strength
    light_r = light_r + lambert * at(ambience, KEY_COLOUR)
    light_g = light_g + lambert * at(ambience, KEY_COLOUR + 1)
    light_b = light_b + lambert * at(ambience, KEY_COLOUR + 2)

    fx = at(ambience, FILL) - px
    fy = at(ambience, FILL + 1) - py
    fz = at(ambience, FILL + 2) - pz
    inverse = 1.0 / tl.sqrt(fx * fx + fy * fy + fz * fz + 1.0e-6)
    fill = tl.maximum((nx * fx + ny * fy + nz * fz) * inverse, 0.0)
    light_r = light_r + fill * at(ambience, FILL_COLOUR)
    light_g = light_g + fill * at(ambience, FILL_COLOUR + 1)
    light_b = light_b + fill * at(ambience, FILL_COLOUR + 2)

    # Blinn-Phong, normalised so that a tighter lobe is brighter.
    bx = kx - vx
    by = ky - vy
    bz = kz - vz
    inverse = 1.0 / tl.sqrt(bx * bx + by * by + bz * bz + 1.0e-12)
    half = tl.maximum((nx * bx + ny * by + nz * bz) * inverse, 1.0e-4)
    exponent = tl.exp2(at(material, EXPONENT))
    gloss = at(material, SPECULAR) * grain * strength * (exponent + 8.0) * 0.02 * tl.exp2(exponent * tl.log2(half))
    gloss = tl.where(lambert > 0.0, gloss, 0.0)
    # Schlick's Fresnel term times a smooth environment: polished things reflect the room or the sky.
    graze = 1.0 - facing
    fresnel = at(material, ENVIRONMENT) * (0.08 + 0.92 * graze * graze * graze * graze * graze)
    two = -2.0 * (vx * nx + vy * ny + vz * nz)
    mirrored_up = 0.5 + 0.5 * ((vx + two * nx) * up_x + (vy + two * ny) * up_y + (vz + two * nz) * up_z)
    horizon = tl.minimum(tl.maximum(6.0 * (mirrored_up - 0.5) + 0.5, 0.0), 1.0)
    around_r = at(ambience, BELOW) + horizon * (1.5 * at(ambience, ABOVE) - at(ambience, BELOW))
    around_g = at(ambience, BELOW + 1) + horizon * (1.5 * at(ambience, ABOVE + 1) - at(ambience, BELOW + 1))
    around_b = at(ambience, BELOW + 2) + horizon * (1.5 * at(ambience, ABOVE + 2) - at(ambience, BELOW + 2))
    glow = at(material, EMISSION)
    red = red * (light_r + glow) * (1.0 - fresnel) + gloss * at(ambience, KEY_COLOUR) + fresnel * around_r
    green = green * (light_g + glow) * (1.0 - fresnel) + gloss * at(ambience, KEY_COLOUR + 1) + fresnel * around_g
    blue = blue * (light_b + glow) * (1.0 - fresnel) + gloss * at(ambience, KEY_COLOUR + 2) + fresnel * around_b

    clear = tl.exp(-travelled * at(ambience, HAZE_DENSITY))
    red = at(ambience, HAZE) + clear * (red - at(ambience, HAZE))
    green = at(ambience, HAZE + 1) + clear * (green - at(ambience, HAZE + 1))
    blue = at(ambience, HAZE + 2) + clear * (blue - at(ambience, HAZE + 2))
    if any_lane(missed):
        sky_r, sky_g, sky_b = sky(ambience, vx, vy, vz)
        red = tl.where(missed, sky_r, red)
        green = tl.where(missed, sky_g, green)
        blue = tl.where(missed, sky_b, blue)
    return red, green, blue, nx, ny, nz


@jit
def through_pane(pane, material, ambience, red, green, blue, t, dx, dy):
    """What a camera ray shows when a sheet of glass stands before what it hits.

    Glass is no surface to the labels: the network shall see through it. It tints, and reflects the surroundings.

    Args:
        pane: row of the pane's ray table.
        material: its material row.
        red: radiance behind it (also green, blue).
        t: depth of what is behind.
        dx: ray direction with z = 1 (also dy).
    """
    zero = 0.0 * dx
    ux = at(pane, 0) * dx + at(pane, 1) * dy + at(pane, 2)
    uy = at(pane, 3) * dx + at(pane, 4) * dy + at(pane, 5)
    uz = at(pane, 6) * dx + at(pane, 7) * dy + at(pane, 8)
    front = hit_sheet(at(pane, 9) + zero, at(pane, 10) + zero, at(pane, 11) + zero, ux, uy, uz)
    covered = front < t
    length = 1.0 / tl.sqrt(dx * dx + dy * dy + 1.0)
    vx = dx * length
    vy = dy * length
    vz = length
    nx = at(pane, 6)
    ny = at(pane, 7)
    nz = at(pane, 8)
    inverse = 1.0 / tl.sqrt(nx * nx + ny * ny + nz * nz)
    facing = (vx * nx + vy * ny + vz * nz) * inverse
    graze = 1.0 - tl.abs(facing)
    mirror = 0.05 + 0.95 * graze * graze * graze * graze * graze
    fold = -2.0 * facing * inverse
    sky_r, sky_g, sky_b = sky(ambience, vx + fold * nx, vy + fold * ny, vz + fold * nz)
    keep = 0.97 - mirror
    red = tl.where(covered, red * keep * at(material, FIRST) + mirror * sky_r, red)
    green = tl.where(covered, green * keep * at(material, FIRST + 1) + mirror * sky_g, green)
    blue = tl.where(covered, blue * keep * at(material, FIRST + 2) + mirror * sky_b, blue)
    return red, green, blue
