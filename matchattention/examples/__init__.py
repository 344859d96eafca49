"""Real stereo pairs that come with the package, ours to ship (see the LICENSE beside this file)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from matchattention.errors import InputError

_FOLDER = Path(__file__).parent


class Example(NamedTuple):
    """Files of one pair.

    Attributes:
        left: the left view.
        right: the right view.
        camera: the calibration, for `StereoCamera.from_file`.
    """

    left: Path
    right: Path
    camera: Path


def list_examples() -> list[str]:
    """Names of the bundled pairs."""
    return sorted(path.parent.name for path in _FOLDER.glob("*/camera.json"))


def example(name: str = "donkey") -> Example:
    """The files of a bundled pair."""
    if name not in list_examples():
        raise InputError(f"There is no example '{name}': choose one of {', '.join(list_examples())}.")
    folder = _FOLDER / name
    return Example(folder / "left.png", folder / "right.png", folder / "camera.json")
