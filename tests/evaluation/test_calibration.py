"""Ranking, reliability and coverage against distributions whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from matchattention.evaluation.calibration import coverage, joined, reliability, sparsification

RANDOM = np.random.default_rng(0)


def test_ause_is_zero_for_an_oracle_and_one_for_chance() -> None:
    wrong = RANDOM.random(20_000) < 0.2
    assert sparsification(wrong, 1.0 - wrong).ause == pytest.approx(0, abs=1e-9)
    assert sparsification(wrong, RANDOM.random(20_000)).ause == pytest.approx(1, abs=0.05)
    assert sparsification(wrong, wrong.astype(float)).ause > 1.5  # the wrong way round


def test_equal_confidences_leave_in_no_order() -> None:
    wrong = np.sort(RANDOM.random(5_000) < 0.3)  # a stable sort would look like knowledge
    assert sparsification(wrong, np.full(5_000, 0.5)).ause == pytest.approx(1, abs=0.02)


def test_ause_without_errors_or_pixels_is_unknown() -> None:
    assert np.isnan(sparsification(np.zeros(10, bool), np.arange(10.0)).ause)
    assert np.isnan(sparsification(np.zeros(0, bool), np.zeros(0)).ause)


def test_reliability_of_an_honest_and_of_a_boasting_confidence() -> None:
    confidence = RANDOM.random(100_000)
    right = RANDOM.random(100_000) < confidence
    assert reliability(right, confidence).error < 0.02
    assert reliability(right, np.minimum(confidence + 0.3, 1)).error > 0.2
    halves = [reliability(right[part], confidence[part]) for part in (slice(0, 30_000), slice(30_000, None))]
    whole = reliability(right, confidence)
    np.testing.assert_allclose(joined(halves).observed, whole.observed)
    np.testing.assert_allclose(joined(halves).claimed, whole.claimed)


def test_coverage_of_a_normal_error_is_the_textbooks() -> None:
    found = coverage(np.abs(RANDOM.normal(0, 2, 200_000)), np.full(200_000, 2.0))
    assert list(found.values()) == pytest.approx([68.27, 95.45, 99.73], abs=0.4)
