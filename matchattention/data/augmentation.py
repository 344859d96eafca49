"""Augmentation of stereo and flow pairs from files, after RAFT-Stereo (Lipman et al., 3DV 2021).

Colours change per view, a patch of the second view is erased, the pair is scaled, stretched, cropped,
shifted vertically by a pixel or two and mirrored. Fields and masks move with the pixels, so
that every surviving ground-truth value still names the same match.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
Field = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Pair:
    """A pair with what is known about both views.

    Attributes:
        image0: (H, W, 3) uint8.
        image1: (H, W, 3) uint8.
        field0: (H, W, 2) float32 px, offset from view 0 to view 1; zero where unknown.
        valid0: (H, W) bool, where field0 is known.
        field1: (H, W, 2) float32 px, offset from view 1 to view 0; zero where unknown.
        valid1: (H, W) bool.
    """

    image0: Image
    image1: Image
    field0: Field
    valid0: Mask
    field1: Field
    valid1: Mask


@dataclass(frozen=True)
class AugmentationConfig:
    """How strongly pairs are changed; probabilities and ranges.

    Attributes:
        scale: Range of log2 of the common scale.
        stretch: Largest log2 of the additional horizontal or vertical stretch.
        stretch_probability: How often a pair is stretched.
        colour_probability: How often colours change at all.
        asymmetric: How often the views' colours change independently.
        brightness: Largest relative change.
        contrast: Largest relative change.
        saturation: Range of the factor.
        hue: Largest turn of the colour circle, as a share of it.
        gamma: Range of the exponent.
        eraser_probability: How often patches of view 1 are painted with its mean colour.
        eraser_size: Range of the patches' sides, px.
        vertical_shift: Largest vertical misalignment of view 1, px; stereo only.
        shift_probability: How often it is misaligned.
        mirror_probability: Stereo: mirror and swap the views, so that disparities stay positive.
        flip_probability: Flow: mirror horizontally and, independently at a fifth of it, vertically.
    """

    scale: tuple[float, float] = (-0.2, 0.4)
    stretch: float = 0.2
    stretch_probability: float = 0.8
    colour_probability: float = 1.0
    asymmetric: float = 0.2
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: tuple[float, float] = (0.6, 1.4)
    hue: float = 0.16
    gamma: tuple[float, float] = (0.8, 1.25)
    eraser_probability: float = 0.5
    eraser_size: tuple[int, int] = (50, 100)
    vertical_shift: float = 1.5
    shift_probability: float = 0.3
    mirror_probability: float = 0.5
    flip_probability: float = 0.5


def resample(values: NDArray, x: NDArray, y: NDArray) -> NDArray[np.float32]:
    """Bilinear values (len(y), len(x), C) of an array (H, W, C) at separable positions, borders repeated."""

    def along(array: NDArray, place: NDArray, axis: int) -> NDArray:
        last = array.shape[axis] - 1
        place = np.clip(place, 0, last)
        low = np.minimum(place.astype(np.int64), max(last - 1, 0))
        high = np.minimum(low + 1, last)
        shape = [1, 1, 1]
        shape[axis] = -1
        share = (place - low).astype(np.float32).reshape(shape)
        return np.take(array, low, axis) * (1 - share) + np.take(array, high, axis) * share

    return along(along(values.astype(np.float32), y, 0), x, 1)


def _nearest(values: NDArray, x: NDArray, y: NDArray) -> NDArray:
    rows = np.clip(np.round(y).astype(np.int64), 0, values.shape[0] - 1)
    columns = np.clip(np.round(x).astype(np.int64), 0, values.shape[1] - 1)
    return values[rows][:, columns]


def _as_image(values: NDArray) -> Image:
    return np.clip(np.round(values), 0, 255).astype(np.uint8)


def resize_and_crop(pair: Pair, scale_x: float, scale_y: float, left: int, top: int, height: int, width: int) -> Pair:
    """The window of ``height`` x ``width`` px at (left, top) of the pair scaled by (scale_x, scale_y).

    Images are interpolated; ground truth takes the nearest pixel's value, because a mean across a depth
    edge is the depth of nothing.
    """
    # Pixel centres: x of the result lies at (x + 0.5) / scale - 0.5 of the source.
    x = (np.arange(left, left + width) + 0.5) / scale_x - 0.5
    y = (np.arange(top, top + height) + 0.5) / scale_y - 0.5
    factor = np.array([scale_x, scale_y], np.float32)
    return Pair(
        _as_image(resample(pair.image0, x, y)),
        _as_image(resample(pair.image1, x, y)),
        _nearest(pair.field0, x, y) * factor,
        _nearest(pair.valid0, x, y),
        _nearest(pair.field1, x, y) * factor,
        _nearest(pair.valid1, x, y),
    )


def mirror_and_swap(pair: Pair) -> Pair:
    """Mirror both views and exchange them: a left view again sees its matches further left."""
    flipped = flip_horizontally(pair)
    return Pair(
        flipped.image1,
        flipped.image0,
        flipped.field1,
        flipped.valid1,
        flipped.field0,
        flipped.valid0,
    )


def _flip(pair: Pair, axis: int) -> Pair:
    sign = np.array([-1, 1] if axis == 1 else [1, -1], np.float32)
    return Pair(
        np.ascontiguousarray(np.flip(pair.image0, axis)),
        np.ascontiguousarray(np.flip(pair.image1, axis)),
        np.ascontiguousarray(np.flip(pair.field0, axis)) * sign,
        np.ascontiguousarray(np.flip(pair.valid0, axis)),
        np.ascontiguousarray(np.flip(pair.field1, axis)) * sign,
        np.ascontiguousarray(np.flip(pair.valid1, axis)),
    )


def flip_horizontally(pair: Pair) -> Pair:
    """Mirror left and right within each view (flow; a stereo pair would get negative disparities)."""
    return _flip(pair, 1)


def flip_vertically(pair: Pair) -> Pair:
    """Mirror top and bottom within each view (flow)."""
    return _flip(pair, 0)


def shift_vertically(pair: Pair, pixels: float) -> Pair:
    """Misalign view 1 by a little, as imperfect rectification does; the horizontal truth stays.

    View 0's fields are what a rectified pair would have: the network is to find the disparity in spite
    of the misalignment. View 1's ground truth moves with its image.
    """
    height, width = pair.valid1.shape
    x, y = np.arange(width), np.arange(height) - pixels
    outside = (np.round(y) < 0) | (np.round(y) > height - 1)
    valid1 = _nearest(pair.valid1, x, y) & ~outside[:, None]
    return replace(
        pair,
        image1=_as_image(resample(pair.image1, x, y)),
        field1=_nearest(pair.field1, x, y),
        valid1=valid1,
    )


def erase(image: Image, boxes: list[tuple[int, int, int, int]]) -> Image:
    """Paint boxes (left, top, width, height) with the image's mean colour: an artificial occlusion."""
    erased = image.copy()
    mean = np.round(image.reshape(-1, image.shape[-1]).mean(0)).astype(np.uint8)
    for left, top, width, height in boxes:
        erased[max(top, 0) : top + height, max(left, 0) : left + width] = mean
    return erased


def _hue_matrix(turn: float) -> NDArray[np.float32]:
    """Rotation of RGB about the grey axis by a share of the circle."""
    angle = 2 * np.pi * turn
    cosine, sine = np.cos(angle), np.sin(angle)
    grey, cross = (1 - cosine) / 3, sine / np.sqrt(3)
    diagonal, minus, plus = cosine + grey, grey - cross, grey + cross
    # Rows sum to one: greys stay grey.
    return np.array([[diagonal, minus, plus], [plus, diagonal, minus], [minus, plus, diagonal]], np.float32)


def _jitter(image: Image, random: np.random.Generator, config: AugmentationConfig) -> Image:
    values: NDArray = image.astype(np.float32)
    values = values * random.uniform(1 - config.brightness, 1 + config.brightness)
    mean = float(np.clip(values, 0, 255).mean())
    values = mean + (values - mean) * random.uniform(1 - config.contrast, 1 + config.contrast)
    grey = values @ np.array([0.299, 0.587, 0.114], np.float32)
    values = grey[..., None] + (values - grey[..., None]) * random.uniform(*config.saturation)
    values = values @ _hue_matrix(random.uniform(-config.hue, config.hue)).T
    values = 255 * (np.clip(values, 0, 255) / 255) ** random.uniform(*config.gamma)
    return _as_image(values)


def augment_colours(pair: Pair, random: np.random.Generator, config: AugmentationConfig) -> Pair:
    """Change the colours of both views alike or, more rarely, of each in its own way."""
    if random.random() >= config.colour_probability:
        return pair
    if random.random() < config.asymmetric:
        image0 = _jitter(pair.image0, random, config)
        return replace(pair, image0=image0, image1=_jitter(pair.image1, random, config))
    height = pair.image0.shape[0]
    both = _jitter(np.concatenate((pair.image0, pair.image1)), random, config)
    return replace(pair, image0=both[:height], image1=both[height:])


def _augment_window(
    pair: Pair, random: np.random.Generator, config: AugmentationConfig, height: int, width: int
) -> Pair:
    rows, columns = pair.valid0.shape
    scale_x = scale_y = 2.0 ** random.uniform(*config.scale)
    if random.random() < config.stretch_probability:
        scale_x *= 2.0 ** random.uniform(-config.stretch, config.stretch)
        scale_y *= 2.0 ** random.uniform(-config.stretch, config.stretch)
    # Never smaller than the crop, whatever was drawn.
    scale_x, scale_y = max(scale_x, width / columns), max(scale_y, height / rows)
    left = int(random.integers(0, max(int(columns * scale_x) - width, 0) + 1))
    top = int(random.integers(0, max(int(rows * scale_y) - height, 0) + 1))
    return resize_and_crop(pair, scale_x, scale_y, left, top, height, width)


def augment(
    pair: Pair,
    random: np.random.Generator,
    height: int,
    width: int,
    *,
    stereo: bool,
    config: AugmentationConfig | None = None,
) -> Pair:
    """A changed crop of a pair, with its ground truth.

    Args:
        pair: Any size; smaller than the crop is enlarged.
        random: Everything is drawn from it.
        height: Of the result, px.
        width: Of the result, px.
        stereo: Mirror with swapped views and misalign rows; otherwise flip like flow.
        config: Strengths.
    """
    config = config or AugmentationConfig()
    pair = _augment_window(augment_colours(pair, random, config), random, config, height, width)
    if stereo:
        if random.random() < config.shift_probability:
            pair = shift_vertically(pair, random.uniform(-config.vertical_shift, config.vertical_shift))
        # A view without ground truth must not become the supervised one.
        if random.random() < config.mirror_probability and pair.valid1.any():
            pair = mirror_and_swap(pair)
    else:
        if random.random() < config.flip_probability:
            pair = flip_horizontally(pair)
        if random.random() < config.flip_probability / 5:
            pair = flip_vertically(pair)
    if random.random() < config.eraser_probability:
        boxes = []
        for _ in range(int(random.integers(1, 3))):
            sides = random.integers(*config.eraser_size, size=2, endpoint=True)
            place = random.integers(0, (width, height))
            boxes.append((int(place[0]), int(place[1]), int(sides[0]), int(sides[1])))
        pair = replace(pair, image1=erase(pair.image1, boxes))
    return pair
