"""What a step reports: means of the loss terms since the last report."""

import pytest

from matchattention.training.losses import LossConfig, total_loss
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.sources import ShiftedCards
from matchattention.training.step import TrainingStep
from tests.training.networks import TinyNetwork


@pytest.mark.parametrize("steps", [1, 3])
def test_reported_losses_are_means_over_the_steps(steps):
    model = TinyNetwork()
    step = TrainingStep(model, Updater(model, OptimizerConfig()), LossConfig(), mixed_precision=False)
    batches = [ShiftedCards(0).batch(2 * index, 2, 32, 64) for index in range(steps)]
    for batch in batches:
        step.gradients(batch)
    losses = [total_loss(model(b.image0, b.image1), b, LossConfig())["loss"].item() for b in batches]
    reported = step.read_totals()
    assert reported["loss"] == pytest.approx(sum(losses) / steps, rel=1e-5)
    assert reported["silenced"] == 0
    assert step.totals.abs().sum() == 0
