"""What a figure is measured with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Settings:
    """Options of `matchattention figure`; None leaves the figure's own choice.

    Attributes:
        device: Where.
        say: Takes lines of progress.
        keep: Takes the results so far, where a figure has parts.
        model: Network of the figures that show one.
        size: Height and width, px.
        count: Pairs, or the largest side of a sweep.
        scenes: The renderer's preset.
        seconds: Measuring time of each case.
        pool_folder: Keeps rendered pairs.
        files: Results that the figure is made of, for those that measure nothing themselves.
    """

    device: torch.device
    say: Callable[[str], None] = print
    keep: Callable[[dict[str, Any]], object] = lambda results: None
    model: str = "rt"
    size: tuple[int, int] | None = None
    count: int | None = None
    scenes: str | None = None
    seconds: float = 0.5
    pool_folder: Path | None = None
    files: tuple[Path, ...] = ()
