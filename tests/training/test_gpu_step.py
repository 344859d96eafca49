"""A training step on a GPU: every mode gives the same losses."""

import copy

import pytest
import torch

from matchattention.bench.training import example_batch
from matchattention.models import create_model
from matchattention.training.losses import LossConfig
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.step import TrainingStep

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def test_a_captured_step_learns_what_a_plain_one_learns() -> None:
    device = torch.device("cuda")
    batch = example_batch(4, 128, 256, device)
    torch.manual_seed(0)
    first = create_model("rt").to(device).train()
    losses = {}
    for mode in ("eager", "capture"):
        model = copy.deepcopy(first)
        step = TrainingStep(model, Updater(model, OptimizerConfig()), LossConfig(), mixed_precision=True)
        assert step.prepare(batch, mode) == mode
        for index in range(3):
            step(batch, 1e-4, index)
        losses[mode] = step.read_totals()["loss"]
    assert losses["capture"] == pytest.approx(losses["eager"], rel=0.01)
