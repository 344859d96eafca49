"""Confidence of a prediction: by a head of its own where one belongs to the network, else by left-right agreement."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from matchattention.inference.consistency import judge_both
from matchattention.layers.confidence_head import ONE_SIGMA, ConfidenceHead, Evidence, LastStage, evidence_of
from matchattention.models.network import MatchNetwork
from matchattention.ops.kernels import TRITON_IS_INSTALLED
from matchattention.runtime.cpu.confidence import banded

AUTO = "auto"
AGREEMENT = "agreement"
RIGHT = 1.0  # px: `confidence` is the probability of being this close


class ConfidenceJudge:
    """What is computed from every field: occlusion and confidence, and how far off matches may be.

    Args:
        head: of the network, or None.
        device: where fields are.
        reason: one sentence that says why there is no head; empty where there is one.
    """

    def __init__(self, head: ConfidenceHead | None, device: torch.device, reason: str = "") -> None:
        self.head = None
        self._fused: Callable[[Evidence, float, float], tuple[Tensor, Tensor]] | None = None
        if head is not None:
            self.head = banded(head) if device.type == "cpu" else head.to(device)
        if head is not None and device.type == "cuda" and TRITON_IS_INSTALLED:
            from matchattention.runtime.fused.confidence import FusedHead

            self._fused = FusedHead(head)
        self.reason = reason

    def __call__(self, field: Tensor, last: LastStage | None) -> tuple[Tensor, ...]:
        """Judge the first views.

        Args:
            field: (2B, H, W, 2) px of both views.
            last: what the network's last stage left; None where a field was put together from parts.

        Returns:
            occlusion (B, H, W) bool and confidence (B, H, W) in [0, 1]; with a head also left-right agreement
            (B, H, W) in [0, 1] and the one-sigma error (B, H, W) px.
        """
        occlusion, agreement = judge_both(field)
        if self.head is None or last is None:
            return occlusion, agreement
        with torch.autocast(field.device.type, enabled=False):
            evidence = evidence_of(field, last, agreement)
            if self._fused is not None:
                confidence, error = self._fused(evidence, RIGHT, ONE_SIGMA)
            else:
                mixture = self.head(evidence)
                confidence, error = mixture.within(RIGHT), mixture.quantile(ONE_SIGMA)
            return occlusion, confidence, agreement, error


def choose_judge(
    model: MatchNetwork, device: torch.device, wanted: str | os.PathLike[str] | ConfidenceHead = AUTO
) -> ConfidenceJudge:
    """The judge of a network's fields.

    Args:
        model: with its weights as they were trained.
        device: where it runs.
        wanted: "auto", the shipped head that belongs to these weights, or left-right agreement where there is none;
            "agreement"; the file of a head; or a head.
    """
    from matchattention.models.confidence_file import load_head, shipped_head

    if isinstance(wanted, ConfidenceHead):
        return ConfidenceJudge(wanted, device)
    if wanted == AGREEMENT:
        return ConfidenceJudge(None, device, "Left-right agreement was asked for.")
    if wanted != AUTO:
        return ConfidenceJudge(load_head(Path(wanted), model), device)
    head = shipped_head(model)
    missing = "No confidence head belongs to these weights: train one with matchattention train-confidence."
    return ConfidenceJudge(head, device, "" if head is not None else missing)
