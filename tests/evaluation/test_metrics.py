"""Metrics: cases worked out by hand, and a second implementation written pixel by pixel."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchattention.evaluation import metrics

INF, NAN = np.inf, np.nan


def second_implementation(prediction, truth, mask):
    """Plain loops over Python numbers; flow when the arrays have a third axis."""
    distances, bad, outliers = [], {t: 0 for t in metrics.BAD_THRESHOLDS}, 0
    missing = 0
    height, width = truth.shape[:2]
    for y in range(height):
        for x in range(width):
            true = [float(value) for value in np.atleast_1d(truth[y, x])]
            if not all(math.isfinite(value) for value in true) or not mask[y, x]:
                continue
            guess = [float(value) for value in np.atleast_1d(prediction[y, x])]
            absent = not all(math.isfinite(value) for value in guess)
            if absent:
                guess = [0.0] * len(true)
            distance = math.sqrt(sum((a - b) ** 2 for a, b in zip(guess, true)))
            length = math.sqrt(sum(a * a for a in true))
            missing += absent
            distances.append(distance)
            for threshold in bad:
                bad[threshold] += distance > threshold or absent
            outliers += (distance > 3 and distance / max(length, 1e-300) > 0.05) or absent
    count = len(distances)
    if count == 0:
        return None
    result = {f"bad{threshold:g}": 100 * number / count for threshold, number in bad.items()}
    result["fl" if truth.ndim == 3 else "d1"] = 100 * outliers / count
    result["epe"] = sum(distances) / count
    result["rms"] = math.sqrt(sum(d * d for d in distances) / count)
    for percent in metrics.QUANTILES:
        result[f"a{percent}"] = sorted(distances)[max(math.ceil(percent * count / 100), 1) - 1]
    result["pixels"] = count
    result["missing"] = 100 * missing / count
    return result


@given(seed=st.integers(0, 10_000), flow=st.booleans(), share=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_agrees_with_the_second_implementation(seed, flow, share):
    random = np.random.default_rng(seed)
    shape = (5, 7, 2) if flow else (5, 7)
    truth = (random.random(shape) * random.choice([5, 200])).astype(np.float32)
    prediction = (truth + random.normal(0, 4, shape)).astype(np.float32)
    truth[random.random((5, 7)) < 0.2] = INF
    prediction[random.random((5, 7)) < 0.1] = NAN
    prediction[random.random((5, 7)) < 0.05] = INF
    seen = random.random((5, 7)) < share
    front = random.random((5, 7)) < 0.5
    measured = metrics.measure(prediction, truth, seen, front)
    masks = {"all": np.ones((5, 7), bool), "noc": seen, "occ": ~seen, "fg": front, "bg": ~front}
    if flow:
        speed = np.sqrt((truth.astype(np.float64) ** 2).sum(-1))
        masks |= {"s0-10": speed < 10, "s10-40": (speed >= 10) & (speed < 40), "s40+": speed >= 40}
    assert set(measured) == set(masks)
    for name, mask in masks.items():
        expected = second_implementation(prediction, truth, mask)
        if expected is None:
            assert measured[name]["pixels"] == 0
            assert math.isnan(measured[name]["epe"])
            continue
        assert measured[name] == pytest.approx(expected, rel=1e-5)


def test_stereo_by_hand():
    truth = np.array([[10, 10, 10, 10, INF]], np.float32)
    prediction = np.array([[10, 10.75, 12.5, 16, 99]], np.float32)
    values = metrics.measure(prediction, truth)["all"]
    # Errors 0, 0.75, 2.5, 6 of four pixels.
    assert values["pixels"] == 4
    assert [values[f"bad{t}"] for t in ("0.5", "1", "2", "3", "4")] == [75, 50, 50, 25, 25]
    assert values["d1"] == 25
    assert values["epe"] == pytest.approx(9.25 / 4)
    assert values["rms"] == pytest.approx(math.sqrt((0.75**2 + 2.5**2 + 36) / 4))
    assert (values["a50"], values["a90"], values["a99"]) == (0.75, 6, 6)
    assert values["missing"] == 0


def test_d1_needs_both_limits():
    # 4 px of 200 is 2 %: far, but not an outlier; 4 px of 20 is; 2.9 px of 5 is not far enough.
    truth = np.array([[200, 20, 5]], np.float32)
    prediction = truth + np.array([[4, 4, 2.9]], np.float32)
    values = metrics.measure(prediction, truth)["all"]
    assert values["d1"] == pytest.approx(100 / 3)
    assert values["bad3"] == pytest.approx(200 / 3)


def test_limits_are_exclusive():
    truth = np.array([[100.0, 60.0]], np.float32)
    values = metrics.measure(truth + 3, truth)["all"]
    assert values["bad3"] == 0
    assert values["d1"] == 0
    assert values["bad2"] == 100


def test_flow_by_hand():
    truth = np.array([[[0, 0], [30, 40], [INF, 0]]], np.float32)
    prediction = np.array([[[3, 4], [30, 41], [0, 0]]], np.float32)
    values = metrics.measure(prediction, truth)["all"]
    assert values["pixels"] == 2
    assert values["epe"] == 3
    assert values["fl"] == 50
    assert values["bad1"] == 50
    assert "d1" not in values


def test_missing_predictions_are_errors_everywhere():
    truth = np.array([[0.25, 8]], np.float32)
    prediction = np.array([[NAN, INF]], np.float32)
    values = metrics.measure(prediction, truth)["all"]
    # The first pixel's zero would be within half a px, had it been predicted.
    assert values["bad0.5"] == values["bad4"] == values["d1"] == values["missing"] == 100
    assert values["epe"] == pytest.approx(4.125)


def test_masks_split_the_pixels():
    truth = np.array([[1, 2, INF, 4]], np.float32)
    seen = np.array([[True, False, True, True]])
    values = metrics.measure(truth, truth, non_occluded=seen)
    assert (values["all"]["pixels"], values["noc"]["pixels"], values["occ"]["pixels"]) == (3, 2, 1)


def test_a_mask_without_pixels_has_no_figures():
    truth = np.array([[1.0]], np.float32)
    values = metrics.measure(truth, truth, non_occluded=np.array([[True]]))["occ"]
    assert values["pixels"] == 0
    assert all(math.isnan(value) for name, value in values.items() if name != "pixels")


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="differ in shape"):
        metrics.measure(np.zeros((2, 3)), np.zeros((3, 2)))


def test_wide_disparities_keep_their_fractions():
    # float32 holds 1/16 px at 4096; the difference must not be rounded away.
    truth = np.array([[4000.0625]], np.float32)
    values = metrics.measure(np.array([[4000.0]], np.float32), truth)["all"]
    assert values["epe"] == 0.0625


def test_speeds_of_ten_and_forty_pixels_belong_to_the_middle_class():
    truth = np.array([[[0, 9.99], [6, 8], [40, 0], [24, -32.1]]])
    masks = metrics.speed_masks(truth)
    assert masks["s0-10"].tolist() == [[True, False, False, False]]
    assert masks["s10-40"].tolist() == [[False, True, True, False]]
    assert masks["s40+"].tolist() == [[False, False, False, True]]
