"""Several pairs of one size through a predictor's network in one pass."""

from __future__ import annotations

from collections.abc import Sequence

from matchattention.inference.images import Image
from matchattention.inference.prediction import Prediction
from matchattention.inference.predictor import Predictor


def match_together(predictor: Predictor, pairs: Sequence[tuple[Image, Image]]) -> list[Prediction]:
    """Predictions of (H, W, 3) uint8 pairs that all have one size, without any check."""
    return predictor.match_together(pairs)
