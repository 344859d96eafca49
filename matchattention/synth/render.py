"""From scenes to images and labels: cast, light, shade, and the exact correspondence of the two views."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from matchattention.synth import cast_torch, shade_torch
from matchattention.synth.config import SceneConfig
from matchattention.synth.dialect import HAS_TRITON
from matchattention.synth.scene import Light, Scene
from matchattention.synth.shading import AMBIENCE
from matchattention.synth.tables import MISS, Photos, RayTables, ShadeTables, Slots, photo_pyramid, ray_tables

if HAS_TRITON:
    from matchattention.synth import cast_triton, shade_triton

LARGEST_DISPARITY = 0.5  # of the width; nearer surfaces are drawn but not labelled
PROBE_ROWS = 48  # the small cast that finds how near the scene is


class Rendered(NamedTuple):
    """Both views of a batch of scenes, view 0 left.

    Attributes:
        image: (B, 2, 3, H, W) linear light, exposed.
        disparity: (B, 2, H, W) px, positive, 0 for the sky.
        valid: (B, 2, H, W) bool.
        occluded: (B, 2, H, W) bool: hidden in the other view or outside of it.
        depth: (B, 2, H, W) m.
        hit: (B, 2, H, W) int32 slot of the primitive, -1 for the sky.
        lens: (B, 3) px: focal length and principal point of both views.
        baseline: (B,) m.
    """

    image: Tensor
    disparity: Tensor
    valid: Tensor
    occluded: Tensor
    depth: Tensor
    hit: Tensor
    lens: Tensor
    baseline: Tensor


@cache
def sample_offsets(samples: int, device: torch.device) -> Tensor:
    """(S, 2) px: the pixel's centre and a ring around it whose variance is that of a square pixel.

    The first sample is the one that the labels are taken from.
    """
    if samples == 1:
        return torch.zeros((1, 2), device=device)
    radius = math.sqrt(samples / (6.0 * (samples - 1)))
    turns = [2.0 * math.pi * (k + 0.2) / (samples - 1) for k in range(samples - 1)]
    return torch.tensor([[0.0, 0.0]] + [[radius * math.cos(a), radius * math.sin(a)] for a in turns]).to(device, non_blocking=True)


def _use_triton(device: torch.device) -> bool:
    return HAS_TRITON and device.type == "cuda"


def cast(tables: RayTables, cameras: Tensor, size: tuple[int, int], offsets: Tensor, shift: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """First hits on whatever device the tables are; see `cast_torch.cast`."""
    backend = cast_triton if _use_triton(tables.rays.device) else cast_torch
    return backend.cast(tables, cameras, size, offsets, shift)


def shade(tables: ShadeTables, solids: RayTables, cameras: Tensor, offsets: Tensor, depth: Tensor, hit: Tensor) -> Tensor:
    """Colours on whatever device the tables are; see `shade_torch.shade`."""
    backend = shade_triton if _use_triton(depth.device) else shade_torch
    return backend.shade(tables, solids, cameras, offsets, depth, hit)


def look(scene: Scene, rotation: Tensor, position: Tensor) -> RayTables:
    """The scene's primitives as seen by V cameras with (B, V, 3, 3) rotations at (B, V, 3) m."""
    p = scene.primitives
    views = position.shape[1]
    axes = p.axes[:, None].expand(-1, views, -1, -1, -1)
    centre = p.centre[:, None].expand(-1, views, -1, -1)
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
    tables = look(scene, scene.rotation[:, None], scene.position[:, None])
    depth, _ = cast(tables, lens.contiguous(), (rows, columns), torch.zeros((1, 2), device=lens.device))
    ordered = depth.flatten(1).sort(dim=1).values
    near = ordered[:, int(config.near_quantile * ordered.shape[1])].clamp(0.05, 200.0)
    reach = scene.lens[:, 0] / near  # px of disparity per m of baseline
    drawn = scene.disparity / reach
    most = config.disparity[1] * width / reach
    return torch.where(scene.baseline.isnan(), drawn, torch.minimum(scene.baseline, most))


class Prepared(NamedTuple):
    """Everything the kernels read for both views: the caster's tables, (B, 2, 3) px lenses, the shader's tables."""

    tables: RayTables
    cameras: Tensor
    shading: ShadeTables


def prepare(scene: Scene, baseline: Tensor, config: SceneConfig, photos: Photos) -> Prepared:
    """Put the second camera at (B,) m to the right of the first and build the tables of both views."""
    right = scene.position + baseline[:, None] * scene.rotation[:, 0]
    position = torch.stack((scene.position, right), 1)
    rotation = scene.rotation[:, None].expand(-1, 2, -1, -1)
    tables = look(scene, rotation, position)
    cameras = scene.lens[:, None].expand(-1, 2, -1).contiguous()
    shadow, shadow_lens = _shadow_map(scene, config)
    surface = torch.cat((scene.primitives.half, scene.primitives.group[..., None]), -1)
    shading = ShadeTables(_kinds(tables.slots, surface.device), surface.contiguous(), scene.material.contiguous(),
                          _ambience(scene.light, rotation, position, shadow_lens), shadow, photos)
    return Prepared(tables, cameras, shading)


def render(scene: Scene, config: SceneConfig, size: tuple[int, int], photos: Photos | None = None) -> Rendered:
    """Render both views of every scene with exact labels; nothing waits for the device."""
    baseline = choose_baseline(scene, config, size)
    photos = photo_pyramid(None, scene.lens.device) if photos is None else photos
    tables, cameras, shading = prepare(scene, baseline, config, photos)
    offsets = sample_offsets(config.samples, scene.lens.device)
    depth, hit = cast(tables, cameras, size, offsets)
    image = shade(shading, tables, cameras, offsets, depth, hit)
    centre, slot = depth[:, :, 0], hit[:, :, 0]
    scale = (scene.lens[:, 0] * baseline)[:, None, None, None]
    disparity = torch.where(centre < 0.5 * MISS, scale / centre, 0.0)
    valid = torch.isfinite(disparity) & (disparity <= LARGEST_DISPARITY * size[1])
    occluded = _occluded(tables, cameras, size, centre, disparity)
    image = _expose(image, scene.exposure, slot < 0)
    valid &= torch.isfinite(image).all(2)
    image = torch.nan_to_num(image, nan=0.0, posinf=8.0, neginf=0.0).clamp(0.0, 8.0)
    return Rendered(image, torch.where(valid, disparity, 0.0), valid, occluded, centre, slot, scene.lens, baseline)


@cache
def _kinds(slots: Slots, device: torch.device) -> Tensor:
    """(N,) int32 kind of each slot."""
    ranges = zip(slots, slots[1:])
    return torch.cat([torch.full((b - a,), k, dtype=torch.int32) for k, (a, b) in enumerate(ranges)]).to(device)


@cache
def _towards_other(device: torch.device) -> Tensor:
    """(1, 2, 1, 1) direction of the match along x: to the left from the left view, to the right from the right one."""
    return torch.tensor([-1.0, 1.0], device=device)[None, :, None, None]


def _expose(image: Tensor, target: Tensor, sky: Tensor) -> Tensor:
    """Scale both views alike so that the mean brightness, highlights and most of the sky apart, meets the target."""
    bright = image.mean(2)  # (B, 2, H, W)
    weight = torch.where(sky, 0.1, 1.0)
    total = weight.sum((1, 2, 3), keepdim=True)
    mean = (bright * weight).sum((1, 2, 3), keepdim=True) / total
    mean = (torch.minimum(bright, 4.0 * mean) * weight).sum((1, 2, 3), keepdim=True) / total
    return image * (target[:, None, None, None] / mean.clamp(min=1e-4))[:, None]


def _occluded(tables: RayTables, cameras: Tensor, size: tuple[int, int], depth: Tensor, disparity: Tensor) -> Tensor:
    """Whether the other camera sees something else at the exact place where a pixel's point projects."""
    width = size[1]
    shift = _towards_other(depth.device) * disparity
    other = RayTables(tables.rays.flip(1), tables.bounds.flip(1), tables.counts, tables.slots)
    first, _ = cast(other, cameras, size, torch.zeros((1, 2), device=depth.device), shift)
    x = torch.arange(width, device=depth.device) + shift
    return (first[:, :, 0] < depth * (1.0 - 5e-4)) | (x < -0.5) | (x > width - 0.5)


def _shadow_map(scene: Scene, config: SceneConfig) -> tuple[Tensor, Tensor]:
    """(B, S, S) m: depth from the key light, and (B,) px: focal length of the light's camera."""
    side = config.shadow_size
    focal = 0.5 * side / scene.light.spread
    if not config.shadows:
        return torch.full((scene.lens.shape[0], 8, 8), MISS, device=scene.lens.device), focal
    middle = torch.full_like(focal, 0.5 * (side - 1))
    cameras = torch.stack((focal, middle, middle), -1)[:, None].contiguous()
    tables = look(scene, scene.light.rotation[:, None], scene.light.key[:, None])
    depth, _ = cast(tables, cameras, (side, side), torch.zeros((1, 2), device=focal.device))
    return depth[:, 0, 0].contiguous(), focal


def _ambience(light: Light, rotation: Tensor, position: Tensor, shadow_focal: Tensor) -> Tensor:
    """(B, V, A) the light in each view's coordinates, columns of `shading.AMBIENCE`."""
    views = position.shape[1]

    def local(point: Tensor) -> Tensor:
        return torch.einsum("bvij,bvj->bvi", rotation, point[:, None] - position)

    def same(value: Tensor) -> Tensor:
        value = value[:, None] if value.dim() == 1 else value
        return value[:, None].expand(-1, views, -1)

    up = -rotation[..., 1]  # world up is -y
    height = -position[..., 1:2]
    to_light = light.rotation[:, None] @ rotation.transpose(-1, -2)
    offset = torch.einsum("bij,bvj->bvi", light.rotation, position - light.key[:, None])
    distance = light.reach
    bias = 0.004 * distance + 1.5 * distance / shadow_focal
    table = torch.cat((
        local(light.key), same(light.key_colour), local(light.fill), same(light.fill_colour), same(light.above), same(light.below),
        up, height, same(light.haze), same(light.horizon), same(light.zenith), same(light.clouds), same(light.seed),
        same(light.contact), same(light.reach), same(light.shadow), same(shadow_focal), same(bias),
        torch.cat((to_light, offset[..., None]), -1).flatten(-2)), -1)
    assert table.shape[-1] == len(AMBIENCE)
    return table.contiguous()
