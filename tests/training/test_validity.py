"""Samples that are broken are silenced, alone and inside a step."""

from __future__ import annotations

import torch

from matchattention.data.batch import Batch
from matchattention.training.losses import LossConfig
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.sources import ShiftedCards
from matchattention.training.step import TrainingStep
from matchattention.training.validity import silence_bad_samples
from tests.training.networks import TinyNetwork


class TestValidity:
    def _batch(self) -> Batch:
        return ShiftedCards(0).batch(0, 3, 32, 64)

    def test_sound_batches_pass_unchanged(self):
        batch = self._batch()
        cleaned, silenced = silence_bad_samples(batch)
        assert silenced.item() == 0
        assert all(torch.equal(a, b) for a, b in zip(batch, cleaned))

    def test_bad_images_and_mostly_absurd_truth_silence_a_sample(self):
        batch = self._batch()
        image0, field1 = batch.image0.clone(), batch.field1.clone()
        image0[1, 0, 3, 3] = float("nan")
        field1[2, :10] = 1e6
        cleaned, silenced = silence_bad_samples(batch._replace(image0=image0, field1=field1))
        assert silenced.item() == 2
        assert torch.isfinite(cleaned.image0).all()
        assert cleaned.valid0[0].all()
        assert not cleaned.valid0[1:].any()
        assert not cleaned.valid1[1:].any()

    def test_both_images_of_a_silenced_sample_are_blank(self):
        batch = self._batch()
        image1 = batch.image1.clone()
        image1[1, 2, 5, 7] = float("inf")
        cleaned, _ = silence_bad_samples(batch._replace(image1=image1))
        for cleared, given in ((cleaned.image0, batch.image0), (cleaned.image1, image1)):
            assert (cleared[1] == 0).all()
            assert torch.equal(cleared[::2], given[::2])

    def test_a_few_absurd_pixels_are_masked_one_by_one(self):
        batch = self._batch()
        field0 = batch.field0.clone()
        field0[0, 0, :4] = float("inf")
        cleaned, silenced = silence_bad_samples(batch._replace(field0=field0))
        assert silenced.item() == 0
        assert cleaned.valid0[0].sum().item() == 32 * 64 - 4
        assert torch.isfinite(cleaned.field0).all()


def test_a_step_silences_bad_samples():
    model = TinyNetwork()
    step = TrainingStep(model, Updater(model, OptimizerConfig()), LossConfig(), mixed_precision=False)
    batch = ShiftedCards(0).batch(0, 2, 32, 64)
    batch.image0[1, 0, 3, 3] = float("nan")
    step.gradients(batch)
    assert step.totals[len(step.names)] == 1
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
