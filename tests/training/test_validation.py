"""Validation: pairs of all sizes, padded and measured together, give what each alone would."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from matchattention.cli.train import _validate_seconds
from matchattention.training import validation
from matchattention.training.real_pairs import RealPair
from matchattention.training.sources import ShiftedCards
from matchattention.training.validation import Validator, errors, padded_length, untuned_convolutions


class ReadsRed(nn.Module):
    """Claims that the red channel is the disparity, so that a wrong crop is a wrong answer."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))
        self.shapes: list[tuple[int, ...]] = []
        self.dtypes: list[torch.dtype] = []

    def forward(self, image0: Tensor, image1: Tensor) -> SimpleNamespace:
        self.shapes.append(tuple(image0.shape))
        self.dtypes.append(torch.mm(image0[0, 0], image0[0, 0].T).dtype)
        x = -self.gain * torch.cat((image0, image1))[:, 0]
        return SimpleNamespace(field=torch.stack((x, torch.zeros_like(x)), -1))


def real_pair(name: str, height: int, width: int, offset: float = 0.0) -> RealPair:
    random = np.random.default_rng(height)
    left, right = random.integers(1, 200, (2, height, width, 3), dtype=np.uint8)
    disparity = left[..., 0].astype(np.float32) + offset
    disparity[0] = np.inf
    return RealPair(name, f"{height}x{width}", left, right, disparity, random.random((height, width)) > 0.5)


def test_padding_changes_no_error():
    pairs = [real_pair("a", 40, 70), real_pair("a", 64, 96), real_pair("b", 33, 90, offset=2.5)]
    found = Validator(ReadsRed(), [], pairs, crop=(32, 64)).measure({})
    assert found["a-all/epe"] == 0
    assert found["a-noc/bad3"] == 0
    assert found["b-all/epe"] == pytest.approx(2.5)
    assert found["b-noc/bad2"] == 100
    assert found["b-all/bad3"] == 0


def test_few_sizes_in_few_passes():
    sizes = [(496, 718), (277, 347), (375, 1242), (497, 659), (497, 741), (375, 1242), (481, 707), (500, 700)]
    validator = Validator(ReadsRed(), [], [real_pair("real", *size) for size in sizes], crop=(320, 640))
    validator.measure({})
    assert sorted(validator.network.shapes) == [(1, 3, 320, 384), (1, 3, 576, 896), (2, 3, 448, 1408), (4, 3, 576, 896)]


@pytest.mark.parametrize("like", [32, 64, 320, 384, 512, 640, 768, 1024])
def test_padded_lengths_divide_as_in_training(like):
    def whole(length):
        return [length // scale % 16 == 0 for scale in (4, 8, 16, 32)]

    assert padded_length(like, like) == like
    for length in (1, 33, 375, 497, 741, 1242):
        padded = padded_length(length, like)
        assert length <= padded < length + 1024
        assert padded % 32 == 0
        assert whole(padded) == whole(like)


def test_rendered_pairs_count_alike_and_weights_are_taken():
    batches = [ShiftedCards(3).batch(0, 4, 32, 64), ShiftedCards(3).batch(4, 1, 32, 64)]
    validator = Validator(ReadsRed(), batches, [], crop=(96, 128))
    found = validator.measure({"gain": torch.zeros(())})
    assert validator.network.shapes == [(4, 3, 32, 128), (1, 3, 32, 128)]
    lengths = [-batch.field0[index, ..., 0].mean() for batch in batches for index in range(len(batch.image0))]
    assert found["rendered/epe"] == pytest.approx(torch.stack(lengths).mean().item(), rel=1e-5)
    assert set(found) == {"rendered/epe", "rendered/bad1", "rendered/bad3"}


def test_features_have_the_dtype_of_the_training():
    for mixed, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        validator = Validator(ReadsRed(), [ShiftedCards(3).batch(0, 1, 32, 64)], [], mixed)
        validator.measure({})
        assert validator.network.dtypes == [dtype]


def test_tuning_is_back_afterwards(monkeypatch):
    monkeypatch.setattr(validation.torch.backends.cudnn, "benchmark", True)
    with untuned_convolutions():
        assert not torch.backends.cudnn.benchmark
    assert torch.backends.cudnn.benchmark


def test_short_runs_are_validated_at_their_end():
    assert _validate_seconds(None, 9.0) is None
    assert _validate_seconds(None, 60.0) == 180
    assert _validate_seconds(None, None) == 180
    assert _validate_seconds(0.0, 60.0) is None
    assert _validate_seconds(2.0, 9.0) == 120


def test_error_measures_by_hand():
    truth = torch.tensor([[-10.0, 0.0], [-100.0, 0.0], [-10.0, 0.0], [-10.0, 0.0]])
    field = torch.tensor([[-11.5, 0.0], [-104.0, 0.0], [-14.0, 0.0], [99.0, 0.0]])
    found = errors(field, truth, torch.tensor([True, True, True, False]))
    expected = {"epe": 9.5 / 3, "bad1": 100.0, "bad2": 200 / 3, "bad3": 200 / 3, "d1": 100 / 3}
    assert {name: value.item() for name, value in found.items()} == pytest.approx(expected)


def test_an_error_of_exactly_three_pixels_is_no_outlier():
    truth = torch.zeros(1, 2, 2)
    found = errors(truth + torch.tensor([[3.0, 0.0], [3.01, 0.0]]), truth, torch.ones(1, 2, dtype=torch.bool))
    assert found["d1"] == found["bad3"] == 50
