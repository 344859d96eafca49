"""The measure of every row: held-out rendered pairs of each kind of scene, visible and occluded pixels apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from matchattention.ablation.pool import PairPool, render_pool
from matchattention.synth.world.config import SceneConfig
from matchattention.training.validation import METRICS, errors

SEED = 1_000_003  # of no training
MASKS = ("all", "visible", "occluded")
PAIRS_AT_ONCE = 8
# Fewer pixels than that do not make a percentage.
LEAST_PIXELS = 50


class Measured(NamedTuple):
    """Errors of one network.

    Attributes:
        means: "kind/mask/metric" to the mean over pairs; the kind "rendered" is the mean of all kinds.
        by_pair: "mask/bad1" to the figure of every pair, kind after kind; None where a mask has too few pixels.
    """

    means: dict[str, float]
    by_pair: dict[str, list[float | None]]


class HeldOut:
    """Pairs that no training sees, by the layout of their scene.

    Args:
        scenes: The baseline's; each of its layouts gives as many pairs.
        size: Height and width, px.
        pairs: Of each kind.
        device: Where.
        folder: Where pools are kept; see `render_pool`.
    """

    def __init__(
        self, scenes: SceneConfig, size: tuple[int, int], pairs: int, device: torch.device, folder: Path | None = None
    ) -> None:
        self.kinds: dict[str, PairPool] = {
            layout: render_pool(replace(scenes, layouts={layout: 1.0}), size, pairs, SEED, device, folder)
            for layout in scenes.layouts
        }

    @torch.no_grad()
    def measure(self, network: nn.Module, mixed_precision: bool) -> Measured:
        """Errors of both views of every pair, averaged over the views."""
        means: dict[str, float] = {}
        by_pair: dict[str, list[float | None]] = {f"{mask}/bad1": [] for mask in MASKS}
        for kind, pool in self.kinds.items():
            found = _measure(network, pool, mixed_precision)
            means |= {f"{kind}/{name}": _mean(values) for name, values in found.items()}
            for name, values in by_pair.items():
                values += [None if v != v else round(v, 3) for v in found[name].tolist()]
        for name in (f"{mask}/{metric}" for mask in MASKS for metric in METRICS):
            kinds = torch.tensor([means[f"{kind}/{name}"] for kind in self.kinds])
            means[f"rendered/{name}"] = _mean(kinds)
        return Measured(means, by_pair)


def _mean(values: Tensor) -> float:
    return float(values[~values.isnan()].mean())


def _measure(network: nn.Module, pool: PairPool, mixed_precision: bool) -> Mapping[str, Tensor]:
    """By "mask/metric" the mean of both views of every pair, (N,); NaN where neither view has enough pixels."""
    found: dict[str, list[Tensor]] = {}
    for batch in pool.batches(PAIRS_AT_ONCE):
        with torch.autocast(batch.image0.device.type, torch.bfloat16, enabled=mixed_precision):
            fields = network(batch.image0, batch.image1).field.float()
        truth = torch.cat((batch.field0, batch.field1))
        known = torch.cat((batch.valid0, batch.valid1))
        assert batch.occluded0 is not None
        assert batch.occluded1 is not None
        occluded = torch.cat((batch.occluded0, batch.occluded1))
        masks = {"all": known, "visible": known & ~occluded, "occluded": known & occluded}
        count = batch.image0.shape[0]
        for mask, chosen in masks.items():
            views = [errors(*view) for view in zip(fields, truth, chosen)]
            enough = chosen.sum((1, 2)) >= LEAST_PIXELS
            for metric in METRICS:
                values = torch.stack([view[metric] for view in views])
                values = torch.where(enough, values, torch.full_like(values, torch.nan))
                found.setdefault(f"{mask}/{metric}", []).append(values.view(2, count).nanmean(0))
    return {name: torch.cat(values).cpu() for name, values in found.items()}
