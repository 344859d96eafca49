"""One short training of one row: the project's own step, optimizer and batch norms, nothing saved but the weights."""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch import Tensor

from matchattention.ablation.budget import Budget
from matchattention.ablation.pool import ShuffledPool
from matchattention.models.config import NetworkConfig
from matchattention.models.registry import create_model
from matchattention.training.batch_norms import BATCHES, BatchNorms
from matchattention.training.feed import Feed
from matchattention.training.losses import LossConfig
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.schedule import learning_rate
from matchattention.training.step import Mode, TrainingStep

_LOSS_EVERY = 50  # steps


class ShortTraining:
    """A network from random weights, trained step by step so that several can take turns on one GPU.

    Args:
        config: The network.
        source: Training pairs in the seed's order.
        budget: How many, how large, at which rate.
        seed: Of the weights.
        device: Where.
        mode: Fastest way of running a step to try on a GPU.

    Attributes:
        steps: Made so far.
        curve: (pairs seen, mean loss since the last entry).
        ready_seconds: What it took until the first step.
    """

    def __init__(
        self,
        config: NetworkConfig,
        source: ShuffledPool,
        budget: Budget,
        seed: int,
        device: torch.device,
        mode: Mode = "capture",
    ) -> None:
        began = time.monotonic()
        self.config, self.budget = config, budget
        self.steps = 0
        self.curve: list[tuple[int, float]] = []
        on_gpu = device.type == "cuda"
        torch.manual_seed(seed)
        model = create_model(config).to(device).train()
        batches = [source.batch(number * budget.batch, budget.batch, *budget.size) for number in range(BATCHES)]
        self._norms = BatchNorms(model, batches, on_gpu, trained=False)
        self.updater = Updater(model, OptimizerConfig(kind="muon", average_decay=budget.average_decay()))
        loss = LossConfig()
        self.step = TrainingStep(
            model,
            self.updater,
            loss if config.occlusion_loss else replace(loss, mask_occlusions=False),
            mixed_precision=on_gpu,
        )
        self._feed = Feed(source, self.step)
        self.mode = self.step.prepare(self._feed.example(0, budget.batch, *budget.size), mode)
        self._schedule = budget.schedule()
        self._began: float | None = None
        self.ready_seconds = time.monotonic() - began

    def progress(self) -> float:
        """How much of the budget is used, 0 to 1."""
        if self.budget.steps is not None:
            return self.steps / self.budget.steps
        assert self.budget.minutes is not None
        return self.seconds() / (60 * self.budget.minutes)

    def seconds(self) -> float:
        """Since the first step."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    @property
    def pairs(self) -> int:
        """Seen so far."""
        return self.steps * self.budget.batch

    @property
    def over(self) -> bool:
        """Whether the budget is used up."""
        return self.progress() >= 1

    def one_step(self) -> None:
        """Train on the next batch; on a GPU this returns before it is done."""
        if self._began is None:
            self._began = time.monotonic()
        rate = learning_rate(self._schedule, self.steps, self.progress())
        request = (self.pairs, self.budget.batch, *self.budget.size)
        self._feed.train(request, self.pairs + self.budget.batch, rate, self.steps)
        self.steps += 1
        if self.steps % _LOSS_EVERY == 0 or self.over:
            self._note_loss()

    def _note_loss(self) -> None:
        self._feed.wait()
        self.curve.append((self.pairs, self.step.read_totals()["loss"]))
        self._feed.wait()  # the sums were cleared on another stream than the one that adds to them

    def weights(self) -> dict[str, Tensor]:
        """The averaged weights of the plain network, its norms folded in."""
        self._feed.wait()
        return self._norms.folded({**self.step.model.state_dict(), **self.updater.averaged()})
