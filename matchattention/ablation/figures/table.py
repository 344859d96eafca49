"""Every figure by name."""

from __future__ import annotations

import importlib
from types import ModuleType

# Each is a module of this package with NAME, TITLE, measure(settings) and draw(data, path, settings).
FIGURES = {
    "self-positions": "figure 4: self position arrows, and where those of occluded tokens end",
}


def figure_module(name: str) -> ModuleType:
    """The module of a figure, imported when asked for."""
    return importlib.import_module(f"matchattention.ablation.figures.{name.replace('-', '_')}")
