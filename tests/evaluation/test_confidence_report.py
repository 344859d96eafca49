"""A report about confidence: figures of predictions whose errors and claims are known."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from matchattention.data.datasets.sample import StereoSample
from matchattention.errors import InputError
from matchattention.evaluation.confidence_report import in_words, measure_confidence, write_confidence
from matchattention.inference.prediction import Prediction
from matchattention.viz.fields import write_picture

SHAPE = (60, 80)


class Claims:
    """A predictor that is 5 px off in the right half of the image, and says so or does not."""

    def __init__(self, honest: bool, head: bool = True) -> None:
        self.honest = honest
        self.judge = SimpleNamespace(head=object() if head else None, reason="No head.")

    def match(self, left: np.ndarray, right: np.ndarray) -> Prediction:
        disparity = np.full(SHAPE, 10, np.float32)
        disparity[:, 40:] += 5
        field = np.stack([-disparity, np.zeros_like(disparity)], -1)
        low = np.where(disparity > 12, 0.1, 0.9).astype(np.float32)
        confidence = low if self.honest else 1 - low
        even = np.full(SHAPE, 0.5, np.float32)
        extra = {"agreement": even, "error": np.where(disparity > 12, 6, 0.2).astype(np.float32)}
        sizes = extra if self.judge.head else {}
        return Prediction("stereo", field, -field, disparity > 99, confidence, **sizes)


class Pairs(list):
    name, split, kind = "folder", "all", "stereo"


def _pairs(folder: Path, truth: np.ndarray | None) -> Pairs:
    write_picture(folder / "view.png", np.zeros((*SHAPE, 3), np.uint8))
    views = folder / "view.png", folder / "view.png"
    return Pairs([StereoSample("one", *views, None if truth is None else lambda: truth)])


def _report(folder: Path, predictor: Claims) -> dict:
    truth = np.full(SHAPE, 10, np.float32)
    truth[:5] = np.inf  # unknown
    return measure_confidence(_pairs(folder, truth), predictor, {"name": "claims"}, "test", lambda line: None)  # type: ignore[arg-type]


def test_honest_claims_rank_perfectly_and_boasting_ones_backwards(tmp_path: Path) -> None:
    honest, boasting = _report(tmp_path, Claims(True)), _report(tmp_path, Claims(False))
    assert honest["mean_over_scenes"]["ause"] == pytest.approx(0, abs=1e-6)
    assert honest["mean_over_scenes"]["ause_agreement"] == pytest.approx(1, abs=0.02)
    assert boasting["mean_over_scenes"]["ause"] > 1.2
    assert honest["calibration_error"]["confidence"] == pytest.approx(0.1, abs=1e-6)
    assert honest["mean_over_scenes"]["coverage"] == {"1": 100.0, "2": 100.0, "3": 100.0}
    assert honest["scenes"][0]["pixels"] == 55 * 80
    assert honest["mean_over_scenes"]["in_cloud"] == pytest.approx(50)
    assert honest["mean_over_scenes"]["in_cloud_agreement"] == pytest.approx(100)


def test_an_error_of_exactly_two_pixels_is_not_yet_bad_2(tmp_path: Path) -> None:
    report = measure_confidence(
        _pairs(tmp_path, np.full(SHAPE, 12, np.float32)), Claims(True), {"name": "claims"}, "", lambda line: None
    )  # 2 px off on the left, 3 on the right
    assert report["mean_over_scenes"]["wrong"] == pytest.approx(50)


def test_without_a_head_sigma_comes_from_the_agreement(tmp_path: Path) -> None:
    report = _report(tmp_path, Claims(True, head=False))
    assert report["confidence"] == "No head."
    assert report["mean_over_scenes"]["coverage"] == report["mean_over_scenes"]["coverage_agreement"]


def test_report_is_json_and_words(tmp_path: Path) -> None:
    report = _report(tmp_path, Claims(True))
    write_confidence(report, tmp_path / "calibration.json")
    stored = json.loads((tmp_path / "calibration.json").read_text())
    assert stored["mean_over_scenes"]["coverage"]["1"] == 100
    assert sum(stored["reliability"]["confidence"]["pixels"]) == 55 * 80
    assert "AUSE (bad 2, all pixels)   0.000   " in in_words(report)


def test_nothing_to_measure_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no ground truth"):
        measure_confidence(_pairs(tmp_path, None), Claims(True), {}, "", lambda line: None)  # type: ignore[arg-type]
