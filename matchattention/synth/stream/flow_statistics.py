"""What a set of flow pairs is like, in numbers: how far things move, which way, what they hide and uncover.

The same measures on rendered and on real pairs show where rendered ones are unlike the world. Only distributions
leave this module, never pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from matchattention.synth.stream.statistics import Measure

EDGE = 1.0  # px of flow between neighbours
BINS = 48
PER_PAIR = 4096  # values of a measure that one pair gives at most

MEASURES = {
    "motion": Measure("motion", "% of the width", 1e-2, 60.0, True),
    "median": Measure("median motion of a pair", "% of the width", 1e-2, 60.0, True),
    "fastest": Measure("fastest motion of a pair (99 %)", "% of the width", 1e-1, 60.0, True),
    "spread": Measure("spread of motion within a pair, 90 % to 10 %", "% of the width", 1e-2, 60.0, True),
    "direction": Measure("direction, 0 is right, 90 is down", "degrees", -180.0, 180.0),
    "slope": Measure("change of motion between neighbours", "px", 1e-3, 30.0, True),
    "edges": Measure("motion edges", "share of pixels", 1e-3, 0.3, True),
    "hidden": Measure("hidden or out of the frame", "share of pixels", 1e-3, 0.6, True),
    "gone": Measure("out of the frame", "share of pixels", 1e-3, 0.6, True),
    "mismatch": Measure("difference of matched pixels (median)", "grey levels", 0.1, 60.0, True),
    "brightening": Measure("change of brightness of matched pixels (mean)", "grey levels", -20.0, 20.0),
}


class FlowPair(NamedTuple):
    """One pair to be measured.

    Attributes:
        image0: (3, H, W) float in [0, 255].
        image1: (3, H, W) float in [0, 255].
        flow: (H, W, 2) px.
        valid: (H, W) bool.
        occluded: (H, W) bool, or None where nobody knows.
    """

    image0: Tensor
    image1: Tensor
    flow: Tensor
    valid: Tensor
    occluded: Tensor | None = None


def _luma(image: Tensor) -> Tensor:
    return 0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]


def measure(pair: FlowPair) -> dict[str, Tensor]:
    """Values of every measure that the pair allows: many per pixel-wise measure, one for the others."""
    height, width = pair.valid.shape
    length = 100 * pair.flow.norm(dim=-1) / width
    known = length[pair.valid]
    if known.numel() > 1 << 20:
        known = known[:: known.numel() >> 20]
    low, middle, high, highest = known.quantile(torch.tensor([0.1, 0.5, 0.9, 0.99]))
    both = pair.valid[:, 1:] & pair.valid[:, :-1]
    slope = pair.flow.diff(dim=1).norm(dim=-1)[both]
    x = torch.arange(width) + pair.flow[..., 0]
    y = torch.arange(height)[:, None] + pair.flow[..., 1]
    outside = (x < -0.5) | (x > width - 0.5) | (y < -0.5) | (y > height - 0.5)
    moving = pair.valid & (length > 0.05)
    angle = torch.rad2deg(torch.atan2(pair.flow[..., 1], pair.flow[..., 0]))
    values = {
        "motion": known,
        "median": middle,
        "fastest": highest,
        "spread": high - low,
        "direction": angle[moving],
        "slope": slope,
        "edges": (slope > EDGE).float().mean(),
        "gone": outside[pair.valid].float().mean(),
    }
    visible = pair.valid & ~outside
    if pair.occluded is not None:
        values["hidden"] = pair.occluded[pair.valid].float().mean()
        visible = visible & ~pair.occluded
    grid = torch.stack((x * 2 / (width - 1) - 1, y * 2 / (height - 1) - 1), -1)[None]
    warped = F.grid_sample(_luma(pair.image1)[None, None], grid, padding_mode="border", align_corners=True)[0, 0]
    change = (warped - _luma(pair.image0))[visible]
    values |= {"mismatch": change.abs().median(), "brightening": change.mean()}
    return values


@dataclass
class Summary:
    """Distributions of a set of pairs.

    Attributes:
        name: of the set.
        pairs: how many were measured.
        quantiles: measure to its 10, 50, 90 and 99 % quantile.
        histograms: measure to the shares of its bins, which sum to one.
    """

    name: str
    pairs: int
    quantiles: dict[str, tuple[float, ...]]
    histograms: dict[str, list[float]]


def bin_edges(name: str) -> Tensor:
    """(BINS + 1,) edges of a measure's histogram."""
    item = MEASURES[name]
    if item.logarithmic:
        return torch.logspace(math.log10(item.low), math.log10(item.high), BINS + 1)
    return torch.linspace(item.low, item.high, BINS + 1)


def summarise(name: str, pairs: Iterable[FlowPair]) -> Summary:
    """Measure every pair; large images give no more values than small ones."""
    collected: dict[str, list[Tensor]] = {}
    count = 0
    for pair in pairs:
        count += 1
        for key, values in measure(pair).items():
            flat = values.flatten().float()
            if flat.numel() > PER_PAIR:
                flat = flat[torch.linspace(0, flat.numel() - 1, PER_PAIR).long()]
            collected.setdefault(key, []).append(flat[flat.isfinite()])
    quantiles, histograms = {}, {}
    for key, parts in collected.items():
        everything = torch.cat(parts)
        if not everything.numel():
            continue
        quantiles[key] = tuple(everything.quantile(torch.tensor([0.1, 0.5, 0.9, 0.99])).tolist())
        edges = bin_edges(key)
        counts = torch.histogram(everything.clamp(float(edges[0]), float(edges[-1])), edges).hist
        histograms[key] = (counts / counts.sum()).tolist()
    return Summary(name, count, quantiles, histograms)
