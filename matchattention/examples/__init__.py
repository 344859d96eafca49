"""Pairs that come with the package, ours to ship (see README.md beside this file): real stereo ones, a moving scene."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from matchattention.errors import InputError

_FOLDER = Path(__file__).parent
_MARKS = {"stereo": "camera.json", "flow": "frame1.png"}  # what a pair's folder holds


class Example(NamedTuple):
    """Files of one pair.

    Attributes:
        left: the left view, or the first frame.
        right: the right view, or the second frame.
        camera: the calibration, for `StereoCamera.from_file`; None for frames of one camera.
    """

    left: Path
    right: Path
    camera: Path | None


def list_examples(task: str = "stereo") -> list[str]:
    """Names of the bundled pairs for "stereo" or "flow"."""
    return sorted(path.parent.name for path in _FOLDER.glob(f"*/{_MARKS[task]}"))


def example(name: str | None = None, task: str = "stereo") -> Example:
    """The files of a bundled pair; of the first one without a name."""
    names = list_examples(task)
    name = names[0] if name is None else name
    if name not in names:
        raise InputError(f"There is no {task} example '{name}': choose {' or '.join(names)}.")
    folder = _FOLDER / name
    if task == "flow":
        return Example(folder / "frame1.png", folder / "frame2.png", None)
    return Example(folder / "left.png", folder / "right.png", folder / "camera.json")
