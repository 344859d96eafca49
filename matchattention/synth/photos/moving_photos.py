"""Flow pairs from photographs: a background and pieces of other photos, each moving by a plane's perspective motion.

The second source of moving scenes, after FlyingChairs (Dosovitskiy et al., ICCV 2015) and its successors: real texture
and large, simple motions. Pieces are cut along the photo's own edges; bars as thin as a pixel move in front. Both
frames are cast from the same layers, and so is the place of every match, so that flow and occlusion are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from matchattention.data.batch import Batch
from matchattention.synth.dice import Dice
from matchattention.synth.photos import plane_cast
from matchattention.synth.photos.layered_photos import LayeredPhotoConfig, _centres, _sheets_of_photos
from matchattention.synth.photos.photo_stream import PhotoStream
from matchattention.synth.photos.superpixels import superpixels
from matchattention.synth.sensor import pipeline
from matchattention.synth.sensor.config import PRESETS as SENSORS
from matchattention.synth.sensor.config import SensorConfig
from matchattention.synth.sensor.motion_blur import motion_blur

DOMAIN = 0x6D6F7665  # separates these draws from other sources' of the same seed
LARGEST_OFFSET = 0.5  # of the width; matches farther away are drawn but not labelled


@dataclass(frozen=True)
class MovingPhotoConfig:
    """How photographs move.

    Attributes:
        motion: of the whole picture and of each piece, shares of the width, log-uniform.
        turn: largest rotation in the plane, rad, log-uniform from a thousandth.
        growth: largest logarithm of a change of size, log-uniform from a thousandth.
        perspective: largest change of a plane's distance over the picture's width, log-uniform.
        cells: rows x columns of regions of the photo that pieces come from.
        pieces: most of these regions that are there.
        still: share of pieces that move with the background.
        bars: probability of thin bars in front.
        blur: share of pairs with motion blur, shortest and longest exposure.
        sheets: how photos are laid out; regions are rounder than in stereo, because shards that follow every edge and
            fly apart are more than anyone could match.
        sensor: what the camera does to the frames.
    """

    motion: tuple[float, float] = (0.0005, 0.2)
    turn: float = 0.4
    growth: float = 0.25
    perspective: float = 0.3
    cells: tuple[int, int] = (3, 5)
    pieces: float = 0.8
    still: float = 0.25
    bars: float = 0.4
    blur: tuple[float, float, float] = (0.3, 0.1, 0.7)
    sheets: LayeredPhotoConfig = field(default_factory=lambda: LayeredPhotoConfig(compactness=(0.2, 1.0)))
    sensor: SensorConfig = field(default_factory=lambda: SENSORS["video"])

    @property
    def layers(self) -> int:
        """Background, pieces, bars: from back to front."""
        return self.cells[0] * self.cells[1] + 2


class Layers(NamedTuple):
    """The layers of B pairs; coordinates are px from the centre over the width.

    Attributes:
        labels: (B, H, W') uint8 regions of the photo that pieces come from.
        shown: (B, L) bool.
        bars: (B, 6) of the bars: normal (x, y), period, thickness, radius, phase.
        motion: (B, 2, L, 3, 3) from a layer's own coordinates to each frame's.
        back: (B, 2, L, 3, 3) the inverse.
    """

    labels: Tensor
    shown: Tensor
    bars: Tensor
    motion: Tensor
    back: Tensor


class MovingPhotoStream(PhotoStream[MovingPhotoConfig]):
    """Makes batches of flow pairs from a photo bank."""

    _default_config = MovingPhotoConfig

    def _make(self, indices: list[int]) -> Batch:
        height, width = self.size
        dice = Dice(self.seed, indices, self.device, DOMAIN)
        photos = _sheets_of_photos(dice, self.config.sheets, self._tiles, self.size)  # (B, 3 sheets, 3, H, W')
        layers = draw_layers(dice, self.config, photos[:, 1], self.size)
        x = (torch.arange(width, device=self.device) - 0.5 * (width - 1)) / width
        y = (torch.arange(height, device=self.device)[:, None] - 0.5 * (height - 1)) / width
        pixel = torch.stack(torch.broadcast_tensors(x, y), -1)[None].expand(len(indices), -1, -1, -1)
        gain = dice.log_uniform(0.7, 1.4, self.config.layers)
        images, fields, valids, occlusions, nearness = [], [], [], [], []
        for view in (0, 1):
            top, place = look(layers, pixel, view)
            match, in_front = project(layers, top, place, 1 - view)
            other, _ = look(layers, match, 1 - view)
            offset = (match - pixel) * width
            valid = in_front & (offset.norm(dim=-1) <= LARGEST_OFFSET * width)
            inside = (match[..., 0].abs() <= 0.5) & (match[..., 1].abs() <= 0.5 * height / width)
            images.append(paint(photos, layers, top, place, gain))
            fields.append(torch.where(valid[..., None], offset, 0.0))
            valids.append(valid)
            occlusions.append((other != top) | ~inside)
            nearness.append(1.0 / (1.0 + top))
        share, low, high = self.config.blur
        shutter = dice.chance(share) * dice.uniform(low, high)
        image = torch.stack(images, 1)
        if share > 0:
            image = motion_blur(image, torch.stack(fields, 1), torch.stack(nearness, 1), shutter)
        seeds = [(self.seed * 0x9E3779B97F4A7C15 + index) % 2**63 for index in indices]
        first, second = pipeline.apply(image[:, 0], image[:, 1], self.config.sensor, seeds)
        return Batch(first, second, *fields, *valids, *occlusions)


def draw_layers(dice: Dice, config: MovingPhotoConfig, photo: Tensor, size: tuple[int, int]) -> Layers:
    """Regions, bars and motions of a batch."""
    width = size[1]
    count = config.cells[0] * config.cells[1]
    labels = superpixels(
        photo,
        config.cells,
        dice.log_uniform(*config.sheets.compactness),
        dice.uniform(*config.sheets.tolerance),
        dice.normal(0.0, 0.5, 2, 7, 9),
    )
    share = dice.uniform(0.0, config.pieces)[:, None]
    always = torch.ones(dice.count, 1, dtype=torch.bool, device=dice.device)
    shown = torch.cat((always, dice.chance(share, count), dice.chance(config.bars, 1)), 1)
    angle = dice.uniform(0.0, torch.pi)
    thick = dice.log_uniform(0.8, 7.0) / width
    bars = torch.stack(
        (
            torch.cos(angle),
            torch.sin(angle),
            thick * dice.log_uniform(4.0, 24.0),
            thick,
            dice.log_uniform(0.08, 0.6),
            dice.unit(),
        ),
        -1,
    )
    nothing = torch.zeros(dice.count, 1, 2, device=dice.device)
    about = torch.cat((nothing, _centres(labels, count) / width, nothing), 1)
    camera = plane_motion(dice, config, 1, nothing)
    own = plane_motion(dice, config, config.layers, about)
    moving = ~dice.chance(config.still, config.layers)
    moving[:, 0] = False
    same = torch.eye(3, device=dice.device)
    own = torch.where(moving[..., None, None], own, same)
    motion = torch.stack((same.expand_as(own), camera @ own), 1)
    return Layers(labels, shown, bars, motion, torch.linalg.inv(motion))


def plane_motion(dice: Dice, config: MovingPhotoConfig, count: int, about: Tensor) -> Tensor:
    """(B, count, 3, 3): shift, turn, growth and perspective around (B, count, 2), every size log-uniform."""

    def some(low: float, high: float, share: float) -> Tensor:
        sign = torch.where(dice.chance(0.5, count), 1.0, -1.0)
        return dice.log_uniform(low, high, count) * sign * dice.chance(share, count)

    turn, growth = some(1e-3, config.turn, 0.6), torch.exp(some(1e-3, config.growth, 0.6))
    shear = torch.exp(some(1e-3, 0.1, 0.3))
    size, way = dice.log_uniform(*config.motion, count), dice.uniform(0.0, 2 * torch.pi, count)
    lean_x, lean_y = some(1e-3, config.perspective, 0.4), some(1e-3, config.perspective, 0.4)
    cos, sin = torch.cos(turn) * growth, torch.sin(turn) * growth
    one, zero = torch.ones_like(turn), torch.zeros_like(turn)

    def matrix(*entries: Tensor) -> Tensor:
        return torch.stack(entries, -1).unflatten(-1, (3, 3))

    shift_x, shift_y = size * torch.cos(way), size * torch.sin(way)
    moved = matrix(cos * shear, -sin, shift_x, sin * shear, cos, shift_y, lean_x, lean_y, one)
    x, y = about.unbind(-1)
    there = matrix(one, zero, x, zero, one, y, zero, zero, one)
    back = matrix(one, zero, -x, zero, one, -y, zero, zero, one)
    return there @ moved @ back


def look(layers: Layers, place: Tensor, view: int) -> tuple[Tensor, Tensor]:
    """The front layer (B, H, W) at places (B, H, W, 2) of a frame, and where on the layer that is."""
    return plane_cast.cast(layers.labels, layers.shown, layers.bars, layers.back[:, view], place)


def project(layers: Layers, top: Tensor, place: Tensor, view: int) -> tuple[Tensor, Tensor]:
    """Where (B, H, W, 2) places on their layers appear in a frame, and whether they lie in front of its camera."""
    index = top.flatten(1)[..., None].expand(-1, -1, 9)
    matrix = layers.motion[:, view].flatten(2).gather(1, index).unflatten(-1, (3, 3)).unflatten(1, top.shape[1:])
    at, distance = plane_cast.apply(matrix, place)
    return at, distance > plane_cast.NEAREST_PLANE


def paint(photos: Tensor, layers: Layers, top: Tensor, place: Tensor, gain: Tensor) -> Tensor:
    """(B, 3, H, W) linear light: each layer's own photo, times its own brightness."""
    height, width = photos.shape[-2:]
    views = top.shape[-1]
    grid = place * views * 2 / torch.tensor([width - 1, height - 1], device=place.device)
    last = layers.shown.shape[1] - 1
    sheet = (top > 0).long() + (top == last)
    image = torch.zeros_like(photos[:, 0, :, : top.shape[1], : top.shape[2]])
    for number in range(3):
        seen = F.grid_sample(photos[:, number], grid, padding_mode="reflection", align_corners=True)
        image = torch.where((sheet == number)[:, None], seen, image)
    brightness = gain.gather(1, top.flatten(1)).view_as(top)
    return image.clamp(0, 1) ** 2.2 * brightness[:, None]
