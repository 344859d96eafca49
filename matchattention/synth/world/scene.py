"""Drawing whole scenes: layouts, materials and light of any set of samples, as tensors on the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from matchattention.errors import InputError
from matchattention.synth.dice import Dice, scalar_uniform
from matchattention.synth.world.builder import Builder, Primitives, towards
from matchattention.synth.world.config import SceneConfig
from matchattention.synth.world.layouts import LAYOUTS
from matchattention.synth.world.motion import SecondFrame, second_frame
from matchattention.synth.world.palette import palette
from matchattention.synth.world.places import Setting


class Light(NamedTuple):
    """Light of each scene in world space, as either view finds it; a scene's has an axis of two views behind B.

    Attributes:
        key: (B, 3) m, position of the light that casts shadows.
        fill: (B, 3) m, position of the second light.
        key_colour: (B, 3) linear (also fill_colour, above, below: light from the upper and lower half spaces).
        reach: (B,) m, distance at which the key light has its nominal strength.
        haze: (B, 4) colour and density per m.
        horizon: (B, 3) sky colour (also zenith).
        clouds: (B,) cover in [0, 1].
        seed: (B,) of the sky.
        contact: (B, 2) strength and length (m) of the darkening near the ground.
        shadow: (B,) depth of the shadow in [0, 1].
        rotation: (B, 3, 3) world to the light's camera.
        spread: (B,) tangent of half of the light camera's field of view.
    """

    key: Tensor
    fill: Tensor
    key_colour: Tensor
    fill_colour: Tensor
    above: Tensor
    below: Tensor
    reach: Tensor
    haze: Tensor
    horizon: Tensor
    zenith: Tensor
    clouds: Tensor
    seed: Tensor
    contact: Tensor
    shadow: Tensor
    rotation: Tensor
    spread: Tensor


class Scene(NamedTuple):
    """A batch of scenes before the cameras look at them.

    Attributes:
        primitives: everything solid, world space.
        material: (B, N, C) material rows.
        light: of each scene and view, (B, 2, ...).
        rotation: (B, 3, 3) world to left camera.
        position: (B, 3) m, left camera.
        lens: (B, 3) px: focal length, principal point.
        disparity: (B,) px, drawn largest disparity.
        baseline: (B,) m, fixed baseline or NaN.
        exposure: (B,) mean brightness that the exposure aims at.
        vertical: (B,) px, how much lower the second view's rows are than they should be.
        second: the second moment of flow pairs, None for stereo.
    """

    primitives: Primitives
    material: Tensor
    light: Light
    rotation: Tensor
    position: Tensor
    lens: Tensor
    disparity: Tensor
    baseline: Tensor
    exposure: Tensor
    vertical: Tensor
    second: SecondFrame | None = None


def choose_layout(config: SceneConfig, seed: int, index: int) -> str:
    """Name of the layout of one sample; decided on the host so that no device has to be asked."""
    unknown = set(config.layouts) - set(LAYOUTS)
    if unknown:
        raise InputError(f"Unknown layout {sorted(unknown)[0]!r}; choose among {', '.join(LAYOUTS)}.")
    mark = scalar_uniform(seed, index, purpose=1) * sum(config.layouts.values())
    for name, weight in config.layouts.items():
        mark -= weight
        if mark < 0:
            return name
    return next(reversed(config.layouts))


def draw_scenes(
    config: SceneConfig, seed: int, indices: Sequence[int], size: tuple[int, int], photos: int = 0
) -> Scene:
    """Draw the scenes of the given samples on the CPU: many tiny operations, and the same on every machine.

    Args:
        config: distributions.
        seed: of the stream.
        indices: sample numbers.
        size: height and width of the images, px.
        photos: images in the photo bank.
    """
    groups: dict[str, list[int]] = {}
    for place, index in enumerate(indices):
        groups.setdefault(choose_layout(config, seed, index), []).append(place)
    drawn = [_draw(config, seed, [indices[i] for i in places], size, photos, name) for name, places in groups.items()]
    order = [place for places in groups.values() for place in places]
    back = torch.tensor([order.index(i) for i in range(len(order))])
    return _join(drawn, back)


def convert(scene: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same scenes with every tensor changed alike (sliced, pinned, moved)."""
    if isinstance(scene, Tensor):
        return change(scene)
    if hasattr(scene, "_fields"):
        return type(scene)(*(convert(field, change) for field in scene))
    return scene


def _join(scenes: list[Scene], back: Tensor) -> Scene:
    """Concatenate scenes on the batch axis and put them into the samples' order."""

    def merge(parts: Sequence[Any]) -> Any:
        first = parts[0]
        if isinstance(first, Tensor):
            return torch.cat([part for part in parts if isinstance(part, Tensor)]).index_select(0, back)
        if hasattr(first, "_fields"):
            return type(first)(*(merge(column) for column in zip(*parts)))
        return first

    return merge(scenes)


def _draw(config: SceneConfig, seed: int, indices: list[int], size: tuple[int, int], photos: int, layout: str) -> Scene:
    # Separate dice: switching an ingredient off leaves everything else as it was.
    shapes, paints, lamps, rig, later = (Dice(seed, indices, "cpu", domain) for domain in range(5))
    builder = Builder(len(indices), shapes.device)
    setting = LAYOUTS[layout](builder, shapes, config, size)
    primitives = builder.pack(config.capacity)
    camera = setting.camera
    table = palette(paints, config, camera.focal / setting.typical_depth, setting.outdoor, photos)
    material = torch.gather(table, 1, primitives.material[..., None].expand(-1, -1, table.shape[-1]))
    low, high = config.disparity
    disparity = rig.log_uniform(low, high) * size[1]
    baseline = torch.full_like(disparity, torch.nan) if setting.baseline is None else setting.baseline
    light = _light(lamps, config, setting)
    light = Light(*(torch.stack(pair, 1) for pair in zip(light, _relit(later, config, setting, light))))
    exposure = rig.log_uniform(0.12, 0.34)
    if setting.gloom is not None:
        exposure = exposure * setting.gloom
    share, deviation = config.vertical_error
    vertical = rig.normal(0.0, deviation) * rig.chance(share)
    second = None
    if config.task == "flow":
        second = second_frame(rig, config, primitives, camera, setting.typical_depth, builder.groups, layout)
    return Scene(
        primitives,
        material,
        light,
        camera.rotation,
        camera.position,
        torch.cat((camera.focal[:, None], camera.principal), 1),
        disparity,
        baseline,
        exposure,
        vertical,
        second,
    )


def _relit(dice: Dice, config: SceneConfig, setting: Setting, light: Light) -> Light:
    """The light some time later: lamps and sun are others in a share of the scenes, the sky stays."""
    moved = dice.chance(config.relit) > 0
    other = _light(dice, config, setting)
    same = {name: getattr(light, name) for name in ("haze", "horizon", "zenith", "clouds", "seed", "contact")}
    parts = zip(other._replace(**same), light)
    return Light(*(torch.where(moved.view(-1, *[1] * (b.dim() - 1)), a, b) for a, b in parts))


def _tint(dice: Dice, strength: float) -> Tensor:
    """(B, 3) a colour of brightness one, between warm and cold."""
    warmth = dice.normal(0.0, strength)
    return torch.stack((torch.exp(warmth), torch.ones_like(warmth), torch.exp(-1.3 * warmth)), -1)


def _light(dice: Dice, config: SceneConfig, setting: Setting) -> Light:
    """Sun and sky outdoors, lamps indoors."""
    batch = dice.count
    focus = setting.focus
    azimuth = dice.uniform(-math.pi, math.pi)
    if setting.outdoor:
        elevation = dice.uniform(0.25, 1.3)
        distance = 6.0 * setting.extent
        strength = dice.chance(0.75) * dice.uniform(1.5, 5.0)
        haze_density = dice.log_uniform(2e-4, 8e-3) * dice.chance(0.6 if config.haze else 0.0)
        sky = torch.tensor([0.45, 0.62, 0.95], device=dice.device) * dice.log_uniform(0.6, 2.5)[:, None]
        clouds = dice.unit()
        glaring = dice.chance(0.2)[:, None]  # an overcast sky that the camera burns out
        sky = torch.where(glaring, dice.uniform(2.0, 4.0)[:, None].expand_as(sky), sky)
        horizon = 0.55 * sky + dice.log_uniform(0.4, 2.0)[:, None]
        above = torch.tensor([0.36, 0.44, 0.56], device=dice.device) * dice.log_uniform(0.35, 1.5)[:, None]
        below = above * dice.uniform(0.2, 0.5)[:, None] * torch.tensor([1.1, 1.0, 0.8], device=dice.device)
    else:
        elevation = dice.uniform(0.5, 1.5)
        distance = setting.extent * dice.uniform(0.7, 1.2)
        strength = dice.log_uniform(0.6, 3.5)
        haze_density = torch.zeros(batch, device=dice.device)
        sky = torch.ones((batch, 3), device=dice.device) * dice.uniform(0.1, 1.0)[:, None]
        clouds = torch.zeros(batch, device=dice.device)
        horizon = sky * _tint(dice, 0.2)
        above = dice.log_uniform(0.1, 0.6)[:, None] * _tint(dice, 0.12)
        below = above * dice.uniform(0.3, 0.9)[:, None] * _tint(dice, 0.1)
    direction = torch.stack(
        (torch.cos(elevation) * torch.sin(azimuth), -torch.sin(elevation), torch.cos(elevation) * torch.cos(azimuth)),
        -1,
    )
    key = focus + direction * distance[:, None]
    around = dice.uniform(-math.pi, math.pi)
    fill = focus + setting.extent[:, None] * torch.stack(
        (2.0 * torch.cos(around), -dice.uniform(0.3, 2.0), 2.0 * torch.sin(around)), -1
    )
    spread = (1.2 * setting.extent / distance).clamp(0.1, 2.0)
    return Light(
        key,
        fill,
        strength[:, None] * _tint(dice, 0.15),
        dice.uniform(0.0, 0.5)[:, None] * _tint(dice, 0.2),
        above,
        below,
        distance,
        torch.cat((horizon, haze_density[:, None]), 1),
        horizon,
        sky,
        clouds,
        dice.uniform(0.0, 100.0),
        torch.stack((dice.uniform(0.2, 0.9), setting.extent * dice.uniform(0.02, 0.1)), 1),
        dice.uniform(0.6, 1.0) * float(config.shadows),
        towards(focus - key),
        spread,
    )
