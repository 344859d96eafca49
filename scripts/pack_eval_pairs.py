"""Pack real pairs into one small file, to watch a training on a machine without image libraries.

    python scripts/pack_eval_pairs.py ../shared/data --output local/eval_pairs.bin --megabytes 13

The root holds MiddEval3/trainingQ and kitti2015/training in their official layouts. Whole pairs are taken
in turn from both until the size is reached; nothing is resized. For measuring only, never for training;
the file stays in the ignored folder local/.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from matchattention.data import datasets
from matchattention.training.eval_pairs import RealPair, write_pairs


def _pairs(name: str, dataset: str, root: Path, split: str) -> Iterator[RealPair]:
    for sample in datasets.open(dataset, root, split):
        if sample.disparity is None:
            continue
        visible = sample.non_occluded
        if visible is None:
            visible = np.ones(sample.disparity.shape, bool)
        yield RealPair(name, sample.name, sample.left, sample.right, sample.disparity, visible)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="folder with MiddEval3/ and kitti2015/")
    parser.add_argument("--output", type=Path, default=Path("local/eval_pairs.bin"))
    parser.add_argument("--megabytes", type=float, default=13.0, help="largest size of the file, MB")
    arguments = parser.parse_args()
    middlebury = list(_pairs("middlebury", "middlebury", arguments.root / "MiddEval3", "trainingQ"))
    kitti = list(_pairs("kitti", "kitti2015", arguments.root / "kitti2015", "training"))
    # Two Middlebury scenes for each street: they differ more from one another.
    in_turn = itertools.zip_longest(middlebury[::2], middlebury[1::2], kitti[::2], fillvalue=None)
    chosen = [pair for group in in_turn for pair in group if pair is not None]
    packed = write_pairs(arguments.output, chosen, int(arguments.megabytes * 1e6))
    print(f"{len(packed)} pairs, {arguments.output.stat().st_size / 1e6:.1f} MB: {', '.join(packed)}")


if __name__ == "__main__":
    main()
