"""`matchattention predict --engine ray`: archives of pairs, results in Parquet shards."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from matchattention.errors import InputError


def add_archive_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``--engine ray``."""
    archive = parser.add_argument_group(
        "archives (--engine ray): also shards:URL and .parquet or .csv manifests as INPUT, addresses such as s3://…"
    )
    archive.add_argument("--workers", type=int, metavar="N", help="processes (one a GPU, or one a CPU core)")
    archive.add_argument("--pairs-per-shard", type=int, default=256, metavar="N", help="results in a file (256)")
    archive.add_argument("--batch", type=int, default=8, metavar="N", help="pairs of one size in one pass (8)")
    archive.add_argument(
        "--format", choices=("png16", "pfm"), default="png16", help="of the fields: 16-bit PNG in 1/256 px, or exact"
    )
    archive.add_argument("--ray-address", metavar="ADDRESS", help="of a running cluster; else this machine alone")


def run_archive(arguments: argparse.Namespace) -> None:
    """Predict an archive."""
    from matchattention.archive.engine import ArchiveOptions, predict_archive
    from matchattention.archive.manifest import absolute, read_manifest
    from matchattention.cli.progress import Progress
    from matchattention.models.checkpoint import load

    if arguments.output is None:
        raise InputError("Give --output DIR: the folder or address for the results.")
    if not 1 <= len(arguments.inputs) <= 2:
        raise InputError("Give shards:URL, a .parquet or .csv manifest, a folder, or LEFT and RIGHT folders or globs.")
    if arguments.workers is not None and arguments.workers < 1:
        raise InputError(f"--workers must be at least 1, not {arguments.workers}.")
    entries = read_manifest(arguments.inputs, arguments.side_by_side)
    model = arguments.model or ("rt" if arguments.task == "stereo" else "rt-flow")
    digest = hashlib.sha256()
    for name, value in sorted(load(model, task=arguments.task).state_dict().items()):
        digest.update(name.encode() + value.contiguous().numpy().tobytes())
    options = ArchiveOptions(
        output=absolute(arguments.output),
        model=absolute(model) if Path(model).is_file() else model,
        weights=digest.hexdigest(),
        task=arguments.task,
        device=arguments.device,
        precision=arguments.precision,
        kind=arguments.format,
        pairs_per_shard=arguments.pairs_per_shard,
        batch=arguments.batch,
        workers=arguments.workers,
        check=not arguments.no_check,
        address=arguments.ray_address,
        overwrite=arguments.overwrite,
    )
    progress = Progress(-(-len(entries) // max(options.pairs_per_shard, 1)), "shard")

    def step(pairs: int, bad: int) -> None:
        progress.step(f"{pairs} pairs", f"{bad} bad" if bad else "")

    try:
        summary = predict_archive(entries, options, step)
    finally:
        progress.close()
    print(
        f"{summary['predicted']} of {summary['pairs']} pairs in {summary['shards']} shards in {arguments.output}; "
        f"{summary['already_there']} were there, {summary['bad']} are bad (bad_pairs.csv)"
    )
