"""From scenes to images and labels: cast, light, shade, and the exact correspondence of the two views."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from matchattention.synth.rays import cast_torch, shade_torch
from matchattention.synth.rays.dialect import HAS_TRITON
from matchattention.synth.rays.labels import rigid_match, stereo_match
from matchattention.synth.rays.shading import AMBIENCE
from matchattention.synth.rays.tables import MISS, Photos, RayTables, ShadeTables, photo_pyramid, ray_tables, slot_kinds
from matchattention.synth.sensor.motion_blur import motion_blur
from matchattention.synth.sensor.rolling_shutter import rolling_shutter
from matchattention.synth.world.config import SceneConfig
from matchattention.synth.world.scene import Light, Scene, convert
from matchattention.synth.world.trajectory import camera_at, solids_at

if HAS_TRITON:
    from matchattention.synth.rays import cast_triton, shade_triton

LARGEST_OFFSET = 0.5  # of the width; matches farther away are drawn but not labelled
BLUR_SAMPLES = 5  # along the motion of each moment of an exposure
PROBE_ROWS = 48  # the small cast that finds how near the scene is
FRAMES = (0.0, 1.0)  # the moments of a flow pair's frames


class Rendered(NamedTuple):
    """Both views of a batch of scenes, view 0 left or first.

    Attributes:
        image: (B, 2, 3, H, W) linear light, exposed.
        field: (B, 2, H, W, 2) px, offset from a pixel to its match; zero where not valid.
        valid: (B, 2, H, W) bool.
        occluded: (B, 2, H, W) bool: hidden in the other view or outside of it.
        depth: (B, 2, H, W) m, `tables.MISS` for the sky.
        hit: (B, 2, H, W) int32 slot of the primitive, -1 for the sky.
        lens: (B, 3) px: focal length and principal point, of the first view where they differ.
        baseline: (B,) m; zero for flow.
    """

    image: Tensor
    field: Tensor
    valid: Tensor
    occluded: Tensor
    depth: Tensor
    hit: Tensor
    lens: Tensor
    baseline: Tensor

    @property
    def disparity(self) -> Tensor:
        """(B, 2, H, W) px, positive: how far matches are apart along x."""
        return self.field[..., 0].abs()


class Views(NamedTuple):
    """Two cameras and the world as each of them finds it.

    Attributes:
        axes: (B, 2, N, 3, 3) unit axes of the primitives.
        centre: (B, 2, N, 3) m.
        rotation: (B, 2, 3, 3) world to camera.
        position: (B, 2, 3) m.
        lenses: (B, 2, 3) px: focal length and principal point.
    """

    axes: Tensor
    centre: Tensor
    rotation: Tensor
    position: Tensor
    lenses: Tensor


class Prepared(NamedTuple):
    """Everything the kernels read for both views: the caster's tables, (B, 2, 3) px lenses, the shader's tables."""

    tables: RayTables
    cameras: Tensor
    shading: ShadeTables


@cache
def sample_offsets(samples: int, device: torch.device) -> Tensor:
    """(S, 2) px: the pixel's centre and a ring around it whose variance is that of a square pixel.

    The first sample is the one that the labels are taken from.
    """
    if samples == 1:
        return torch.zeros((1, 2), device=device)
    radius = math.sqrt(samples / (6.0 * (samples - 1)))
    turns = [2.0 * math.pi * (k + 0.2) / (samples - 1) for k in range(samples - 1)]
    ring = [[radius * math.cos(a), radius * math.sin(a)] for a in turns]
    return torch.tensor([[0.0, 0.0], *ring], device=device)


def _use_triton(device: torch.device) -> bool:
    return HAS_TRITON and device.type == "cuda"


def cast(
    tables: RayTables, cameras: Tensor, size: tuple[int, int], offsets: Tensor, shift: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """First hits on whatever device the tables are; see `cast_torch.cast`."""
    backend = cast_triton if _use_triton(tables.rays.device) else cast_torch
    return backend.cast(tables, cameras, size, offsets, shift)


def shade(
    tables: ShadeTables, solids: RayTables, cameras: Tensor, offsets: Tensor, depth: Tensor, hit: Tensor
) -> Tensor:
    """Colours on whatever device the tables are; see `shade_torch.shade`."""
    backend = shade_triton if _use_triton(depth.device) else shade_torch
    return backend.shade(tables, solids, cameras, offsets, depth, hit)


def look(scene: Scene, axes: Tensor, centre: Tensor, rotation: Tensor, position: Tensor) -> RayTables:
    """Primitives at (B, V, N, ...) places as seen by V cameras with (B, V, 3, 3) rotations at (B, V, 3) m."""
    p = scene.primitives
    return ray_tables(axes, centre, p.half, p.shape, p.counts, p.slots, rotation, position)


def choose_baseline(scene: Scene, config: SceneConfig, size: tuple[int, int]) -> Tensor:
    """(B,) m: the baseline that makes the near end of the scene reach the drawn disparity.

    A small cast of the left view finds the depth that only `near_quantile` of the pixels undercut. A rig's fixed
    baseline is kept unless it would exceed the greatest disparity of the configuration.
    """
    height, width = size
    rows = min(PROBE_ROWS, height)
    shrink = rows / height
    columns = max(round(width * shrink), 8)
    lens = (scene.lens * shrink)[:, None]
    p = scene.primitives
    tables = look(scene, p.axes[:, None], p.centre[:, None], scene.rotation[:, None], scene.position[:, None])
    depth, _ = cast(tables, lens.contiguous(), (rows, columns), sample_offsets(1, lens.device))
    ordered = depth.flatten(1).sort(dim=1).values
    near = ordered[:, int(config.near_quantile * ordered.shape[1])].clamp(0.05, 200.0)
    reach = scene.lens[:, 0] / near  # px of disparity per m of baseline
    drawn = scene.disparity / reach
    most = config.disparity[1] * width / reach
    return torch.where(scene.baseline.isnan(), drawn, torch.minimum(scene.baseline, most))


def two_views(scene: Scene, baseline: Tensor, moments: tuple[float, float] = FRAMES) -> Views:
    """The second camera (B,) m to the right of the first, or a flow pair's world at two moments."""
    p = scene.primitives
    if scene.second is None:
        right = scene.position + baseline[:, None] * scene.rotation[:, 0]
        return Views(
            p.axes[:, None].expand(-1, 2, -1, -1, -1),
            p.centre[:, None].expand(-1, 2, -1, -1),
            scene.rotation[:, None].expand(-1, 2, -1, -1),
            torch.stack((scene.position, right), 1),
            _lenses_with_row_error(scene),
        )
    return views_at(scene, torch.tensor(moments, device=scene.position.device).expand(len(scene.position), 2))


def _lenses_with_row_error(scene: Scene) -> Tensor:
    lenses = scene.lens[:, None].repeat(1, 2, 1)
    lenses[:, 1, 2] += scene.vertical
    return lenses


def views_at(scene: Scene, moments: Tensor) -> Views:
    """A flow pair's world at (B, 2) moments; 0 is the first frame and 1 the second."""
    assert scene.second is not None
    solids = solids_at(scene.primitives, scene.second, moments)
    rotation, position, lenses = camera_at(scene.rotation, scene.position, scene.lens, scene.second, moments)
    return Views(*solids, rotation, position, lenses)


def prepare(scene: Scene, views: Views, config: SceneConfig, photos: Photos) -> Prepared:
    """Build the tables of both views."""
    tables = look(scene, *views[:4])
    shadow, shadow_focal = _shadow_maps(scene, views, config)
    surface = torch.cat((scene.primitives.half, scene.primitives.number[..., None]), -1)
    ambience = _ambience(scene.light, views.rotation, views.position, shadow_focal)
    shading = ShadeTables(
        slot_kinds(tables.slots, surface.device),
        surface.contiguous(),
        scene.material.contiguous(),
        ambience,
        shadow,
        photos,
    )
    return Prepared(tables, views.lenses, shading)


def render(
    scene: Scene,
    config: SceneConfig,
    size: tuple[int, int],
    photos: Photos | None = None,
    moments: tuple[float, float] = FRAMES,
) -> Rendered:
    """Render both views of every scene with exact labels; nothing waits for the device.

    Flow: at other ``moments`` than its two frames' a pair is a piece of the film that goes through them.
    """
    photos = photo_pyramid(None, scene.lens.device) if photos is None else photos
    stereo = scene.second is None
    baseline = choose_baseline(scene, config, size) if stereo else torch.zeros_like(scene.disparity)
    views = two_views(scene, baseline, moments)
    offsets = sample_offsets(config.samples, scene.lens.device)
    cameras = views.lenses
    if not stereo and config.blur[0] > 0:
        tables = look(scene, *views[:4])  # for the labels alone
        depth, hit = cast(tables, cameras, size, offsets[:1])
        image = _through_open_shutter(scene, config, size, photos, offsets, moments)
    else:
        tables, cameras, shading = prepare(scene, views, config, photos)
        depth, hit = cast(tables, cameras, size, offsets)
        image = shade(shading, tables, cameras, offsets, depth, hit)
    depth, hit = depth[:, :, 0], hit[:, :, 0]
    if stereo:
        match = stereo_match(depth, scene.lens[:, 0], baseline)
    else:
        match = rigid_match(depth, hit, cameras, *views[:4])
    valid = (match.field.square().sum(-1) <= (LARGEST_OFFSET * size[1]) ** 2) & torch.isfinite(image).all(2)
    field = torch.where(valid[..., None], match.field, 0.0)
    # Stereo: the pixel's own lens, not the other one's: a row error between the views must not tilt the ray.
    occluded = _occluded(tables, cameras if stereo else cameras.flip(1).contiguous(), size, field, match.depth)
    image = _expose(torch.nan_to_num(image, nan=0.0, posinf=0.0), scene.exposure, hit < 0).clamp(0.0, 8.0)
    if scene.second is not None and config.rolling[0] > 0:
        image, field, valid, occluded = rolling_shutter(image, field, valid, occluded, scene.second.readout)
    return Rendered(image, field, valid, occluded, depth, hit, scene.lens, baseline)


def _through_open_shutter(
    scene: Scene,
    config: SceneConfig,
    size: tuple[int, int],
    photos: Photos,
    offsets: Tensor,
    moments: tuple[float, float] = FRAMES,
) -> Tensor:
    """(B, 2, 3, H, W) linear light collected while the shutter is open, symmetrically around each frame's moment.

    Each of a pixel's samples sees the world at a moment of its own, everything on its true trajectory, and is blurred
    over its part of the exposure: a few sharp copies would be seen as such.
    """
    samples = len(offsets)
    copies: Scene = convert(scene, lambda tensor: tensor.repeat_interleave(samples, 0))  # (B * S, ...)
    assert copies.second is not None
    share = (torch.arange(samples, device=offsets.device) + 0.5) / samples - 0.5
    late = (moments[1] - moments[0]) * (share.repeat(len(scene.lens)) * copies.second.shutter)[:, None]
    views = views_at(copies, torch.cat([moment + late for moment in moments], 1))
    # A sample beside the pixel's centre is one at the centre of a lens that is shifted the other way.
    lenses = torch.cat((views.lenses[..., :1], views.lenses[..., 1:] - offsets.repeat(len(scene.lens), 1)[:, None]), -1)
    views = views._replace(lenses=lenses.contiguous())
    tables, cameras, shading = prepare(copies, views, config, photos)
    centre = sample_offsets(1, offsets.device)
    depth, hit = cast(tables, cameras, size, centre)
    image = shade(shading, tables, cameras, centre, depth, hit).nan_to_num(0.0, 0.0, 0.0)
    depth, hit = depth[:, :, 0], hit[:, :, 0]
    motion = rigid_match(depth, hit, cameras, *views[:4]).field.nan_to_num(0.0)
    blurred = motion_blur(image, motion, depth, copies.second.shutter / samples, BLUR_SAMPLES)
    return blurred.unflatten(0, (-1, samples)).mean(1)


def _expose(image: Tensor, target: Tensor, sky: Tensor) -> Tensor:
    """Scale both views alike so that the mean brightness, highlights and most of the sky apart, meets the target."""
    bright = image.mean(2)  # (B, 2, H, W)
    weight = torch.where(sky, 0.1, 1.0)
    total = weight.sum((1, 2, 3), keepdim=True)
    mean = (bright * weight).sum((1, 2, 3), keepdim=True) / total
    mean = (torch.minimum(bright, 4.0 * mean) * weight).sum((1, 2, 3), keepdim=True) / total
    return image * (target[:, None, None, None] / mean.clamp(min=1e-4))[:, None]


def _occluded(tables: RayTables, cameras: Tensor, size: tuple[int, int], field: Tensor, depth: Tensor) -> Tensor:
    """Whether the other camera sees something nearer at the exact place where a pixel's point projects."""
    height, width = size
    other = RayTables(tables.rays.flip(1), tables.bounds.flip(1), tables.counts, tables.slots)
    shift = field.movedim(-1, 2).contiguous()
    first, _ = cast(other, cameras, size, sample_offsets(1, field.device), shift)
    x = torch.arange(width, device=field.device) + field[..., 0]
    y = torch.arange(height, device=field.device)[:, None] + field[..., 1]
    outside = (x < -0.5) | (x > width - 0.5) | (y < -0.5) | (y > height - 0.5)
    return (first[:, :, 0] < depth * (1.0 - 5e-4)) | outside


def _shadow_maps(scene: Scene, views: Views, config: SceneConfig) -> tuple[Tensor, Tensor]:
    """(B, M, S, S) m: depth from the key light, and (B, 2) px: focal length of the light's camera.

    There is one map for both views unless the solids or the light may have moved in between.
    """
    side, light = config.shadow_size, scene.light
    focal = 0.5 * side / light.spread
    if not config.shadows:
        return torch.full((focal.shape[0], 1, 8, 8), MISS, device=focal.device), focal
    maps = 1 if scene.second is None and config.relit == 0 else 2
    middle = torch.full_like(focal, 0.5 * (side - 1))
    cameras = torch.stack((focal, middle, middle), -1)[:, :maps].contiguous()
    places = views.axes[:, :maps], views.centre[:, :maps]
    tables = look(scene, *places, light.rotation[:, :maps], light.key[:, :maps])
    depth, _ = cast(tables, cameras, (side, side), sample_offsets(1, focal.device))
    return depth[:, :, 0].contiguous(), focal


def _ambience(light: Light, rotation: Tensor, position: Tensor, shadow_focal: Tensor) -> Tensor:
    """(B, 2, A) the light (B, 2, ...) in each view's coordinates, columns of `shading.AMBIENCE`."""

    def local(point: Tensor) -> Tensor:
        return torch.einsum("bvij,bvj->bvi", rotation, point - position)

    def column(value: Tensor) -> Tensor:
        return value[..., None]

    east, up, north = rotation[..., 0], -rotation[..., 1], rotation[..., 2]  # world up is -y
    height = -position[..., 1:2]
    to_light = light.rotation @ rotation.transpose(-1, -2)
    offset = torch.einsum("bvij,bvj->bvi", light.rotation, position - light.key)
    # One texel and a half, and a little of the distance: surfaces must not shade themselves.
    bias = light.reach * (0.004 + 1.5 / shadow_focal)
    table = torch.cat(
        (
            local(light.key),
            light.key_colour,
            local(light.fill),
            light.fill_colour,
            light.above,
            light.below,
            up,
            east,
            north,
            height,
            light.haze,
            light.horizon,
            light.zenith,
            column(light.clouds),
            column(light.seed),
            light.contact,
            column(light.reach),
            column(light.shadow),
            column(shadow_focal),
            column(bias),
            torch.cat((to_light, offset[..., None]), -1).flatten(-2),
        ),
        -1,
    )
    assert table.shape[-1] == len(AMBIENCE)
    return table.contiguous()
