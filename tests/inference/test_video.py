"""Frames start from the last one, except where that would go wrong; colours are steady."""

import numpy as np
import pytest

from matchattention.errors import InputError
from matchattention.inference.predictor import Predictor
from matchattention.inference.video import SteadyRange, VideoPredictor
from tests.inference.oracle import Oracle, encoded


def frame(value: float, width: int = 80) -> tuple[np.ndarray, np.ndarray]:
    disparity = np.full((32, width), value)
    return encoded(disparity, disparity)


def video(refresh: int = 30) -> tuple[VideoPredictor, Oracle]:
    oracle = Oracle().knowing(80)
    return VideoPredictor(Predictor(oracle, check=False), refresh), oracle


def test_frames_start_from_the_last_one() -> None:
    predict, oracle = video()
    results = list(predict.frames([frame(8), frame(8.25), frame(8.5)]))
    assert [start for *_, start in oracle.calls] == [False, True, True]
    assert predict.searches == 1
    np.testing.assert_array_equal(results[2].disparity, np.full((32, 80), 8.5))


def test_a_refresh_searches_anew() -> None:
    predict, oracle = video(refresh=2)
    list(predict.frames([frame(8)] * 6))
    assert [start for *_, start in oracle.calls] == [False, True, True, False, True, True]


def test_a_cut_searches_anew() -> None:
    predict, oracle = video()
    left, right = frame(8)
    predict(left, right)
    predict(255 - left, 255 - right)
    assert [start for *_, start in oracle.calls] == [False, False]


def test_losing_partners_searches_anew() -> None:
    predict, oracle = video()
    predict(*frame(8))
    broken = encoded(np.full((32, 80), 8.0), np.full((32, 80), 20.0))
    predict(*broken)
    assert [start for *_, start in oracle.calls] == [False, True, False]
    assert predict.searches == 2


def test_another_size_searches_anew() -> None:
    predict, oracle = video()
    predict(*frame(8))
    predict(*frame(8, width=64))
    assert [start for *_, start in oracle.calls] == [False, False]


def test_only_the_first_frame_is_checked() -> None:
    from tests.geometry.pictures import pair

    left, right, _ = pair(96, 160)
    predict = VideoPredictor(Predictor(Oracle().knowing(160)))
    with pytest.raises(InputError, match="swapped"):
        predict(right, left)
    predict(left, right)
    predict(right, left)


def test_steady_range_moves_slowly_and_ignores_unknown_values() -> None:
    steady = SteadyRange(inertia=0.9)
    assert steady.update(np.array([np.nan])) == (0.0, 1.0)
    assert steady.update(np.array([10.0, 10.0])) == (10.0, 10.0)
    low, high = steady.update(np.array([20.0, 20.0, np.inf]))
    assert (low, high) == pytest.approx((11.0, 11.0))
    assert steady.update(np.array([np.inf])) == (low, high)
    with pytest.raises(InputError):
        SteadyRange(1.0)
