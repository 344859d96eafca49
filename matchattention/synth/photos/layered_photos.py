"""Stereo pairs from single photographs: cut along their own edges into slanted layers, seen from two places.

The cheap second source beside the ray caster. Its texture is real and its depth edges follow image edges, which is
what "Learning Stereo from Single Images" (Watson et al., ECCV 2020) found to transfer; here the depths are drawn, not
estimated. Both views are cast exactly from one canonical view between them, so there are no holes: a background
photo fills what opens behind the layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from matchattention.data.batch import Batch
from matchattention.synth.dice import Dice
from matchattention.synth.photos.layer_cast import Seen, cast
from matchattention.synth.photos.photo_stream import PhotoStream
from matchattention.synth.photos.superpixels import superpixels
from matchattention.synth.sensor import pipeline
from matchattention.synth.sensor.config import PRESETS as SENSORS
from matchattention.synth.sensor.config import SensorConfig

DOMAIN = 0x70686F74  # separates these draws from the ray caster's of the same seed
HIDDEN = -1e9
SHEET_MARGIN = 1.25  # sheets are this much wider than the views before they mirror


@dataclass(frozen=True)
class LayeredPhotoConfig:
    """How photographs become layers.

    Attributes:
        disparity: largest disparity of a pair as a share of the width, log-uniform.
        cells: rows x columns of regions of the main photo.
        near_cells: of the photo whose pieces float in front.
        compactness: of the regions, log-uniform; small follows every edge.
        tolerance: difference of colour up to which neighbouring regions are one thing.
        magnification: px of a view per px of a tile, log-uniform.
        ground: probability that depth grows from the bottom of the picture upwards.
        joined: most of the regions that lie on the common ground or wall instead of standing up alone.
        missing: most of the main photo's regions that are left out and show the background.
        floating: most of the near photo's regions that are there.
        slant: largest change of disparity over a region, as a share of its disparity.
        sensor: what the cameras do to the views.
    """

    disparity: tuple[float, float] = (0.025, 0.4)
    cells: tuple[int, int] = (5, 8)
    near_cells: tuple[int, int] = (5, 7)
    compactness: tuple[float, float] = (0.06, 0.6)
    tolerance: tuple[float, float] = (0.03, 0.12)
    magnification: tuple[float, float] = (0.9, 2.4)
    ground: float = 0.6
    joined: float = 0.8
    missing: float = 0.25
    floating: float = 0.45
    slant: float = 0.6
    sensor: SensorConfig = field(default_factory=lambda: SENSORS["default"])

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(sheet, label) of every layer: the background, then the main photo's regions, then the near ones."""
        main, near = self.cells[0] * self.cells[1], self.near_cells[0] * self.near_cells[1]
        return [(0, 0), *((1, label) for label in range(main)), *((2, label) for label in range(near))]


class LayeredPhotoStream(PhotoStream[LayeredPhotoConfig]):
    """Makes batches of stereo pairs from a photo bank."""

    _default_config = LayeredPhotoConfig

    def _make(self, indices: list[int]) -> Batch:
        width = self.size[1]
        sheets = torch.tensor(self.config.layers)
        dice = Dice(self.seed, indices, self.device, DOMAIN)
        photos = _sheets_of_photos(dice, self.config, self._tiles, self.size)  # (B, 3 sheets, 3, H, W')
        labels = _cut(dice, self.config, photos)
        planes = _draw_planes(dice, self.config, labels, self.size)
        between = dice.uniform(0.0, 1.0)
        seen = cast(labels, planes, sheets, torch.cat([between, between - 1]), width)
        gain = dice.log_uniform(0.75, 1.3, sheets.shape[0])
        images = _paint(seen, photos, sheets.to(self.device, non_blocking=True), gain)
        occluded = _occluded(seen)
        seeds = [(self.seed * 0x9E3779B97F4A7C15 + index) % 2**63 for index in indices]
        left, right = images.chunk(2)
        left, right = pipeline.apply(left, right, self.config.sensor, seeds)
        disparity0, disparity1 = seen.disparity.chunk(2)
        zero = torch.zeros_like(disparity0)
        valid = (seen.disparity > 0) & (seen.disparity <= 0.5 * width)
        return Batch(
            left, right, torch.stack([-disparity0, zero], -1), torch.stack([disparity1, zero], -1),
            *valid.chunk(2), *occluded.chunk(2),
        )  # fmt: skip


def _sheets_of_photos(dice: Dice, config: LayeredPhotoConfig, tiles: Tensor, size: tuple[int, int]) -> Tensor:
    """Three photographs per pair, as displayed in [0, 1]: (B, 3, 3, H, W'), mirrored where a tile ends."""
    height, width = size[0], round(size[1] * SHEET_MARGIN)
    choice = dice.integer(0, tiles.shape[0], 3).flatten()
    side = tiles.shape[-1]
    scale = dice.log_uniform(*config.magnification, 3).flatten() * side / 2  # px per unit of grid_sample
    flip = torch.where(dice.chance(0.5, 3), -1.0, 1.0).flatten()
    shift = dice.uniform(-1.0, 1.0, 2, 3).transpose(0, 1).flatten(1)  # (2, B*3)
    x = torch.arange(width, device=tiles.device) - 0.5 * width
    y = torch.arange(height, device=tiles.device) - 0.5 * height
    x = flip[:, None] * x / scale[:, None] + shift[0][:, None]
    # The top of a landscape stays the top: no upside-down, and little vertical shift.
    y = y / scale[:, None] + 0.3 * shift[1][:, None]
    grid = torch.stack(torch.broadcast_tensors(x[:, None, :], y[:, :, None]), -1)
    photos = F.grid_sample(tiles[choice].float() / 255, grid, padding_mode="reflection", align_corners=False)
    return photos.clamp_(0, 1).view(-1, 3, 3, height, width)


def _cut(dice: Dice, config: LayeredPhotoConfig, photos: Tensor) -> Tensor:
    """(B, 3, H, W') uint8 labels of the three sheets; the background is one piece."""
    compactness = dice.log_uniform(*config.compactness, 2)
    tolerance = dice.uniform(*config.tolerance, 2)
    wobble = dice.normal(0.0, 0.5, 2, 2, 7, 9)
    main = superpixels(photos[:, 1], config.cells, compactness[:, 0], tolerance[:, 0], wobble[:, 0])
    near = superpixels(photos[:, 2], config.near_cells, compactness[:, 1], tolerance[:, 1], wobble[:, 1])
    return torch.stack([torch.zeros_like(main), main, near], dim=1)


def _centres(labels: Tensor, count: int) -> Tensor:
    """(B, count, 2) px from the sheet's centre: mean x and y of each region, zero for an empty one."""
    _, height, width = labels.shape
    small = labels[:, 2::4, 2::4]
    member = F.one_hot(small.long().flatten(1), count).float()  # (B, n, count)
    y = torch.arange(2, height, 4, device=labels.device) - 0.5 * (height - 1)
    x = torch.arange(2, width, 4, device=labels.device) - 0.5 * (width - 1)
    place = torch.stack(torch.broadcast_tensors(x[None], y[:, None])).flatten(1).T  # (n, 2)
    return torch.einsum("bnk,nc->bkc", member, place) / member.sum(1).clamp_min(1)[..., None]


def _draw_planes(dice: Dice, config: LayeredPhotoConfig, labels: Tensor, size: tuple[int, int]) -> Tensor:
    """(B, L, 3) a, b, c of every layer; hidden layers have a = -1e9."""
    height, width = size
    main, near = config.cells[0] * config.cells[1], config.near_cells[0] * config.near_cells[1]
    most = dice.log_uniform(*config.disparity) * width  # (B,)
    far = most * dice.uniform(0.02, 0.3)

    # The ground: disparity grows downwards from `far` at a horizon; without ground, a slanted wall.
    grounded = dice.chance(config.ground)
    reach = (most - far) * dice.uniform(0.4, 0.9)
    horizon = dice.uniform(-0.4, 0.1) * height
    steep = torch.where(grounded, reach / (0.5 * height - horizon), 0.4 * reach / height * dice.uniform(-1, 1))
    sideways = 0.25 * reach / width * dice.uniform(-1, 1)
    level = torch.where(grounded, far - steep * horizon, far + 0.5 * reach)
    ground = torch.stack([level, sideways, steep], -1)[:, None]  # (B, 1, 3)

    def standing(cells: tuple[int, int], disparity: Tensor, centres: Tensor) -> Tensor:
        """Planes of the given disparity (B, K) at the regions' centres, each with a slant of its own."""
        count = disparity.shape[1]
        slant = config.slant * disparity * dice.uniform(0, 1, count) ** 2
        turn = dice.uniform(0, 2 * torch.pi, count)
        b = (slant * torch.cos(turn) / (width / cells[1])).clamp(-0.45, 0.45)
        c = slant * torch.sin(turn) / (height / cells[0])
        return torch.stack([disparity - b * centres[..., 0] - c * centres[..., 1], b, c], -1)

    places = _centres(labels[:, 1], main)
    below = ground[..., 0] + ground[..., 1] * places[..., 0] + ground[..., 2] * places[..., 1]
    below = torch.maximum(below, far[:, None])
    # Things stand on the ground: at its disparity where they are, or nearer.
    rise = (most[:, None] - below).clamp_min(0) * dice.uniform(0, 1, main) ** 2
    upright = standing(config.cells, below + rise, places)
    joined = dice.chance(dice.uniform(0, config.joined)[:, None], main)
    regions = torch.where(joined[..., None], ground, upright)
    hide = dice.chance(dice.uniform(0, config.missing)[:, None], main)
    regions[..., 0].masked_fill_(hide, HIDDEN)

    places = _centres(labels[:, 2], near)
    height_of = far[:, None] + (most - far)[:, None] * dice.uniform(0.2, 1.0, near)
    pieces = standing(config.near_cells, height_of, places)
    show = dice.chance(dice.uniform(0, config.floating)[:, None], near)
    pieces[..., 0].masked_fill_(~show, HIDDEN)

    behind = far * dice.uniform(0.3, 0.9) + 0.5
    lean = 0.3 * behind * dice.uniform(-1, 1) / width
    tilt = 0.3 * behind * dice.uniform(-1, 1) / height
    background = torch.stack([behind, lean, tilt], -1)[:, None]
    return torch.cat([background, regions, pieces], 1)


def _paint(seen: Seen, photos: Tensor, sheets: Tensor, gain: Tensor) -> Tensor:
    """(2 B, 3, H, W) linear light: the seen sheet's photo at the seen column, times the layer's own brightness."""
    views, height, width = seen.layer.shape
    pairs, _, _, _, sheet_width = photos.shape
    strip = photos.transpose(1, 2).reshape(pairs, 3, 3 * height, sheet_width)  # the sheets below each other
    layer = seen.layer.long()
    row = sheets[:, 0][layer] * height + torch.arange(height, device=layer.device)[:, None]
    grid = torch.stack([2 * seen.column / (sheet_width - 1) - 1, 2 * row / (3 * height - 1) - 1], -1)
    image = torch.cat([F.grid_sample(strip, view, padding_mode="border", align_corners=True) for view in grid.chunk(2)])
    brightness = torch.gather(gain.repeat(2, 1), 1, layer.flatten(1)).view(views, 1, height, width)
    return image.clamp(0, 1) ** 2.2 * brightness


def _occluded(seen: Seen) -> Tensor:
    """(2 B, H, W) bool: the match lies outside of the other view, or neither pixel around it shows the surface."""
    views, _, width = seen.layer.shape
    pairs = views // 2
    sign = torch.ones(views, 1, 1, device=seen.layer.device)
    sign[:pairs] = -1
    match = torch.arange(width, device=sign.device) + sign * seen.disparity
    other_layer, other_disparity = (torch.roll(part, pairs, 0) for part in (seen.layer, seen.disparity))
    shown = torch.zeros_like(seen.layer, dtype=torch.bool)
    for step in (0, 1):
        column = (match.floor() + step).long().clamp(0, width - 1)
        same = torch.gather(other_layer, 2, column) == seen.layer
        # Two layers may share a plane, as regions on the ground do.
        shown |= same | ((torch.gather(other_disparity, 2, column) - seen.disparity).abs() < 0.25)
    return ~shown | (match < -0.5) | (match > width - 0.5)
