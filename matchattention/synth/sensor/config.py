"""What a camera may do to a picture: every ingredient's probability and strength, in one place.

Strengths are chosen so that zero is always "nothing happens"; an ingredient that is not drawn for a pair has
strength zero, and ``config.without("jpeg", "noise")`` gives the same pairs without those two.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from matchattention.errors import InputError


@dataclass(frozen=True)
class Ingredient:
    """How often something happens to a pair, and how strongly.

    Attributes:
        probability: of a pair having it at all.
        low: least strength of a pair that has it, common to both views.
        high: greatest strength; drawn uniformly, or log-uniformly where ``logarithmic``.
        difference: half-width of the uniform part that each view adds on its own, before
            `SensorConfig.mismatch` enlarges it.
        logarithmic: strengths spread evenly over orders of magnitude.
    """

    probability: float = 0.0
    low: float = 0.0
    high: float = 0.0
    difference: float = 0.0
    logarithmic: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise InputError(f"A probability lies in [0, 1], not {self.probability}; give a fraction")
        if self.low > self.high or self.difference < 0:
            raise InputError(
                f"A strength range needs low <= high and difference >= 0, got {self.low} … {self.high} "
                f"± {self.difference}; swap the ends"
            )
        if self.logarithmic and self.low <= 0:
            raise InputError(f"A logarithmic range starts above zero, not at {self.low}; raise its lower end")

    @property
    def active(self) -> bool:
        """Whether any pair can have it: known before drawing, so that whole stages can be left out."""
        return self.probability > 0


OFF = Ingredient()


@dataclass(frozen=True)
class SensorConfig:
    """Every ingredient of the sensor, in the order in which light meets it. All default to absent.

    Attributes:
        mismatch: factor (minus one) on all differences between the views, for pairs like Middlebury's L and E
            variants, where light and exposure change between the two shots.
        auto_exposure: how far the pair's mean is pulled to middle grey, 1 = fully. Both views get one gain.
        exposure: stops.
        white_balance: residual colour cast, natural log of the channel gains.
        vignetting: light lost in the corner, as a fraction.
        uneven_light: natural log of a smooth gain over the image; mostly ``difference``: light that moved.
        dust: darkening under a few soft blobs that sit on the sensor, so each view has its own.
        smudge: veil of stray light under such blobs, as a fraction of white.
        glare: a lamp's or the sun's glow inside the lens and its ghosts, as a fraction of white.
        defocus: standard deviation of the lens blur, px.
        streak: length of the trace that a moving rig draws along x or y, px; common to both views.
        chromatic_shift: displacement of red against blue, px; green stays where the ground truth is.
        noise: ISO / 100. Shot noise grows with its root, read noise with itself.
        mosaic: blend towards a Bayer pattern interpolated bilinearly.
        colour_saturation: added to the factor 1 on colour differences; negative fades.
        greyscale: blend towards luma.
        near_infrared: blend towards one channel of unusual weights, as silicon sees beyond red.
        shoulder: how softly highlights run into white (0 clips hard).
        gamma: log2 of the factor on the display exponent 1/2.2.
        contrast: blend towards an S curve; negative flattens.
        black_level: pedestal, as a fraction of white; negative crushes shadows.
        sharpening: amount of the unsharp mask, which leaves halos.
        jpeg: 100 - quality.
        border: black margin that rectifying leaves, as a share of the side; every side of each view has its own.
        eight_bit: round to whole grey levels at the end.
        one_camera: both views come from one camera, as frames of a video do: dust, smudges and margins stay in place.
    """

    mismatch: Ingredient = OFF
    auto_exposure: Ingredient = OFF
    exposure: Ingredient = OFF
    white_balance: Ingredient = OFF
    vignetting: Ingredient = OFF
    uneven_light: Ingredient = OFF
    dust: Ingredient = OFF
    smudge: Ingredient = OFF
    glare: Ingredient = OFF
    defocus: Ingredient = OFF
    streak: Ingredient = OFF
    chromatic_shift: Ingredient = OFF
    noise: Ingredient = OFF
    mosaic: Ingredient = OFF
    colour_saturation: Ingredient = OFF
    greyscale: Ingredient = OFF
    near_infrared: Ingredient = OFF
    shoulder: Ingredient = OFF
    gamma: Ingredient = OFF
    contrast: Ingredient = OFF
    black_level: Ingredient = OFF
    sharpening: Ingredient = OFF
    jpeg: Ingredient = OFF
    border: Ingredient = OFF
    eight_bit: bool = True
    one_camera: bool = False

    @classmethod
    def preset(cls, name: str) -> SensorConfig:
        """The preset of that name: "default", "video", "clean" or "harsh"."""
        if name not in PRESETS:
            raise InputError(f"No sensor preset is called {name!r}; choose one of {', '.join(PRESETS)}")
        return PRESETS[name]

    def without(self, *names: str) -> SensorConfig:
        """The same sensor with the named ingredients switched off; all others draw what they drew before."""
        unknown = set(names) - set(INGREDIENTS)
        if unknown:
            raise InputError(f"No ingredient is called {sorted(unknown)[0]!r}; choose from {', '.join(INGREDIENTS)}")
        switched: dict[str, Any] = dict.fromkeys(names, OFF)
        return replace(self, **switched)

    def active(self, *names: str) -> bool:
        """Whether any of the named ingredients can happen."""
        return any(getattr(self, name).active for name in names)


INGREDIENTS = tuple(field.name for field in fields(SensorConfig) if field.name not in ("eight_bit", "one_camera"))

PRESETS = {
    "clean": SensorConfig(),
    # Most real pairs come from one rig: nearly equal views, mild noise, an occasional bad camera.
    "default": SensorConfig(
        mismatch=Ingredient(0.12, 3.0, 9.0),
        auto_exposure=Ingredient(0.85, 0.5, 1.0),
        exposure=Ingredient(1.0, -0.8, 0.9, difference=0.06),
        white_balance=Ingredient(0.8, 0.0, 0.2, difference=0.02),
        vignetting=Ingredient(0.4, 0.05, 0.5, difference=0.03),
        uneven_light=Ingredient(0.5, 0.0, 0.15, difference=0.04),
        dust=Ingredient(0.06, 0.1, 0.5),
        smudge=Ingredient(0.06, 0.02, 0.15),
        defocus=Ingredient(0.7, 0.2, 0.9, difference=0.12),
        streak=Ingredient(0.06, 2.0, 6.0),
        chromatic_shift=Ingredient(0.25, 0.1, 0.8),
        noise=Ingredient(0.85, 0.3, 12.0, logarithmic=True),
        mosaic=Ingredient(0.4, 0.5, 1.0),
        colour_saturation=Ingredient(0.8, -0.3, 0.9, difference=0.03),
        greyscale=Ingredient(0.12, 1.0, 1.0),
        near_infrared=Ingredient(0.05, 1.0, 1.0),
        shoulder=Ingredient(0.35, 0.0, 1.5),
        gamma=Ingredient(0.9, -0.25, 0.5, difference=0.03),
        contrast=Ingredient(0.9, -0.1, 1.1, difference=0.03),
        black_level=Ingredient(0.5, -0.1, 0.06, difference=0.008),
        sharpening=Ingredient(0.35, 0.1, 1.2),
        jpeg=Ingredient(0.35, 5.0, 60.0),
        border=Ingredient(0.12, 0.01, 0.08),
    ),
    "harsh": SensorConfig(
        mismatch=Ingredient(0.4, 4.0, 12.0),
        auto_exposure=Ingredient(0.6, 0.3, 1.0),
        exposure=Ingredient(1.0, -2.0, 1.2, difference=0.1),
        white_balance=Ingredient(1.0, 0.0, 0.4, difference=0.03),
        vignetting=Ingredient(0.6, 0.1, 0.8, difference=0.05),
        uneven_light=Ingredient(0.8, 0.0, 0.4, difference=0.08),
        dust=Ingredient(0.25, 0.2, 0.8),
        smudge=Ingredient(0.25, 0.05, 0.3),
        defocus=Ingredient(0.9, 0.3, 1.8, difference=0.3),
        streak=Ingredient(0.2, 2.0, 9.0),
        chromatic_shift=Ingredient(0.5, 0.2, 1.5),
        noise=Ingredient(1.0, 2.0, 64.0, logarithmic=True),
        mosaic=Ingredient(0.6, 1.0, 1.0),
        colour_saturation=Ingredient(0.9, -0.8, 0.6, difference=0.05),
        greyscale=Ingredient(0.2, 1.0, 1.0),
        near_infrared=Ingredient(0.1, 1.0, 1.0),
        shoulder=Ingredient(0.5, 0.0, 4.0),
        gamma=Ingredient(1.0, -0.7, 0.7, difference=0.05),
        contrast=Ingredient(0.9, -0.5, 1.0, difference=0.05),
        black_level=Ingredient(0.8, -0.1, 0.2, difference=0.02),
        sharpening=Ingredient(0.5, 0.2, 2.0),
        jpeg=Ingredient(0.6, 20.0, 85.0),
        border=Ingredient(0.3, 0.01, 0.15),
    ),
}
# One camera a thirtieth of a second later: what is on the glass or in the lens does not move with the world, and light
# and exposure are the same more often than between two cameras.
PRESETS["video"] = replace(
    PRESETS["default"],
    one_camera=True,
    mismatch=Ingredient(0.04, 3.0, 9.0),
    dust=Ingredient(0.1, 0.1, 0.5),
    smudge=Ingredient(0.1, 0.02, 0.15),
    glare=Ingredient(0.12, 0.01, 0.25, logarithmic=True),
)
