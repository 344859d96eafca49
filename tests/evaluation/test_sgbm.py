"""The baseline: finds known shifts, fills its holes, reaches what it is known to reach."""

from pathlib import Path

import numpy as np
import pytest

from matchattention.data import datasets
from matchattention.evaluation import sgbm
from matchattention.evaluation.metrics import measure

pytest.importorskip("cv2")
MIDDLEBURY_2003 = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "folders" / "middlebury2003"


def textured(height, width, seed=0):
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (height // 2, width // 2, 3)).astype(np.uint8)
    return coarse.repeat(2, axis=0).repeat(2, axis=1)


def test_finds_a_shift_to_the_left_edge():
    world = textured(60, 140)
    left, right = world[:, :120], world[:, 7 : 7 + 120]
    disparity = sgbm.match(np.ascontiguousarray(left), np.ascontiguousarray(right), 16)
    assert disparity.shape == (60, 120)
    assert disparity.dtype == np.float32
    # The left 7 columns have no partner and are filled.
    assert np.isfinite(disparity).all()
    assert np.abs(disparity[:, 8:] - 7).mean() < 0.1


def test_holes_take_the_farther_neighbour():
    nan = np.nan
    holes = np.array([[nan, 5, nan, 9, nan], [nan] * 5, [1, nan, nan, nan, 3]], np.float32)
    filled = sgbm.fill_holes(holes)
    np.testing.assert_array_equal(filled[0], [5, 5, 5, 9, 9])
    np.testing.assert_array_equal(filled[1], filled[0])
    np.testing.assert_array_equal(filled[2], [1, 1, 1, 1, 3])


def test_empty_first_row_is_filled_from_below_and_nothing_becomes_zero():
    nan = np.nan
    np.testing.assert_array_equal(sgbm.fill_holes(np.array([[nan, nan], [2, nan]], np.float32)), [[2, 2], [2, 2]])
    np.testing.assert_array_equal(sgbm.fill_holes(np.full((2, 2), nan, np.float32)), np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("largest", "expected"), [(15.0, 16), (15.5, 32), (60.0, 64), (0.5, 16)], ids=lambda value: f"{value:g}"
)
def test_range_covers_the_truth(largest, expected):
    truth = np.array([[1.0, largest, np.inf]])
    assert sgbm.search_range(truth, 1000) == expected


def test_range_without_truth():
    assert sgbm.search_range(None, 640) == 176
    assert sgbm.search_range(np.full((2, 2), np.inf), 640) == 176


def test_reaches_what_it_is_known_to_reach():
    if not MIDDLEBURY_2003.is_dir():
        pytest.skip(f"needs {MIDDLEBURY_2003}")
    figures = []
    for sample in datasets.open("folder", MIDDLEBURY_2003):
        disparity = sgbm.match(sample.left, sample.right, sgbm.search_range(sample.disparity, sample.left.shape[1]))
        figures.append(measure(disparity, sample.disparity, sample.non_occluded)["noc"]["bad2"])
    # An independent prototype measured 6.3 per cent.
    assert np.mean(figures) == pytest.approx(6.3, abs=0.5)
