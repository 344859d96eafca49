"""What a set of flow pairs is like, in numbers: how far things move, which way, what they hide and uncover.

The same measures on rendered and on real pairs show where rendered ones are unlike the world. Only distributions
leave this module, never pixels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from matchattention.synth.stream import distributions
from matchattention.synth.stream.distributions import Measure, Summary, luma

EDGE = 1.0  # px of flow between neighbours
QUANTILES = (0.1, 0.5, 0.9, 0.99)

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


def measure(pair: FlowPair) -> dict[str, Tensor]:
    """Values of every measure that the pair allows: many per pixel-wise measure, one for the others."""
    height, width = pair.valid.shape
    length = 100 * pair.flow.norm(dim=-1) / width
    known = length[pair.valid]
    if known.numel() > 1 << 20:
        known = known[:: known.numel() >> 20]
    low, middle, high, highest = known.quantile(torch.tensor(QUANTILES))
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
    warped = F.grid_sample(luma(pair.image1)[None, None], grid, padding_mode="border", align_corners=True)[0, 0]
    change = (warped - luma(pair.image0))[visible]
    values |= {"mismatch": change.abs().median(), "brightening": change.mean()}
    return values


def summarise(name: str, pairs: Iterable[FlowPair]) -> Summary:
    """Measure every pair; the quantiles are `QUANTILES`."""
    return distributions.summarise(name, (measure(pair) for pair in pairs), MEASURES, QUANTILES)
