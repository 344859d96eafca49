"""How the files of a folder of your own are named: options that `evaluate`, `submission`, `shard` and `train` share."""

from __future__ import annotations

import argparse
from typing import Any

# Fields of `FolderPatterns` and what their options say.
PATTERNS = {
    "left": "left images, or first frames (*/im0.png; flow: */frame1.png)",
    "right": "right images, or second frames (*/im1.png; flow: */frame2.png)",
    "truth": "disparity or flow (*/disp0GT.*; flow: */flow.*)",
    "visible": "images with 255 where both views see the pixel, or ground truth of just those (*/mask0nocc.png)",
    "occluded": "images that are not zero where the other view does not see the pixel",
    "invalid": "images that are not zero where the ground truth is not to be used",
    "png_scale": "what 16-bit PNG disparities are divided by (256)",
}


def add_pattern_options(parser: argparse.ArgumentParser, where: str) -> None:
    """Declare one option a pattern, in a group of their own; `where` says whose files they name."""
    group = parser.add_argument_group(f"file names of {where}, * stands for any text")
    for name, meaning in PATTERNS.items():
        if name == "png_scale":
            group.add_argument("--png-scale", type=float, metavar="SCALE", help=meaning)
        else:
            group.add_argument(f"--{name}", metavar="PATTERN", help=meaning)


def given_patterns(arguments: argparse.Namespace) -> dict[str, Any]:
    """The patterns that the command line names."""
    return {name: value for name in PATTERNS if (value := getattr(arguments, name)) is not None}
