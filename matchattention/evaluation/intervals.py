"""How far a mean over few scenes can be trusted: bootstrap intervals.

The scenes are drawn again with replacement, as often as there are scenes, two thousand times; the middle 95 % of the
means obtained are the interval. It tells how much the figure depends on which scenes happen to be in the set. It does
not know scenes of another kind: twenty easy pairs give a narrow interval around an easy mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.evaluation.averages import NOT_POOLABLE, Metrics

SAMPLES = 2000
LEVEL = 0.95
_SEED = 0
Intervals = dict[str, dict[str, tuple[float, float]]]


def bootstrap(scenes: Sequence[Metrics], *, pooled: bool = False) -> Intervals:
    """95 % interval of each metric's mean over scenes, or over all pixels.

    Args:
        scenes: ``{mask: {metric: value}}`` of each.
        pooled: weigh each scene by its pixels, as KITTI's server does; else every scene counts the same.

    Returns:
        ``{mask: {metric: (low, high)}}``; masks that fewer than two scenes have are left out.
    """
    intervals: Intervals = {}
    for mask in dict.fromkeys(mask for scene in scenes for mask in scene):
        present = [scene[mask] for scene in scenes if mask in scene]
        if len(present) < 2:
            continue
        pixels = np.array([values["pixels"] for values in present])
        metrics = [name for name in present[0] if name != "pixels" and not (pooled and name in NOT_POOLABLE)]
        table = np.array([[values[name] for name in metrics] for values in present])  # (scenes, metrics)
        weights = np.where(np.isnan(table), 0, pixels[:, None] if pooled else 1.0)
        squared = np.array([pooled and name == "rms" for name in metrics])
        values = np.where(squared, np.nan_to_num(table) ** 2, np.nan_to_num(table))
        means = _resampled(values, weights)
        means = np.where(squared, np.sqrt(np.maximum(means, 0)), means)
        outside = 50 * (1 - LEVEL)
        intervals[mask] = {}
        for column, name in enumerate(metrics):
            if weights[:, column].any():
                low, high = np.nanpercentile(means[:, column], (outside, 100 - outside))
                intervals[mask][name] = (float(low), float(high))
    return intervals


def _resampled(values: NDArray[Any], weights: NDArray[Any]) -> NDArray[np.float64]:
    """(SAMPLES, metrics) weighted means of rows drawn with replacement; NaN where only empty ones were drawn."""
    count = len(values)
    drawn = np.random.default_rng(_SEED).multinomial(count, np.full(count, 1 / count), SAMPLES).astype(np.float64)
    total = drawn @ weights
    with np.errstate(invalid="ignore", divide="ignore"):
        return (drawn @ (values * weights)) / total
