"""Materials of a scene: a palette drawn per scene, with fixed places for what layouts need by name."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth.dice import Dice
from matchattention.synth.rays.materials import COLUMNS, PATTERNS
from matchattention.synth.world.config import SceneConfig

FLOOR, WALL, CEILING, FOLIAGE, BARK, METAL, GLASS, RUBBER, BACKDROP, FACADE, PANE, LAMP, PAINT = range(13)
MOTTLED = float(PATTERNS.index("mottled"))  # with little detail: a plain colour
NOISE_LIKE = [PATTERNS.index(name) for name in ("mottled", "marble", "camouflage", "wood")]  # without sharp edges
PAINTS = 3  # coats of paint, from PAINT on
GENERIC = PAINT + PAINTS  # first of the free materials
SIZE = 32

_PATTERN_WEIGHTS = {
    "mottled": 3.0,
    "marble": 0.8,
    "stripes": 1.0,
    "checkers": 0.5,
    "bricks": 0.8,
    "camouflage": 1.0,
    "text": 1.2,
    "photo": 0.0,
    "speckle": 0.8,
    "windows": 0.0,
    "wood": 1.2,
    "plaid": 0.6,
}


def colours(dice: Dice, *shape: int, brightness: float = 0.26, spread: float = 0.75, vivid: float = 0.88) -> Tensor:
    """(B, *shape, 3) linear albedo: log-normal brightness, mostly muted, more warm than cold hues."""
    value = torch.exp(dice.normal(0.0, spread, *shape)) * brightness
    saturation = vivid * dice.unit(*shape) ** 1.8
    hue = (dice.normal(0.09, 0.11, *shape) * (u := dice.chance(0.65, *shape)) + dice.unit(*shape) * (~u)) % 1.0
    phase = torch.tensor([0.0, 1.0 / 3.0, 2.0 / 3.0], device=dice.device)
    wheel = ((hue[..., None] - phase + 0.5) % 1.0 - 0.5).abs() * 6.0  # 0 at the primary, 3 opposite
    pure = (2.0 - wheel).clamp(0.0, 1.0)
    return (value[..., None] * (1.0 - saturation[..., None] + saturation[..., None] * pure * 1.6)).clamp(0.015, 0.9)


def any_material(dice: Dice, *shape: int) -> Tensor:
    """Index of one of the palette's free materials."""
    return dice.integer(GENERIC, SIZE, *shape)


def any_paint(dice: Dice, *shape: int) -> Tensor:
    """Index of one of the glossy, almost uniform coats of paint."""
    return dice.integer(PAINT, PAINT + PAINTS, *shape)


def _set(table: Tensor, slot: int | slice, **columns: Tensor | float) -> None:
    for name, value in columns.items():
        table[:, slot, COLUMNS.index(name)] = value


def _paint(table: Tensor, slot: int, *three: Tensor) -> None:
    for k, colour in enumerate(three):
        table[:, slot, 6 + 3 * k : 9 + 3 * k] = colour


def palette(dice: Dice, config: SceneConfig, pixels_per_metre: Tensor, outdoor: bool, photos: int) -> Tensor:
    """Draw the materials of each scene.

    Args:
        dice: of the scenes.
        config: shares and switches.
        pixels_per_metre: (B,) focal length over the typical depth: textures are scaled to be seen.
        outdoor: whether the ground is asphalt or earth rather than a floor.
        photos: images in the photo bank, 0 for none.

    Returns:
        (B, SIZE, columns) fp32.
    """
    table = _free(dice, config, pixels_per_metre, photos)
    leaf = _nature(table, dice, pixels_per_metre)
    _metal_and_glass(table, dice, config)
    _coats_of_paint(table, dice, config)
    _plaster(table, dice, config)
    if outdoor:
        _ground(table, dice, leaf, photos)
    _facade(table, dice, config)
    _lamp(table, dice, config)
    return table


def _free(dice: Dice, config: SceneConfig, pixels_per_metre: Tensor, photos: int) -> Tensor:
    """A whole table of materials that may be anything."""
    n = SIZE
    table = torch.zeros((dice.count, n, len(COLUMNS)), device=dice.device)
    pattern = dice.choice([_PATTERN_WEIGHTS[name] for name in PATTERNS], n)
    plain = dice.chance(config.plain if config.patterns else 1.0, n)
    with_photo = dice.chance(config.photos if photos else 0.0, n) & ~plain
    pattern = torch.where(with_photo, PATTERNS.index("photo"), pattern)
    noise_like = torch.stack([pattern == number for number in NOISE_LIKE]).any(0)
    fine = dice.chance(config.fine_patterns, n)
    regular = torch.where(fine, dice.log_uniform(4.0, 9.0, n), dice.log_uniform(9.0, 110.0, n))
    period = torch.where(noise_like, dice.log_uniform(16.0, 400.0, n), regular)
    period = torch.where(with_photo, dice.log_uniform(90.0, 900.0, n), period)
    first = colours(dice, n)
    other = colours(dice, n)
    tone = first * torch.exp(dice.normal(0.0, 0.6, n))[..., None]
    second = torch.where(dice.chance(0.55, n)[..., None], tone, other).clamp(0.01, 0.9)
    third = torch.where(dice.chance(0.5, n)[..., None], colours(dice, n), first * 0.5)
    contrast = torch.where(plain, dice.log_uniform(0.01, 0.12, n), dice.uniform(0.35, 1.0, n))
    second = first + contrast[..., None] * (second - first)
    third = first + contrast[..., None] * (third - first)
    shiny = dice.chance(config.mirrors, n)
    glossy = dice.chance(0.35 if config.specular else 0.0, n)
    lamp = dice.chance(0.03 if config.emission else 0.0, n)
    _set(
        table,
        slice(None),
        pattern=pattern.float(),
        frequency=pixels_per_metre[:, None] / period,
        gain=dice.uniform(0.45, 0.78, n),
        amount=dice.unit(n),
        aspect=dice.log_uniform(0.3, 2.0, n),
        seed=dice.unit(n),
        detail=torch.where(plain, dice.log_uniform(0.01, 0.1, n), dice.log_uniform(0.03, 0.9, n)),
        dirt=torch.where(plain, 0.02, 1.0) * dice.log_uniform(0.02, 0.35, n),
        specular=torch.where(glossy, dice.log_uniform(0.02, 0.6, n), 0.0),
        exponent=dice.uniform(2.0, 9.0, n),
        environment=torch.where(glossy, dice.uniform(0.2, 1.0, n), 0.0),
        mirror=torch.where(shiny, dice.uniform(0.15, 0.9, n), 0.0),
        emission=torch.where(lamp, dice.uniform(0.5, 3.0, n), 0.0),
        photo=dice.integer(0, max(photos, 1), n).float(),
        tint=0.35 * dice.unit(n),
    )
    clear = torch.where(dice.chance(config.clear, n), dice.uniform(0.2, 0.8, n), 0.0)
    _set(table, slice(GENERIC, n), clear=clear[:, GENERIC:])
    for k, colour in enumerate((first, second, third)):
        table[..., 6 + 3 * k : 9 + 3 * k] = colour
    return table


def _nature(table: Tensor, dice: Dice, pixels_per_metre: Tensor) -> Tensor:
    """Leaves and bark; returns the leaves' colour, (B, 3)."""
    leaf = colours(dice, brightness=0.14, spread=0.4, vivid=0.3) * torch.tensor([0.75, 1.25, 0.4], device=dice.device)
    _set(
        table,
        FOLIAGE,
        pattern=MOTTLED,
        specular=0.0,
        mirror=0.0,
        emission=0.0,
        environment=0.0,
        detail=0.5,
        dirt=0.3,
        frequency=pixels_per_metre / dice.log_uniform(6.0, 40.0),
    )
    _paint(table, FOLIAGE, leaf, leaf * dice.log_uniform(0.3, 0.9)[:, None], leaf)
    bark = colours(dice, brightness=0.12, spread=0.5, vivid=0.4)
    _set(table, BARK, mirror=0.0, pattern=float(PATTERNS.index("wood")), specular=0.0, emission=0.0, environment=0.0)
    _paint(table, BARK, bark, bark * dice.uniform(0.3, 0.8)[:, None], bark * 0.5)
    return leaf


def _metal_and_glass(table: Tensor, dice: Dice, config: SceneConfig) -> None:
    """Rods and rails; tyres; glass of windows, a surface though one may see through; panes, which are none."""
    metal = colours(dice, brightness=0.2, spread=0.9, vivid=0.3)
    _set(table, METAL, pattern=MOTTLED, detail=0.05, dirt=0.1, emission=0.0)
    _paint(table, METAL, metal, metal * 0.8, metal)
    dark = colours(dice, brightness=0.04, spread=0.4, vivid=0.2)
    _set(
        table,
        GLASS,
        pattern=MOTTLED,
        detail=0.02,
        dirt=0.02,
        environment=1.0 if config.specular else 0.0,
        emission=0.0,
        specular=0.5 if config.specular else 0.0,
        exponent=9.0,
    )
    _paint(table, GLASS, dark, dark * 1.2, dark)
    _paint(table, PANE, torch.exp(-dice.uniform(0.0, 0.3, 3)), dark, dark)
    _set(table, GLASS, mirror=torch.where(dice.chance(0.5 if config.mirrors > 0 else 0.0), dice.uniform(0.1, 0.7), 0.0))
    seen_through = dice.chance(0.6 if config.clear > 0 else 0.0)
    _set(table, GLASS, clear=torch.where(seen_through, dice.uniform(0.3, 0.85), 0.0))
    rubber = colours(dice, brightness=0.03, spread=0.3, vivid=0.1)
    _set(table, RUBBER, pattern=MOTTLED, mirror=0.0, emission=0.0, specular=0.0, environment=0.1)
    _paint(table, RUBBER, rubber, rubber * 1.2, rubber)


def _coats_of_paint(table: Tensor, dice: Dice, config: SceneConfig) -> None:
    """Glossy and almost uniform, as on cars."""
    gloss = float(config.specular)  # a factor: switching it off must not shift the draws that follow
    for slot in range(PAINT, PAINT + PAINTS):
        coat = colours(dice, brightness=0.2, spread=1.0, vivid=0.9)
        black = colours(dice, brightness=0.025, spread=0.4, vivid=0.4)
        coat = torch.where(dice.chance(config.black_paint)[:, None], black, coat)
        _set(
            table,
            slot,
            pattern=MOTTLED,
            detail=dice.log_uniform(0.005, 0.05),
            dirt=dice.log_uniform(0.01, 0.1),
            environment=gloss * dice.uniform(0.4, 1.0),
            specular=gloss * dice.log_uniform(0.05, 0.6),
            exponent=dice.uniform(5.0, 9.0),
            mirror=dice.chance(0.5 if config.mirrors > 0 else 0.0) * dice.uniform(0.05, 0.25),
            emission=0.0,
        )
        _paint(table, slot, coat, coat * 0.95, coat)


def _plaster(table: Tensor, dice: Dice, config: SceneConfig) -> None:
    """Floors, walls and ceilings: bright, and bare in many rooms."""
    plaster = colours(dice, 3, brightness=0.45, spread=0.35, vivid=0.35)
    dark = dice.chance(0.1, 3)  # black cloth, dark wood: nothing to match but noise
    plaster = torch.where(dark[..., None], (0.06 * plaster).clamp(min=0.012), plaster)
    bare = dark | dice.chance(0.4 if config.patterns else 1.0, 3)
    for k, slot in enumerate((FLOOR, WALL, CEILING)):
        table[:, slot, 6:9] = plaster[:, k]
        # Bare walls, the hardest thing there is: nothing to match but the light on them.
        blank = table[:, slot].clone()
        for start in (9, 12):
            blank[:, start : start + 3] = plaster[:, k] * 0.97
        for name, value in (("pattern", MOTTLED), ("detail", 0.012), ("dirt", 0.02)):
            blank[:, COLUMNS.index(name)] = value
        table[:, slot] = torch.where(bare[:, k : k + 1], blank, table[:, slot])
        # A whole mirrored wall is a second scene; polished floors are common, and they mirror little.
        _set(
            table,
            slot,
            emission=0.0,
            mirror=dice.chance(0.15 if k == 0 and config.mirrors > 0 else 0.0) * dice.uniform(0.05, 0.3),
        )


def _ground(table: Tensor, dice: Dice, leaf: Tensor, photos: int) -> None:
    """Asphalt, earth or grass instead of a floor."""
    road = colours(dice, brightness=0.13, spread=0.35, vivid=0.15)
    road = torch.where(dice.chance(0.25)[:, None], leaf, road)
    pictured = dice.chance(0.4 if photos else 0.0)
    _set(
        table,
        FLOOR,
        mirror=0.0,
        pattern=pictured * float(PATTERNS.index("photo")),
        gain=dice.uniform(0.6, 0.9),
        detail=dice.log_uniform(0.2, 1.5),
        specular=0.0,
        environment=0.0,
        frequency=torch.where(pictured, dice.log_uniform(0.2, 1.2), dice.log_uniform(0.3, 5.0)),
        tint=0.6,
    )
    _paint(table, FLOOR, road, road * dice.uniform(0.6, 1.0)[:, None], road)


def _facade(table: Tensor, dice: Dice, config: SceneConfig) -> None:
    """Rows of dark windows in stone or plaster, or walls so white that they hardly stand out from the sky."""
    dark = colours(dice, brightness=0.04, spread=0.4, vivid=0.2)
    stone = colours(dice, brightness=0.3, spread=0.4, vivid=0.4)
    white = dice.chance(config.white_facades)
    stone = torch.where(white[:, None], colours(dice, brightness=0.8, spread=0.1, vivid=0.1), stone)
    bare = white & dice.chance(0.5)
    _set(
        table,
        FACADE,
        pattern=torch.where(bare, MOTTLED, float(PATTERNS.index("windows"))),
        frequency=1.0 / dice.uniform(1.2, 3.5),
        aspect=dice.uniform(0.8, 1.8),
        detail=torch.where(white, 0.1, 1.0) * dice.log_uniform(0.1, 0.8),
        emission=0.0,
        specular=0.0,
        environment=0.5 if config.specular else 0.0,
    )
    other = torch.where(white[:, None], 0.97, dice.log_uniform(0.6, 1.6)[:, None])
    _paint(table, FACADE, stone, stone * other, torch.where(bare[:, None], stone, dark))


def _lamp(table: Tensor, dice: Dice, config: SceneConfig) -> None:
    """Lamps that glow, all alike."""
    glow = colours(dice, brightness=0.8, spread=0.1, vivid=0.3)
    _set(table, LAMP, pattern=MOTTLED, mirror=0.0, specular=0.0, detail=0.02, dirt=0.05)
    _set(table, LAMP, emission=float(config.emission) * dice.uniform(1.0, 6.0))
    _paint(table, LAMP, glow, glow, glow)
