"""Recipes by name: what `matchattention train PRESET` knows.

To add one, put it into the table `PRESETS` of a module here that fits, or of a new module listed in `_MODULES`.
"""

from __future__ import annotations

from matchattention.errors import InputError
from matchattention.training.presets import fine_tuning, paper, rendered
from matchattention.training.presets.rendered import TINY
from matchattention.training.recipe import Preset, SourceConfig, Stage

_MODULES = (rendered, fine_tuning, paper)

PRESETS: dict[str, Preset] = {}
for _module in _MODULES:
    for _name, _preset in _module.PRESETS.items():
        if _name in PRESETS:
            raise RuntimeError(f"two presets are called {_name}")
        PRESETS[_name] = _preset

__all__ = ["PRESETS", "TINY", "Preset", "SourceConfig", "Stage", "find_preset"]


def find_preset(name: str) -> Preset:
    """The preset of that name.

    Raises:
        InputError: There is none; the text names those there are.
    """
    if name not in PRESETS:
        raise InputError(f"Unknown preset '{name}': choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
