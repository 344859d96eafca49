"""Confidence of a prediction: by a head of its own where one belongs to the network, else by left-right agreement."""

from __future__ import annotations

import torch

from matchattention.inference.consistency import judge
from matchattention.layers.confidence_head import SCALE, Evidence
from matchattention.layers.tokens import split_views
from matchattention.models.network import Matches


def evidence_of(matches: Matches) -> Evidence:
    """What a head reads of a pass, of the first view of every pair."""
    assert matches.features is not None
    last = [step.position for step in matches.steps if step.scale == SCALE]
    first, second = split_views(matches.field)
    agreement = torch.stack([judge(*pair)[1] for pair in zip(first, second)])
    before, after = (split_views(position)[0] for position in (last[0], last[-1]))
    return Evidence(split_views(matches.features)[0], before, after, first, agreement)
