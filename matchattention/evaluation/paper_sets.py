"""The real sets of the paper's zero-shot tables, found below one folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from matchattention.errors import InputError


class PaperSet(NamedTuple):
    """A split of a dataset and where it lies."""

    dataset: str
    split: str
    root: Path


# dataset, names its folder goes by, {split: folder of that split inside}
_PLACES: tuple[tuple[str, tuple[str, ...], dict[str, str]], ...] = (
    ("middlebury", ("MiddEval3", "middlebury"), {f"training{size}": f"training{size}" for size in "FHQ"}),
    ("eth3d", ("eth3d", "ETH3D"), {"training": "two_view_training"}),
    ("kitti2015", ("kitti2015", "KITTI2015", "KITTI_2015", "data_scene_flow"), {"training": "training"}),
)


def find_paper_sets(root: Path) -> list[PaperSet]:
    """Every split of tables 4 and 5 that is there.

    Raises:
        InputError: none is.
    """
    found = []
    for dataset, names, splits in _PLACES:
        for name in names:
            here = [PaperSet(dataset, split, root / name) for split, inside in splits.items()]
            present = [place for place in here if (place.root / splits[place.split]).is_dir()]
            if present:
                found += present
                break
    if not found:
        expected = ", ".join(str(root / names[0] / next(iter(splits.values()))) for _, names, splits in _PLACES)
        raise InputError(f"Expected one of the folders {expected}")
    return found
