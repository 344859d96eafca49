"""A training step on a GPU: every mode gives the same losses, whatever stands beside or inside the network."""

import copy
from dataclasses import replace

import pytest
import torch

from matchattention.bench.training import example_batch
from matchattention.models import create_model
from matchattention.training.batch_norms import insert
from matchattention.training.distillation import Distillation, DistillationConfig
from matchattention.training.losses import LossConfig
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.recomputation import recompute_blocks
from matchattention.training.step import TrainingStep

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize(
    ("network", "kind", "micro_batches", "recompute", "taught"),
    [
        ("rt", "adamw", 1, False, False),
        ("rt-flow", "muon", 1, False, False),
        ("rt", "muon", 2, False, False),
        ("rt", "muon", 1, True, False),
        ("rt", "muon", 1, False, True),
    ],
    ids=["adamw", "flow", "accumulated", "recomputed", "with a teacher"],
)
def test_a_captured_step_learns_what_a_plain_one_learns(network, kind, micro_batches, recompute, taught) -> None:
    device = torch.device("cuda")
    batch = example_batch(4, 128, 256, device)
    torch.manual_seed(0)
    first = create_model(network).to(device).train()
    insert(first)
    # Unspoilt images: eager and captured steps do not draw the same noise.
    lesson = DistillationConfig(gain=0.0, noise=0.0, erase=0.0, hopeless=0.9)
    teacher = create_model(network)
    losses = {}
    for mode in ("eager", "capture"):
        model = copy.deepcopy(first)
        if recompute:
            recompute_blocks(model)
        step = TrainingStep(
            model,
            Updater(model, replace(OptimizerConfig(), kind=kind)),
            LossConfig(),
            mixed_precision=True,
            accumulate=micro_batches,
            distillation=Distillation(lesson, device, teacher) if taught else None,
        )
        assert step.prepare(batch, mode) == mode
        for index in range(3):
            for part in range(micro_batches):
                step(batch, 1e-4, index, first=part == 0, last=part == micro_batches - 1)
        losses[mode] = step.read_totals()["loss"]
    assert losses["capture"] == pytest.approx(losses["eager"], rel=0.01)
