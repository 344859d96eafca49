"""`matchattention scale`: what a training or an archive takes on many GPUs, from rates of one."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from matchattention.cli.sizes import parse_size
from matchattention.errors import InputError

_EPILOG = """\
examples:
  matchattention scale training --model rt --pairs-per-second 335 --batch 16 --size 320x640 --pairs 6.4e6
  matchattention scale training --model xl --size 512x768 --rates benchmarks/results/training-limits-nvidia-h200.json
  matchattention scale archive --pairs-per-second 100 --read 1.2e6 --written 0.4e6 --price 3

The tables are plain arithmetic on what you give; docs/scaling.md says how to measure the rates.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.epilog = _EPILOG
    parser.add_argument("what", choices=("training", "archive"))
    parser.add_argument("--pairs-per-second", type=float, help="of one GPU, measured")
    parser.add_argument("--pairs", type=float, action="append", help="to train on (32e6), or in the archive (1e6, 1e9)")
    training = parser.add_argument_group("training")
    training.add_argument("--model", default="xl", help="a network of `matchattention models` (xl)")
    training.add_argument("--size", default="512x768", metavar="HxW", help="crop (512x768)")
    training.add_argument("--batch", type=int, default=4, help="pairs a step and GPU at that rate (4)")
    training.add_argument("--gpus", type=int, action="append", help="repeat for a table (1, 8, 64, 512)")
    training.add_argument("--efficiency", type=float, default=0.9, help="what of a GPU's rate remains among many (0.9)")
    training.add_argument("--rates", type=Path, metavar="FILE", help="training-limits-DEVICE.json instead of a rate")
    training.add_argument(
        "--checkpoint-activations", action="store_true", help="take the rate of recomputed activations"
    )
    archive = parser.add_argument_group("archive")
    archive.add_argument("--read", type=float, default=1.2e6, help="bytes of a pair's images")
    archive.add_argument("--written", type=float, default=0.4e6, help="bytes of a pair's results")
    archive.add_argument("--price", type=float, default=1.0, help="of a GPU hour")


def run(arguments: argparse.Namespace) -> None:
    """Print the table."""
    from matchattention.training import scaling

    _check_numbers(arguments)
    if arguments.what == "archive":
        rate = _measured(arguments.pairs_per_second)
        counts = arguments.pairs or [1e6, 1e9]
        print(scaling.archive_table(counts, rate, arguments.read, arguments.written, arguments.price))
        return
    from matchattention.models.registry import NETWORKS
    from matchattention.training.plan import footprint

    if arguments.model not in NETWORKS:
        raise InputError(f"Unknown network '{arguments.model}': choose one of {', '.join(NETWORKS)}")
    height, width = parse_size(arguments.size)
    if not 0 < arguments.efficiency <= 1:
        raise InputError(f"--efficiency lies in (0, 1], not {arguments.efficiency:g}")
    planned = footprint(NETWORKS[arguments.model].config, height, width)
    rate, batch = arguments.pairs_per_second, arguments.batch
    if rate is None and arguments.rates is not None:
        case = scaling.measured_case(
            arguments.rates, arguments.model, (height, width), arguments.checkpoint_activations
        )
        rate, batch = case["fastest"]["pairs_per_second"], case["fastest"]["batch"]
    rate = _measured(rate)
    pairs = (arguments.pairs or [32e6])[0]
    rows = [
        scaling.training_scale(planned.parameters, rate, batch, pairs, (height, width), gpus, arguments.efficiency)
        for gpus in arguments.gpus or (1, 8, 64, 512)
    ]
    memory = planned.memory(batch, arguments.checkpoint_activations) / 2**30
    state = planned.memory(0) / 2**30
    print(
        f"{arguments.model}, {height}x{width}, {pairs:g} pairs: {memory:.1f} GiB a GPU planned for a batch of {batch}, "
        f"of which {state:.1f} are weights, gradients, average and moments ({state / 8:.1f} with --shard over 8)"
    )
    print(scaling.training_table(rows))


def _check_numbers(arguments: argparse.Namespace) -> None:
    for name in ("pairs_per_second", "pairs", "batch", "gpus", "read", "written", "price"):
        given = getattr(arguments, name)
        may_be_zero = name in ("read", "written", "price")
        for value in given if isinstance(given, list) else [given]:
            if value is not None and not (math.isfinite(value) and (value > 0 or (may_be_zero and value == 0))):
                least = "zero or more" if may_be_zero else "above zero"
                raise InputError(f"--{name.replace('_', '-')} is a number {least}, not {value:g}.")


def _measured(rate: float | None) -> float:
    if rate is None:
        raise InputError("Give --pairs-per-second: what one GPU was measured to do.")
    return rate
