"""Every figure by name."""

from __future__ import annotations

import importlib
from types import ModuleType

# Each is a module of this package with measure(settings) and draw(data, path, settings).
FIGURES = {
    "self-positions": "figure 4: self position arrows, and where those of occluded tokens end",
    "cascade": "figure 5: latency from 6x6 windows and full channels to RT, with the operator's share",
    "operator-tokens": "table S3: the operator over tokens, beside global and neighbourhood attention",
    "size-scan": "table S4: RT over the size of the images",
    "accuracy-latency": "KITTI 2015 over milliseconds among the paper's points, and the ablation's rows",
    "error-over-pairs": "error over training pairs, from ablations of several budgets and logs of trainings",
}


def figure_module(name: str) -> ModuleType:
    """The module of a figure, imported when asked for."""
    return importlib.import_module(f"matchattention.ablation.figures.{name.replace('-', '_')}")
