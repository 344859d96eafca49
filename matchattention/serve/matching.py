"""Several pairs of one size through a predictor's network in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from matchattention.inference.consistency import judge
from matchattention.inference.images import Image
from matchattention.inference.prediction import Prediction
from matchattention.inference.predictor import Predictor


def match_together(predictor: Predictor, pairs: Sequence[tuple[Image, Image]]) -> list[Prediction]:
    """Predictions of (H, W, 3) uint8 pairs that all have one size, without any check."""
    if len(pairs) == 1:  # with the predictor's guard against images that do not fit into memory
        return [predictor.match(*pairs[0])]
    views = [
        torch.from_numpy(np.stack([pair[view] for pair in pairs])).to(predictor.device).permute(0, 3, 1, 2).float()
        for view in (0, 1)
    ]
    with torch.inference_mode():
        fields = predictor._engine.field(*views)
        both_ways = [(fields[index], fields[index + len(pairs)]) for index in range(len(pairs))]
        return [_prediction(predictor.task, *fields) for fields in both_ways]


def _prediction(task: str, first: torch.Tensor, second: torch.Tensor) -> Prediction:
    occlusion, confidence = judge(first, second)
    return Prediction(
        task=task,
        relative_position=first.cpu().numpy().copy(),  # not a view that keeps the whole batch
        relative_position_right=second.cpu().numpy().copy(),
        occlusion=occlusion.cpu().numpy(),
        confidence=confidence.cpu().numpy(),
    )
