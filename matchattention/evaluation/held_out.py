"""How well a confidence head does on rendered pairs that it has not seen, for its card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from matchattention.evaluation.calibration import coverage, joined, reliability, sparsification
from matchattention.layers.confidence_head import ONE_SIGMA, ConfidenceHead
from matchattention.training.confidence import ConfidenceTraining, Example, loss_of


@torch.no_grad()
def judge_head(head: ConfidenceHead, examples: Sequence[Example], plan: ConfidenceTraining) -> dict[str, Any]:
    """The figures of a head.

    Returns:
        ``nll``; ``ece`` of "within 1 px"; ``coverage`` per cent within one, two and three sigmas; ``ause`` by bad 1
        of the head and of left-right agreement alone (``ause_agreement``), mean over pairs; ``pairs``.
    """
    device = head.mean.device
    losses, diagrams, ranks, plain, errors, sigmas = [], [], [], [], [], []
    for example in examples:
        there = example.to(device)
        mixture = head(there.evidence)
        losses.append(float(loss_of(mixture, there, plan.cap)))
        confidence, sigma = mixture.within(1.0).cpu(), mixture.quantile(ONE_SIGMA).cpu()
        for index, known in enumerate(example.known):
            error = example.error[index][known].numpy()
            claimed = confidence[index][known].numpy()
            diagrams.append(reliability(error <= 1, claimed))
            ranks.append(sparsification(error > 1, claimed).ause)
            plain.append(sparsification(error > 1, example.evidence.agreement[index][known].numpy()).ause)
            errors.append(error)
            sigmas.append(sigma[index][known].numpy())
    return {
        "pairs": len(diagrams),
        "nll": sum(losses) / len(losses),
        "ece": joined(diagrams).error,
        "coverage": coverage(np.concatenate(errors), np.concatenate(sigmas)),
        "ause": float(np.nanmean(ranks)),
        "ause_agreement": float(np.nanmean(plain)),
        "plan": asdict(plan),
    }
