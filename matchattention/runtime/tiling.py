"""Images that do not fit, cut into strips or halved, and their fields put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from matchattention.layers.tokens import as_image, as_tokens
from matchattention.models.network import coarse_field, enlarged, halved
from matchattention.runtime.memory import STRIP_OVERLAP, MemoryPlan

# (image0, image1, initial) -> field, shapes as in MatchNetwork.forward
Matcher = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class Strip(NamedTuple):
    """Rows `read` go through the network, rows `kept` of the image are taken from them."""

    read: slice
    kept: slice


def strips(height: int, rows: int, overlap: int = STRIP_OVERLAP) -> Iterator[Strip]:
    """Cut `height` rows into strips of about equal height, at most `rows`, each read with context around it."""
    count = -(-height // rows)
    edges = [round(index * height / count) for index in range(count + 1)]
    for top, bottom in zip(edges[:-1], edges[1:]):
        yield Strip(slice(max(0, top - overlap), min(height, bottom + overlap)), slice(top, bottom))


def match_by_plan(match: Matcher, plan: MemoryPlan, image0: Tensor, image1: Tensor, initial: Tensor | None) -> Tensor:
    """The full-resolution field (2B, H, W, 2) by way of `plan`.

    Args:
        match: the network.
        plan: how; halving and strips are never combined.
        image0: (B, 3, H, W) in [0, 255].
        image1: the other view.
        initial: (2B, H, W, 2) px to start from, or None.
    """
    height, width = image0.shape[-2:]
    if plan.halvings:
        small = None if initial is None else as_tokens(halved(as_image(initial)) / 2)
        rest = MemoryPlan(halvings=plan.halvings - 1)
        return enlarged(match_by_plan(match, rest, halved(image0), halved(image1), small), height, width)
    if plan.strip_rows is None:
        return match(image0, image1, initial)
    if initial is None:
        # A strip sees too little of the scene to find far matches; half the resolution of all of it does.
        coarser = MemoryPlan(strip_rows=plan.strip_rows) if height > 2 * plan.strip_rows else MemoryPlan()
        initial = coarse_field(lambda first, second: match_by_plan(match, coarser, first, second, None), image0, image1)
    field = torch.empty_like(initial)
    for read, kept in strips(height, plan.strip_rows):
        part = match(image0[..., read, :], image1[..., read, :], initial[:, read])
        field[:, kept] = part[:, kept.start - read.start : kept.stop - read.start]
    return field
