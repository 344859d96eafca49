"""Confidence of a predictor: by the shipped head, by left-right agreement, and what each leaves in a prediction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import matchattention as ma
from matchattention.errors import InputError
from matchattention.models.checkpoint import shipped
from matchattention.models.confidence_file import read_head_header, shipped_head
from matchattention.training.sources import ShiftedCards


@pytest.fixture(scope="module")
def network():  # type: ignore[no-untyped-def]
    return ma.load("rt")


@pytest.fixture(scope="module")
def pair() -> tuple[np.ndarray, np.ndarray]:
    batch = ShiftedCards(5).batch(0, 1, 96, 160)
    return tuple(view[0].permute(1, 2, 0).byte().numpy() for view in (batch.image0, batch.image1))  # type: ignore[return-value]


def test_shipped_head_belongs_to_the_shipped_weights(network) -> None:  # type: ignore[no-untyped-def]
    import hashlib

    assert shipped_head(network) is not None
    path = shipped()["rt"].parent / "confidence" / "rt.safetensors"
    assert path.stat().st_size < 500_000
    card = read_head_header(path)[2]
    assert card["model_file_sha256"] == hashlib.sha256(shipped()["rt"].read_bytes()).hexdigest()
    assert card["licence"] == "Apache-2.0"
    assert card["trained_on"].startswith("rendered pairs alone")


def test_head_judges_and_agreement_stays(network, pair) -> None:  # type: ignore[no-untyped-def]
    judged = ma.Predictor(network, "cpu", check=False)(*pair)
    agreed = ma.Predictor(network, "cpu", check=False, confidence="agreement")(*pair)
    assert judged.agreement is not None
    assert judged.error is not None
    np.testing.assert_allclose(judged.agreement, agreed.confidence, atol=1e-6)
    assert agreed.agreement is None
    assert agreed.error is None
    assert ((judged.confidence >= 0) & (judged.confidence <= 1)).all()
    assert (judged.error > 0).all()
    # One story: where a match is likely within 1 px its one sigma is small.
    assert (judged.error[judged.confidence > 0.75] < 1).all()
    assert (judged.error[judged.confidence < 0.6] > 1).all()
    camera = ma.StereoCamera(fx=100, baseline=0.1)
    expected = camera.depth(judged.disparity) ** 2 / 10 * judged.error
    np.testing.assert_allclose(judged.depth_error(camera), expected, rtol=1e-5)


def test_right_matches_are_more_confident_than_a_guess(network, pair) -> None:  # type: ignore[no-untyped-def]
    """Two pictures that have nothing in common: both views may agree by chance, but no pixel is worth much."""
    predict = ma.Predictor(network, "cpu", check=False)
    noise = np.random.default_rng(0).integers(0, 255, (2, 96, 160, 3), dtype=np.uint8)
    assert np.median(predict(*pair).confidence) > 0.7
    assert np.median(predict(*noise).confidence) < 0.3


def test_traces_batches_and_tensors_are_judged_alike(network, pair) -> None:  # type: ignore[no-untyped-def]
    predict = ma.Predictor(network, "cpu", check=False)
    plain = predict(*pair)
    traced = predict(*pair, trace=True)
    np.testing.assert_allclose(traced.confidence, plain.confidence, atol=1e-4)
    tensors = [torch.from_numpy(view).permute(2, 0, 1) for view in pair]
    batch = predict(*(torch.stack([view, view]) for view in tensors))
    assert batch.error is not None
    np.testing.assert_allclose(batch[1].error, plain.error, rtol=1e-2, atol=1e-3)


def test_other_weights_fall_back_with_a_reason() -> None:
    network = ma.create_model("rt")
    predict = ma.Predictor(network, "cpu", check=False)
    assert predict.judge.head is None
    assert "train-confidence" in predict.judge.reason


def test_a_head_of_other_weights_is_refused(tmp_path: Path) -> None:
    path = shipped()["rt"].parent / "confidence" / "rt.safetensors"
    with pytest.raises(InputError, match="belongs to other weights"):
        ma.Predictor(ma.create_model("rt"), "cpu", confidence=path)
    with pytest.raises(InputError, match="no confidence head"):
        ma.Predictor(ma.create_model("rt"), "cpu", confidence=shipped()["rt"])
