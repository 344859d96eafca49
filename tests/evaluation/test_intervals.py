"""Bootstrap intervals against what statistics says they are."""

import json

import numpy as np
import pytest

from matchattention.evaluation.averages import mean_over_scenes, pooled_over_pixels
from matchattention.evaluation.intervals import bootstrap
from matchattention.evaluation.report import Report, SceneResult, read_report


def scenes(values, pixels=None):
    pixels = [100.0] * len(values) if pixels is None else pixels
    return [{"all": {"epe": float(value), "rms": float(value), "pixels": p}} for value, p in zip(values, pixels)]


def test_the_interval_of_a_mean_is_near_the_normal_one():
    values = np.random.default_rng(1).normal(10, 2, 400)
    low, high = bootstrap(scenes(values))["all"]["epe"]
    error = 1.96 * values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - error, abs=0.15 * error)
    assert high == pytest.approx(values.mean() + error, abs=0.15 * error)


def test_pooling_weighs_by_pixels_and_squares_rms():
    one = scenes([1.0, 9.0, 1.0], [1000.0, 1.0, 1000.0])
    mean, pooled = bootstrap(one)["all"], bootstrap(one, pooled=True)["all"]
    assert mean["epe"][1] > 6
    assert pooled["epe"][0] == 1.0  # the large scenes decide
    for name in ("epe", "rms"):
        assert pooled[name][0] <= pooled_over_pixels(one)["all"][name] <= pooled[name][1]
        assert mean[name][0] <= mean_over_scenes(one)["all"][name] <= mean[name][1]


def test_equal_scenes_leave_no_doubt_and_one_scene_no_interval():
    assert bootstrap(scenes([3.0] * 5))["all"]["epe"] == (3.0, 3.0)
    assert bootstrap(scenes([3.0])) == {}


def test_unknown_figures_are_left_out():
    low, high = bootstrap(scenes([1.0, 3.0, float("nan"), 2.0]))["all"]["epe"]
    assert 1 <= low < high <= 3
    assert bootstrap(scenes([float("nan")] * 3))["all"] == {}


def test_evaluate_prints_and_stores_them(tmp_path):
    metrics = [{"bad1": v, "bad2": v, "bad3": v, "d1": v, "epe": v, "pixels": 100.0} for v in (1.0, 2.0, 6.0)]
    results = tuple(SceneResult(f"s{i}", (16, 12), 0.5, {"all": values}) for i, values in enumerate(metrics))
    environment = {"commit": "0", "date": "today", "processor": "one"}
    report = Report("kitti2015", "root", "training", "stereo", {"label": "rt"}, results, environment, "evaluate")
    assert any(line.split()[:2] == ["95%", "from"] for line in report.table().splitlines())
    report.write(tmp_path / "a.json")
    stored = json.loads((tmp_path / "a.json").read_text())["bootstrap"]
    assert stored["level"] == 0.95
    assert stored["samples"] == 2000
    assert stored["mean_over_scenes"]["all"]["d1"] == pytest.approx(list(report.intervals()["all"]["d1"]), rel=1e-5)
    assert read_report(tmp_path / "a.json").intervals() == report.intervals()
