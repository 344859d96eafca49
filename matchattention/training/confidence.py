"""Trains a confidence head on what a frozen network makes of rendered pairs.

Every pair goes through the network once; what the head reads of it is kept in memory, in half precision. On a GPU a
training takes minutes, on two CPU cores about half an hour, nearly all of it the rendering.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from matchattention.data.atomic import replacing
from matchattention.data.batch import Batch
from matchattention.data.reading import reads
from matchattention.errors import InputError
from matchattention.layers.confidence_head import ConfidenceHead, Evidence, Mixture, evidence_of
from matchattention.models.network import MatchNetwork
from matchattention.training.sources import Source

Say = Callable[[str], None]
Agree = Callable[[Tensor], Tensor]  # of fields (2B, H, W, 2) px the left-right agreement (B, H, W) of the first views


@dataclass(frozen=True)
class ConfidenceTraining:
    """How a head is trained.

    Attributes:
        pairs: To render, in whole batches; the last tenth is held out.
        height: Of the pairs, px, a multiple of 32.
        width: Of the pairs, px, a multiple of 32.
        batch: Pairs a step.
        epochs: Times every pair is seen.
        rate: Peak learning rate; falls to zero as half a cosine.
        cap: px; larger errors count as this large, so that a few absurd ones do not set the scale.
        seed: Of pairs and order.
    """

    pairs: int = 640
    height: int = 256
    width: int = 512
    batch: int = 4
    epochs: int = 12
    rate: float = 2e-3
    cap: float = 32.0
    seed: int = 77

    def __post_init__(self) -> None:
        if self.batch < 1 or self.epochs < 1 or self.pairs < 2 * self.batch:
            raise InputError("A confidence head needs at least two batches of pairs and one epoch")
        if self.height % 32 or self.width % 32 or min(self.height, self.width) < 32:
            raise InputError(f"Crops are multiples of 32 px, not {self.height}x{self.width}")


class Example(NamedTuple):
    """What a head learns from: the evidence of some pairs, and how far off their matches are.

    Attributes:
        evidence: of the first views.
        error: (B, H, W) px, absolute.
        known: (B, H, W) bool, where the truth is known; occluded pixels too.
    """

    evidence: Evidence
    error: Tensor
    known: Tensor

    def to(self, device: torch.device) -> Example:
        """The same on another device."""
        evidence = Evidence(*(value.to(device, non_blocking=True) for value in self.evidence))
        return Example(evidence, self.error.to(device), self.known.to(device))


@torch.no_grad()
def example_of(network: MatchNetwork, batch: Batch, agree: Agree) -> Example:
    """Match rendered pairs and see how far off the matches are."""
    images = (image.round().clamp(0, 255) for image in (batch.image0, batch.image1))
    matches = network(*images)
    last = matches.last_stage
    assert last is not None
    evidence = evidence_of(matches.field, last, agree(matches.field))
    error = (evidence.field - batch.field0).norm(dim=-1)
    return Example(evidence._replace(features=evidence.features.half()), error, batch.valid0 & error.isfinite())


def gather(
    network: MatchNetwork, source: Source, plan: ConfidenceTraining, agree: Agree, say: Say, cache: Path | None = None
) -> list[Example]:
    """The examples of all pairs, on the CPU, ``plan.batch`` pairs each.

    Args:
        network: frozen, on the device of the source.
        source: of pairs.
        plan: how many, how large.
        agree: left-right agreement, as inference computes it.
        say: takes a line of progress now and then.
        cache: a folder where examples stay, so that a training that was stopped goes on, or None.
    """
    examples = []
    for number in range(plan.pairs // plan.batch):
        file = None if cache is None else cache / f"example-{number:05d}.safetensors"
        if file is not None and file.is_file():
            examples.append(read_example(file))
        else:
            batch = source.batch(number * plan.batch, plan.batch, plan.height, plan.width)
            examples.append(example_of(network, batch, agree).to(torch.device("cpu")))
            if file is not None:
                write_example(examples[-1], file)
        if len(examples) % max(1, plan.pairs // plan.batch // 10) == 0:
            say(f"{len(examples) * plan.batch} of {plan.pairs} pairs matched")
    return examples


def write_example(example: Example, path: Path) -> None:
    """Keep an example, whole or not at all."""
    tensors = {**example.evidence._asdict(), "error": example.error, "known": example.known}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        save_file({name: value.contiguous() for name, value in tensors.items()}, temporary)


@reads("a cached training example", "delete it, it is made again")
def read_example(path: Path) -> Example:
    """What `write_example` wrote."""
    tensors = load_file(path)
    return Example(Evidence(*(tensors[name] for name in Evidence._fields)), tensors["error"], tensors["known"])


def loss_of(mixture: Mixture, example: Example, cap: float) -> Tensor:
    """Mean negative log-likelihood of the known pixels' errors."""
    likelihood = mixture.negative_log_likelihood(example.error.clamp(max=cap))
    known = example.known.to(likelihood.dtype)
    return (likelihood * known).sum() / known.sum().clamp(min=1)


def learning_rate(peak: float, done: int, total: int) -> float:
    """Up over 50 steps, and down to zero as half a cosine over all of them."""
    return peak * min(1.0, (done + 1) / 50) * 0.5 * (1 + math.cos(math.pi * done / total))


def train(examples: Sequence[Example], plan: ConfidenceTraining, device: torch.device, say: Say) -> ConfidenceHead:
    """A head for the network that the examples come from."""
    torch.manual_seed(plan.seed)
    head = ConfidenceHead(examples[0].evidence.features.shape[-1]).to(device)
    _measure_features(head, examples)
    optimizer = torch.optim.AdamW(head.parameters(), lr=plan.rate, betas=(0.9, 0.99), weight_decay=1e-4)
    order = torch.Generator().manual_seed(plan.seed)
    total, done = plan.epochs * len(examples), 0
    for epoch in range(plan.epochs):
        losses = []
        for index in torch.randperm(len(examples), generator=order).tolist():
            example = examples[index].to(device)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(plan.rate, done, total)
            loss = loss_of(head(example.evidence), example, plan.cap)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
            done += 1
        say(f"epoch {epoch + 1} of {plan.epochs}: negative log-likelihood {torch.stack(losses).mean():.4f}")
    return head.eval()


def _measure_features(head: ConfidenceHead, examples: Sequence[Example]) -> None:
    """Mean and deviation of every feature, so that the head begins with standardised ones."""
    some = examples[:: max(1, len(examples) // 32)]
    features = torch.cat([example.evidence.features.float().flatten(0, -2) for example in some])
    head.mean.copy_(features.mean(0))
    head.deviation.copy_(features.std(0).clamp(min=1e-4))
