"""Every distribution of the rendered world in one place, with named presets.

The reasons for the numbers are in docs/scenes.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from matchattention.synth.rays.primitives import PRIMITIVES


@dataclass(frozen=True)
class SceneConfig:
    """What the stream renders; each ingredient has a switch."""

    layouts: dict[str, float] = field(
        default_factory=lambda: {
            "room": 0.23,
            "tabletop": 0.25,
            "street": 0.22,
            "forest": 0.12,
            "corridor": 0.05,
            "tunnel": 0.04,
            "flying": 0.09,
        }
    )
    """Shares of the layouts."""
    field_of_view: tuple[float, float] = (38.0, 95.0)
    """Horizontal, degrees."""
    disparity: tuple[float, float] = (0.025, 0.40)
    """Largest disparity of a pair as a share of the width, log-uniform."""
    task: str = "stereo"
    """"stereo" (two cameras, one moment) or "flow" (one camera, two moments)."""
    motion: tuple[float, float] = (0.0005, 0.2)
    """Flow: movement of groups and camera between the frames as a share of the width, log-uniform."""
    still: float = 0.55
    """Flow: share of groups that stand still."""
    camera_still: float = 0.12
    """Flow: share of pairs whose camera stands on a tripod."""
    turn: float = 1.2
    """Flow: largest turn of a group, rad, log-uniform."""
    camera_roll: float = 0.35
    """Flow: largest roll of the camera, rad, log-uniform."""
    limbs: tuple[float, float] = (0.5, 0.7)
    """Flow: share of moving groups whose slender parts swing about their joints, and the largest swing, rad."""
    zoom: float = 0.12
    """Flow: share of pairs whose focal length changes, by up to 15 %."""
    blur: tuple[float, float, float] = (0.4, 0.1, 0.7)
    """Flow: share of pairs with motion blur; shortest and longest exposure as shares of the time between frames."""
    rolling: tuple[float, float] = (0.0, 0.7)
    """Flow: share of pairs from a rolling shutter, and the longest time from its first to its last row as a share of
    the time between frames."""
    near_quantile: float = 0.01
    """The nearest share of pixels that may exceed the drawn largest disparity."""
    vertical_error: tuple[float, float] = (0.4, 0.3)
    """Stereo: share of pairs that are not perfectly rectified, and the deviation of the right view's rows, px.
    Labels stay horizontal, as real benchmarks' do."""
    roll: float = 4.0
    """Deviation of the camera's roll, degrees."""
    principal_point: float = 0.03
    """Deviation of the principal point from the centre, as a share of the width."""
    floating: float = 0.5
    """Probability that a plausible scene is filled with floating objects."""
    floating_count: int = 40
    """Most floating objects."""
    thin: float = 1.0
    """Factor on how often cut-outs, bundles of leaves and wires hang before a scene."""
    cards: bool = True
    """Cut-outs: foliage, lattices, fences, grass, glyphs."""
    wires: bool = True
    """Thin bars and wires down to a fraction of a pixel."""
    plants: bool = True
    """Trees and potted plants."""
    curved: bool = True
    """Spheres, cylinders, cones and tori (otherwise boxes and cards only)."""
    patterns: bool = True
    """Textures (otherwise plain colours)."""
    photos: float = 0.5
    """Share of materials that take a photo when a bank is given."""
    specular: bool = True
    """Highlights and environment reflections."""
    mirrors: float = 0.06
    """Share of materials that mirror the scene (one bounce)."""
    clear: float = 0.02
    """Share of materials one may see through, as of most car windows when not zero; labels show the surface."""
    panes: float = 0.1
    """Probability of sheets of glass in front of the scene."""
    shadows: bool = True
    """Shadows of the key light."""
    relit: float = 0.1
    """Share of pairs whose second view was taken under other lamps or another sun: shading and shadows differ."""
    haze: bool = True
    """Depth-dependent haze outdoors."""
    emission: bool = True
    """Glowing surfaces."""
    black_paint: float = 0.3
    """Share of the coats of paint that are black and glossy: cars of which one sees little but reflections."""
    white_facades: float = 0.2
    """Share of streets with white, nearly bare houses under a white sky: a wall is not infinitely far."""
    fine_patterns: float = 0.12
    """Share of regular patterns with a period of 4 to 9 px, where a match is easily one period off."""
    beside: float = 0.2
    """Probability of a large near surface that the margin of the image cuts, mostly the left one."""
    plain: float = 0.2
    """Share of materials that are almost uniform."""
    samples: int = 4
    """Rays per pixel and view whose colours are averaged; a power of two."""
    shadow_size: int = 384
    """Width of the key light's depth map, px."""
    capacity: dict[str, int] = field(
        default_factory=lambda: {**{kind: primitive.capacity for kind, primitive in PRIMITIVES.items()}, "pane": 2}
    )
    """Most primitives of each kind."""
    sensor: str = "default"
    """Preset of the sensor model, see `sensor.config`."""


PRESETS: dict[str, SceneConfig] = {
    "mixed": SceneConfig(),
    "rooms": SceneConfig(layouts={"room": 0.8, "corridor": 0.2}),
    "tabletop": SceneConfig(layouts={"tabletop": 1.0}),
    "street": SceneConfig(layouts={"street": 1.0}),
    "forest": SceneConfig(layouts={"forest": 1.0}),
    "tunnel": SceneConfig(layouts={"tunnel": 1.0}),
    "flying": SceneConfig(layouts={"flying": 1.0}),
}
# Less of what is hard, for the first steps of a training.
PRESETS["gentle"] = replace(
    PRESETS["mixed"],
    disparity=(0.025, 0.25),
    floating=0.25,
    floating_count=20,
    mirrors=0.01,
    clear=0.0,
    panes=0.0,
    plain=0.15,
)
# More roads, and half as much that moves by itself in front: real pairs have far fewer edges of motion.
PRESETS["flow"] = replace(
    PRESETS["mixed"],
    task="flow",
    layouts={
        "room": 0.2,
        "tabletop": 0.2,
        "street": 0.3,
        "forest": 0.1,
        "corridor": 0.05,
        "tunnel": 0.06,
        "flying": 0.09,
    },
    relit=0.03,
    floating=0.35,
    thin=0.5,
    sensor="video",
)
PRESETS["flow-rolling"] = replace(PRESETS["flow"], rolling=(0.7, 0.7))
# Traffic on a clear day, without photos and through a perfect camera: to be looked at, as the bundled flow example is.
PRESETS["drive"] = replace(
    PRESETS["flow"],
    layouts={"street": 1.0},
    motion=(0.0005, 0.004),  # but for what keeps to a lane
    still=0.3,
    camera_still=0.0,
    turn=0.02,
    limbs=(0.0, 0.7),
    camera_roll=0.01,
    zoom=0.0,
    blur=(0.0, 0.1, 0.7),
    roll=0.5,
    floating=0.0,
    wires=False,
    cards=False,
    photos=0.0,
    mirrors=0.0,
    panes=0.0,
    relit=0.0,
    white_facades=0.0,
    fine_patterns=0.0,
    beside=0.0,
    sensor="clean",
)
PRESETS["small"] = replace(PRESETS["mixed"], shadow_size=64, samples=1)
PRESETS["flow-small"] = replace(PRESETS["flow"], shadow_size=64, samples=1)
