"""From scenes to one figure, the three ways benchmarks do it.

Middlebury and ETH3D average scenes (Middlebury's server with weights), zero-shot papers average scenes or
images plainly on every set, KITTI's server pools all pixels of all images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

Metrics = Mapping[str, Mapping[str, float]]  # {mask: {metric: value}}
Averages = dict[str, dict[str, float]]

NOT_POOLABLE = {"a50", "a90", "a95", "a99"}  # a quantile of all pixels does not follow from scenes' quantiles


def mean_over_scenes(scenes: Sequence[Metrics], weights: Sequence[float] | None = None) -> Averages:
    """Mean of each metric over the scenes that have it; ``pixels`` is their sum."""
    weights = [1.0] * len(scenes) if weights is None else weights
    return _combined(scenes, weights, lambda _, values: _weighted_mean([value[:2] for value in values]))


def pooled_over_pixels(scenes: Sequence[Metrics]) -> Averages:
    """Each metric as if all scenes were one image."""

    def combine(metric: str, values: list[tuple[float, float, float]]) -> float:
        if metric in NOT_POOLABLE:
            return float("nan")
        if metric == "rms":
            return math.sqrt(_weighted_mean([(value**2, pixels) for value, _, pixels in values]))
        return _weighted_mean([(value, pixels) for value, _, pixels in values])

    pooled = _combined(scenes, [1.0] * len(scenes), combine)
    return {mask: {k: v for k, v in values.items() if not math.isnan(v)} for mask, values in pooled.items()}


def _combined(
    scenes: Sequence[Metrics],
    weights: Sequence[float],
    combine: Callable[[str, list[tuple[float, float, float]]], float],
) -> Averages:
    averages: Averages = {}
    for mask in dict.fromkeys(mask for scene in scenes for mask in scene):
        present = [(scene[mask], weight) for scene, weight in zip(scenes, weights) if mask in scene]
        averages[mask] = {}
        for metric in present[0][0]:
            values = [
                (values[metric], weight, values["pixels"])
                for values, weight in present
                if not math.isnan(values[metric])
            ]
            if metric == "pixels":
                averages[mask][metric] = sum(value for value, _, _ in values)
            else:
                averages[mask][metric] = combine(metric, values) if values else float("nan")
    return averages


def _weighted_mean(values: list[tuple[float, float]]) -> float:
    total = sum(weight for _, weight in values)
    return sum(value * weight for value, weight in values) / total if total else float("nan")
