"""Whatever augmentation does to a pair, its ground truth still names the same matches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchattention.data import augmentation as A

STILL = A.AugmentationConfig(
    scale=(0.0, 0.0),
    stretch_probability=0.0,
    colour_probability=0.0,
    eraser_probability=0.0,
    shift_probability=0.0,
    mirror_probability=0.0,
    flip_probability=0.0,
)


def _wave(x, y):
    """A smooth texture: interpolation hardly changes it, a wrong match does."""
    return np.stack([127 + 100 * np.sin(x / 9 + c) * np.cos(y / 11 - c) for c in (0.0, 1.0, 2.0)], -1)


def _slanted(height: int = 60, width: int = 110, near: float = 12.0, slope: float = 0.05) -> A.Pair:
    """A slanted plane seen exactly by both views: disparity near + slope · x of the left view."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    disparity0 = near + slope * x
    disparity1 = (near + slope * x) / (1 - slope)  # the left column that lands on x is x + disparity
    match1 = x + disparity1

    def field(values, sign):
        return np.stack((sign * values, np.zeros_like(values)), -1).astype(np.float32)

    known = np.ones((height, width), bool)
    image0, image1 = _wave(x, y), _wave(match1, y)
    return A.Pair(
        np.round(image0).astype(np.uint8),
        np.round(image1).astype(np.uint8),
        field(disparity0, -1),
        known,
        field(disparity1, 1),
        known.copy(),
    )


def _disagreement(pair: A.Pair, flow: bool = False) -> float:
    """Mean brightness difference between view 0 and view 1 warped by the ground truth, both ways."""
    worst = 0.0
    for here, there, field, valid in (
        (pair.image0, pair.image1, pair.field0, pair.valid0),
        (pair.image1, pair.image0, pair.field1, pair.valid1),
    ):
        height, width = valid.shape
        y, x = np.mgrid[0:height, 0:width]
        to_x, to_y = x + field[..., 0], y + field[..., 1]
        inside = valid & (to_x >= 0) & (to_x <= width - 1) & (to_y >= 0) & (to_y <= height - 1)
        if not inside.any():
            continue
        low = np.floor(to_x).clip(0, width - 2).astype(int)
        share = (to_x - low)[..., None]
        row = np.round(to_y).clip(0, height - 1).astype(int)
        warped = there[row, low] * (1 - share) + there[row, low + 1] * share
        worst = max(worst, float(np.abs(warped - here)[inside].mean()))
    return worst


def test_the_example_itself_is_exact():
    pair = _slanted()
    assert _disagreement(pair) < 1.0
    wrong = replace(pair, field0=pair.field0 * 1.2)
    assert _disagreement(wrong) > 5.0


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    height=st.integers(24, 50),
    width=st.integers(40, 90),
    mirror=st.booleans(),
)
def test_geometry_keeps_every_match(seed, height, width, mirror):
    config = A.AugmentationConfig(
        colour_probability=0.0, eraser_probability=0.0, shift_probability=0.0, mirror_probability=float(mirror)
    )
    result = A.augment(_slanted(), np.random.default_rng(seed), height, width, stereo=True, config=config)
    assert result.image0.shape == result.image1.shape == (height, width, 3)
    assert result.field0.dtype == np.float32
    assert result.field0.shape == (height, width, 2)
    assert (result.field0[..., 0] <= 0).all()
    assert (result.field1[..., 0] >= 0).all()
    assert (result.field0[..., 1] == 0).all()
    assert _disagreement(result) < 3.0


def test_plain_crop_copies():
    pair = _slanted()
    result = A.resize_and_crop(pair, 1.0, 1.0, 7, 5, 32, 64)
    assert np.array_equal(result.image0, pair.image0[5:37, 7:71])
    assert np.array_equal(result.field1, pair.field1[5:37, 7:71])


def test_small_images_are_enlarged_to_the_crop():
    result = A.augment(_slanted(20, 40, 4.0), np.random.default_rng(0), 64, 96, stereo=True, config=STILL)
    assert result.image0.shape == (64, 96, 3)
    assert result.field0[..., 0].min() < -4.0 * 96 / 40 + 0.5


def test_masks_move_with_the_pixels():
    pair = _slanted()
    valid = pair.valid0.copy()
    valid[10:20, 30:40] = False
    marked = replace(pair, valid0=valid, field0=np.where(valid[..., None], pair.field0, 0).astype(np.float32))
    result = A.resize_and_crop(marked, 2.0, 2.0, 10, 6, 40, 80)
    expected = np.ones((40, 80), bool)
    expected[14:34, 50:70] = False
    assert np.array_equal(result.valid0, expected)


def test_mirroring_twice_is_the_identity():
    pair = _slanted()
    twice = A.mirror_and_swap(A.mirror_and_swap(pair))
    for name in ("image0", "image1", "field0", "field1", "valid0", "valid1"):
        assert np.array_equal(getattr(twice, name), getattr(pair, name))


def test_a_pair_without_right_truth_is_never_swapped():
    pair = replace(_slanted(), valid1=np.zeros((60, 110), bool))
    config = replace(STILL, mirror_probability=1.0)
    result = A.augment(pair, np.random.default_rng(0), 32, 64, stereo=True, config=config)
    assert result.valid0.all()


@pytest.mark.parametrize("flip", [A.flip_horizontally, A.flip_vertically])
def test_flips_of_flow_keep_every_match(flip):
    y, x = np.mgrid[0:40, 0:60].astype(np.float64)
    flow = np.stack((np.full_like(x, 3.0), np.full_like(x, -2.0)), -1).astype(np.float32)
    known = np.ones((40, 60), bool)
    first, second = _wave(x, y), _wave(x - 3, y + 2)
    pair = A.Pair(first.round().astype(np.uint8), second.round().astype(np.uint8), flow, known, -flow, known)
    assert _disagreement(pair) < 1.0
    assert _disagreement(flip(pair)) < 1.0
    assert _disagreement(flip(flip(pair))) < 1.0
    wrong = replace(flip(pair), field0=pair.field0, field1=pair.field1)
    assert _disagreement(wrong) > 5.0


def test_vertical_shift_moves_view_1_and_its_truth_only():
    pair = _slanted()
    labels = np.arange(60 * 110 * 2, dtype=np.float32).reshape(60, 110, 2)
    shifted = A.shift_vertically(replace(pair, field1=labels), 2.0)
    assert np.array_equal(shifted.image0, pair.image0)
    assert np.array_equal(shifted.field0, pair.field0)
    assert np.array_equal(shifted.image1[2:], pair.image1[:-2])
    assert np.array_equal(shifted.field1[2:], labels[:-2])
    assert not shifted.valid1[:2].any()
    assert shifted.valid1[2:].all()


def test_eraser_paints_the_mean_inside_its_boxes_only():
    image = _slanted().image1
    erased = A.erase(image, [(100, 50, 40, 40), (5, 5, 10, 10)])
    changed = (erased != image).any(-1)
    allowed = np.zeros_like(changed)
    allowed[50:, 100:] = True
    allowed[5:15, 5:15] = True
    assert not changed[~allowed].any()
    assert changed[allowed].mean() > 0.8


def test_colours_change_alike_or_apart_and_leave_the_truth():
    pair = _slanted()
    same = replace(pair, image1=pair.image0)
    alike = A.augment_colours(same, np.random.default_rng(1), A.AugmentationConfig(asymmetric=0.0))
    assert np.array_equal(alike.image0, alike.image1)
    assert not np.array_equal(alike.image0, same.image0)
    apart = A.augment_colours(same, np.random.default_rng(1), A.AugmentationConfig(asymmetric=1.0))
    assert not np.array_equal(apart.image0, apart.image1)
    assert apart.field0 is pair.field0


def test_grey_stays_grey_under_a_hue_turn():
    assert A._hue_matrix(0.13) @ np.full(3, 100.0) == pytest.approx([100.0] * 3, abs=1e-3)
    assert A._hue_matrix(1 / 3) @ np.array([90.0, 0, 0]) == pytest.approx([0.0, 90.0, 0.0], abs=1e-3)


def test_the_same_seed_gives_the_same_crop():
    results = [A.augment(_slanted(), np.random.default_rng(4), 32, 64, stereo=True) for _ in range(2)]
    assert np.array_equal(results[0].image1, results[1].image1)
    assert np.array_equal(results[0].field0, results[1].field0)
