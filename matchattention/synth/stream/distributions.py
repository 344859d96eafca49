"""Measures of many pairs as quantiles and histograms: what statistics of stereo and of flow pairs share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BINS = 48
PER_PAIR = 4096  # values of a measure that one pair gives at most, so that large images do not rule


@dataclass(frozen=True)
class Measure:
    """One row of the comparison and one histogram.

    Attributes:
        title: what is measured.
        unit: of the values.
        low: left end of the histogram.
        high: right end.
        logarithmic: whether its bins grow.
    """

    title: str
    unit: str
    low: float
    high: float
    logarithmic: bool = False

    @property
    def edges(self) -> Tensor:
        """(BINS + 1,) edges of the histogram."""
        if self.logarithmic:
            return torch.logspace(math.log10(self.low), math.log10(self.high), BINS + 1)
        return torch.linspace(self.low, self.high, BINS + 1)


@dataclass
class Summary:
    """Distributions of a set of pairs.

    Attributes:
        name: of the set.
        pairs: how many were measured.
        quantiles: measure to its quantiles.
        histograms: measure to the shares of its bins, which sum to one.
    """

    name: str
    pairs: int
    quantiles: dict[str, tuple[float, ...]]
    histograms: dict[str, list[float]]


def luma(image: Tensor) -> Tensor:
    """(H, W) brightness of (3, H, W)."""
    return 0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]


def summarise(
    name: str, measured: Iterable[Mapping[str, Tensor]], measures: Mapping[str, Measure], quantiles: Sequence[float]
) -> Summary:
    """The distributions of measures whose values are given pair by pair; values that are not finite are left out."""
    collected: dict[str, list[Tensor]] = {}
    count = 0
    for pair in measured:
        count += 1
        for key, values in pair.items():
            flat = values.flatten().float()
            if flat.numel() > PER_PAIR:
                flat = flat[torch.linspace(0, flat.numel() - 1, PER_PAIR).long()]
            collected.setdefault(key, []).append(flat[flat.isfinite()])
    result = Summary(name, count, {}, {})
    for key, parts in collected.items():
        everything = torch.cat(parts)
        if not everything.numel():
            continue
        result.quantiles[key] = tuple(everything.quantile(torch.tensor(quantiles)).tolist())
        edges = measures[key].edges
        counts = torch.histogram(everything.clamp(float(edges[0]), float(edges[-1])), edges).hist
        result.histograms[key] = (counts / counts.sum()).tolist()
    return result
