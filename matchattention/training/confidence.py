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
            raise InputError("a confidence head needs at least two batches of pairs and one epoch")
        if self.height % 32 or self.width % 32 or min(self.height, self.width) < 32:
            raise InputError(f"crops are multiples of 32 px, not {self.height}x{self.width}")


class Lesson(NamedTuple):
    """What a head learns from: the evidence of some pairs, and how far off their matches are.

    Attributes:
        evidence: of the first views.
        error: (B, H, W) px, absolute.
        known: (B, H, W) bool, where the truth is known; occluded pixels too.
    """

    evidence: Evidence
    error: Tensor
    known: Tensor

    def to(self, device: torch.device) -> Lesson:
        """The same on another device."""
        evidence = Evidence(*(value.to(device, non_blocking=True) for value in self.evidence))
        return Lesson(evidence, self.error.to(device), self.known.to(device))


@torch.no_grad()
def lesson_of(network: MatchNetwork, batch: Batch, agree: Agree) -> Lesson:
    """Match rendered pairs and see how far off the matches are."""
    images = (image.round().clamp(0, 255) for image in (batch.image0, batch.image1))
    matches = network(*images)
    last = matches.last_stage
    assert last is not None
    evidence = evidence_of(matches.field, last, agree(matches.field))
    error = (evidence.field - batch.field0).norm(dim=-1)
    return Lesson(evidence._replace(features=evidence.features.half()), error, batch.valid0 & error.isfinite())


def gather(
    network: MatchNetwork, source: Source, plan: ConfidenceTraining, agree: Agree, say: Say, cache: Path | None = None
) -> list[Lesson]:
    """The lessons of all pairs, on the CPU, ``plan.batch`` pairs each.

    Args:
        network: frozen, on the device of the source.
        source: of pairs.
        plan: how many, how large.
        agree: left-right agreement, as inference computes it.
        say: takes a line of progress now and then.
        cache: a folder where lessons stay, so that a training that was stopped goes on, or None.
    """
    lessons = []
    for number in range(plan.pairs // plan.batch):
        file = None if cache is None else cache / f"lesson-{number:05d}.safetensors"
        if file is not None and file.is_file():
            lessons.append(read_lesson(file))
        else:
            batch = source.batch(number * plan.batch, plan.batch, plan.height, plan.width)
            lessons.append(lesson_of(network, batch, agree).to(torch.device("cpu")))
            if file is not None:
                write_lesson(lessons[-1], file)
        if len(lessons) % max(1, plan.pairs // plan.batch // 10) == 0:
            say(f"{len(lessons) * plan.batch} of {plan.pairs} pairs matched")
    return lessons


def write_lesson(lesson: Lesson, path: Path) -> None:
    """Keep a lesson, whole or not at all."""
    tensors = {**lesson.evidence._asdict(), "error": lesson.error, "known": lesson.known}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        save_file({name: value.contiguous() for name, value in tensors.items()}, temporary)


@reads("a cached lesson", "delete it, it is made again")
def read_lesson(path: Path) -> Lesson:
    """What `write_lesson` wrote."""
    tensors = load_file(path)
    return Lesson(Evidence(*(tensors[name] for name in Evidence._fields)), tensors["error"], tensors["known"])


def loss_of(mixture: Mixture, lesson: Lesson, cap: float) -> Tensor:
    """Mean negative log-likelihood of the known pixels' errors."""
    likelihood = mixture.negative_log_likelihood(lesson.error.clamp(max=cap))
    known = lesson.known.to(likelihood.dtype)
    return (likelihood * known).sum() / known.sum().clamp(min=1)


def train(lessons: Sequence[Lesson], plan: ConfidenceTraining, device: torch.device, say: Say) -> ConfidenceHead:
    """A head for the network that the lessons come from."""
    torch.manual_seed(plan.seed)
    head = ConfidenceHead(lessons[0].evidence.features.shape[-1]).to(device)
    _measure_features(head, lessons)
    optimizer = torch.optim.AdamW(head.parameters(), lr=plan.rate, betas=(0.9, 0.99), weight_decay=1e-4)
    order = torch.Generator().manual_seed(plan.seed)
    total, done = plan.epochs * len(lessons), 0
    for epoch in range(plan.epochs):
        losses = []
        for index in torch.randperm(len(lessons), generator=order).tolist():
            lesson = lessons[index].to(device)
            for group in optimizer.param_groups:
                group["lr"] = plan.rate * min(1.0, (done + 1) / 50) * 0.5 * (1 + math.cos(math.pi * done / total))
            loss = loss_of(head(lesson.evidence), lesson, plan.cap)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
            done += 1
        say(f"epoch {epoch + 1} of {plan.epochs}: negative log-likelihood {torch.stack(losses).mean():.4f}")
    return head.eval()


def _measure_features(head: ConfidenceHead, lessons: Sequence[Lesson]) -> None:
    """Mean and deviation of every feature, so that the head begins with standardised ones."""
    some = lessons[:: max(1, len(lessons) // 32)]
    features = torch.cat([lesson.evidence.features.float().flatten(0, -2) for lesson in some])
    head.mean.copy_(features.mean(0))
    head.deviation.copy_(features.std(0).clamp(min=1e-4))
