"""Averages over scenes, weighted, and over pixels."""

import math

import numpy as np
import pytest

from matchattention.evaluation.averages import mean_over_scenes, pooled_over_pixels
from matchattention.evaluation.metrics import measure


def scene(bad2, epe, pixels, **more):
    return {"all": {"bad2": bad2, "epe": epe, "pixels": pixels, **more}}


def test_mean_by_hand():
    averages = mean_over_scenes([scene(10, 1, 100), scene(30, 2, 300)])
    assert averages["all"] == {"bad2": 20, "epe": 1.5, "pixels": 400}


def test_weights_by_hand():
    averages = mean_over_scenes([scene(10, 1, 100), scene(40, 4, 300)], [1.0, 0.5])
    assert averages["all"]["bad2"] == pytest.approx((10 + 20) / 1.5)


def test_scenes_without_a_mask_or_figure_are_left_out():
    first = scene(10, 1, 100) | {"occ": {"bad2": math.nan, "epe": math.nan, "pixels": 0}}
    second = scene(20, 2, 100) | {"occ": {"bad2": 50.0, "epe": 5.0, "pixels": 10}}
    third = scene(30, 3, 100)
    averages = mean_over_scenes([first, second, third])
    assert averages["all"]["bad2"] == 20
    assert averages["occ"] == {"bad2": 50, "epe": 5, "pixels": 10}


def test_pooling_equals_one_large_image():
    random = np.random.default_rng(0)
    truth = [random.random((4, width)).astype(np.float32) * 50 for width in (3, 9, 20)]
    predictions = [t + random.normal(0, 3, t.shape).astype(np.float32) for t in truth]
    pooled = pooled_over_pixels([measure(p, t) for p, t in zip(predictions, truth)])["all"]
    whole = measure(np.concatenate(predictions, axis=1), np.concatenate(truth, axis=1))["all"]
    assert "a50" not in pooled
    assert pooled == pytest.approx({name: value for name, value in whole.items() if name in pooled})
    assert {"bad2", "d1", "epe", "rms", "pixels", "missing"} <= set(pooled)
