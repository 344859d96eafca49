"""`matchattention shard`: a dataset as WebDataset shards, for training from disks that cannot hold it whole."""

from __future__ import annotations

import argparse
from pathlib import Path

from matchattention.cli.evaluate import add_dataset_arguments, open_dataset
from matchattention.errors import InputError

_EPILOG = """\
examples:
  matchattention shard sceneflow /data/sceneflow --split train-final --output /shards/sceneflow
  matchattention shard folder my_pairs --left '*/left.png' --right '*/right.png' --truth '*/depth.pfm' --output shards
  matchattention train rt-synth --data shards:/shards/sceneflow
  matchattention train paper-scene-flow --data sceneflow/shards:s3://bucket/sceneflow     any address that fsspec knows

Image files go in as they are, ground truth as float32 arrays exactly as read. Started again, the command keeps the
shards that are whole; shards.json comes last and says that all are there. Copy the folder to any file or object store.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.epilog = _EPILOG
    add_dataset_arguments(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the shards")
    parser.add_argument("--pairs-per-shard", type=int, default=256, metavar="N", help="pairs in a file (256)")
    parser.add_argument(
        "--images",
        choices=("png", "npy.xz"),
        default="png",
        help="png: the files as they are; npy.xz: readable without image libraries, smaller and slower",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N samples")


def run(arguments: argparse.Namespace) -> None:
    """Write the shards."""
    from matchattention.cli.progress import Progress
    from matchattention.data.shard_writer import write_shards

    dataset = open_dataset(arguments)
    if arguments.limit is not None:
        if arguments.limit < 1:
            raise InputError("--limit must be at least 1")
        dataset = dataset[: arguments.limit]
    progress = Progress(len(dataset), "pair")
    try:
        paths = write_shards(
            dataset,
            arguments.output,
            per_shard=arguments.pairs_per_shard,
            encoding=arguments.images,
            about={"dataset": dataset.name, "split": dataset.split, "kind": dataset.kind},
            progress=progress.step,
        )
    finally:
        progress.close()
    size = sum(path.stat().st_size for path in paths)
    print(f"{len(dataset)} pairs in {len(paths)} shards, {size / 1e6:.1f} MB: {arguments.output}")
