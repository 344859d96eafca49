"""``matchattention submission``: write the files that a benchmark's server takes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from matchattention.cli.evaluate import (
    add_dataset_arguments,
    add_model_arguments,
    chosen_model,
    open_dataset,
)

_EPILOG = """\
examples:
  matchattention submission middlebury data/MiddEval3 --split testF --output upload --method MyStereo
  matchattention submission kitti2015 data/kitti2015 --split testing --output upload

Pack what is under --output; Sintel and Spring have a packer of their own.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.epilog = _EPILOG
    add_dataset_arguments(parser)
    add_model_arguments(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where the files go")
    parser.add_argument("--method", default="MatchAttention", help="name in file names (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    """Match and write."""
    from matchattention.evaluation.matchers import create_matcher
    from matchattention.evaluation.submission import write_submission

    dataset = open_dataset(arguments)
    model = chosen_model(arguments, dataset)
    matcher = create_matcher(
        model, dataset.kind, None, arguments.device, arguments.precision, arguments.label, arguments.engine
    )

    def show(number: int, name: str) -> None:
        print(f"[{number}/{len(dataset)}] {name}", file=sys.stderr)

    write_submission(dataset, matcher, arguments.output, arguments.method, show)
    print(f"wrote {len(dataset)} results to {arguments.output}")
