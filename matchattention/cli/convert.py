"""`matchattention convert`: released .pth files to our checkpoints."""

from __future__ import annotations

import argparse
from pathlib import Path

from matchattention.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", type=Path, metavar="IN.pth", help="a checkpoint released by the paper's authors")
    parser.add_argument("output", type=Path, metavar="OUT.safetensors", help="where to write ours")
    parser.add_argument(
        "--task", choices=("stereo", "flow"), default="stereo", help="MatchStereo-* or MatchFlow-* (default: stereo)"
    )


def run(arguments: argparse.Namespace) -> None:
    from matchattention.models import checkpoint
    from matchattention.models.released import read_released

    if arguments.output.suffix != ".safetensors":
        raise InputError(f"The output must end in .safetensors; got {arguments.output}.")
    config, weights = read_released(arguments.input, arguments.task)
    network = checkpoint.build(config, weights, str(arguments.input))
    origin = f"converted from {arguments.input.name}, released by the paper's authors under their licence"
    checkpoint.save(network, arguments.output, config, {"provenance": origin})
    print(f"{arguments.output}: {config.task} network of widths {config.channels}")
