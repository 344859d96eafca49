"""`matchattention bench`: how fast the operator, a network, a predictor or a training step is here, as JSON."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matchattention.cli.sizes import parse_size

if TYPE_CHECKING:
    import torch

Keep = Callable[[dict[str, Any]], object]

EPILOG = """\
examples:
  matchattention bench operator                     the paper's table S3, beside the floor of its bytes
  matchattention bench network --model rt           512x1024, every mode, fp16 against fp32, 2K to 8K
  matchattention bench predictor                    what users get: arrays, tensors, files, batches, streams, first call
  matchattention bench renderer                     pairs a second of the scene renderer
  matchattention bench training --batch 8           one step, plain and captured
  matchattention bench all --minutes 3              the first three and `training` within a time limit

Results go to benchmarks/results/NAME-DEVICE.json with date, commit, hardware and versions, after every part: what was
measured before a run is stopped is there.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("what", choices=("operator", "network", "predictor", "training", "renderer", "all"))
    parser.add_argument("--model", default="rt", help="a registered network (default: rt)")
    parser.add_argument("--size", metavar="HxW", help="height x width, px (default: 512x1024; training 512x768)")
    parser.add_argument("--batch", type=int, default=8, help="pairs of a training step (default: 8)")
    parser.add_argument("--precision", default="auto", help="auto, fp32, fp16 or bf16")
    parser.add_argument(
        "--modes",
        help="comma-separated: eager, compiled, fused, each also with -graph (training: eager, capture, graph)",
    )
    parser.add_argument("--most-side", type=int, default=2048, help="largest map of the operator's sweep, tokens")
    parser.add_argument("--seconds", type=float, help="measuring time of each case (0.5; of the renderer 8)")
    parser.add_argument("--no-large", action="store_true", help="leave the 2K, 4K and 8K images out")
    parser.add_argument("--no-parity", action="store_true", help="leave the comparison with fp32 out")
    parser.add_argument("--no-first-call", action="store_true", help="of `predictor`: start no new processes")
    parser.add_argument("--profile", action="store_true", help="of `network` and `training`: keep the table of kernels")
    parser.add_argument("--cudnn-benchmark", action="store_true", help="let cuDNN time its convolutions and choose")
    parser.add_argument("--minutes", type=float, default=3.0, help="of `all`: begin no further part after this")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="folder of the JSON files (default: benchmarks/results)")


def run(arguments: argparse.Namespace) -> None:
    from matchattention.bench import report
    from matchattention.cli.waiting import Waiting
    from matchattention.errors import InputError
    from matchattention.runtime.precision import choose_device

    device = choose_device(arguments.device)
    import torch

    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)  # "cuda" alone is refused
    torch.backends.cudnn.benchmark |= arguments.cudnn_benchmark
    begin = time.monotonic()
    parts = ("operator", "network", "predictor", "training") if arguments.what == "all" else (arguments.what,)
    for part in parts:
        if time.monotonic() - begin > 60 * arguments.minutes and arguments.what == "all":
            print(f"{part}: left out, the {arguments.minutes:g} minutes are over")
            continue
        name = {"operator": part, "renderer": "scenes"}.get(part) or f"{part}-{arguments.model}"
        keep = functools.partial(report.write, name, device, arguments.output)
        try:
            with Waiting(f"{part}, on {device}") as waiting:
                keep(_run_part(part, arguments, device, keep, waiting.say))
        except InputError:
            raise
        except Exception as error:
            if arguments.what != "all":
                raise
            print(f"{part} failed: {type(error).__name__}: {error}")
            continue
        print(f"written: {report.path_of(name, device, arguments.output)}")


def _run_part(
    part: str, arguments: argparse.Namespace, device: torch.device, keep: Keep, say: Callable[[str], None]
) -> dict[str, Any]:
    modes = arguments.modes.split(",") if arguments.modes else None
    seconds = arguments.seconds or (8.0 if part == "renderer" else 0.5)
    if part == "operator":
        from matchattention.bench.operator import bench_operator

        return bench_operator(device, seconds, arguments.most_side, say=say, keep=keep)
    if part == "network":
        from matchattention.bench.network import bench_network

        return bench_network(
            device,
            arguments.model,
            parse_size(arguments.size or "512x1024"),
            arguments.precision,
            modes,
            seconds,
            large=not arguments.no_large,
            with_parity=not arguments.no_parity,
            with_kernels=arguments.profile,
            say=say,
            keep=keep,
        )
    if part == "predictor":
        from matchattention.bench.predictor import bench_predictor

        size = parse_size(arguments.size or "512x1024")
        first_call = not arguments.no_first_call
        return bench_predictor(
            device, arguments.model, size, arguments.precision, seconds, first_call, say=say, keep=keep
        )
    if part == "renderer":
        from matchattention.bench.renderer import bench_renderer

        return bench_renderer(device, seconds, say=say, keep=keep)
    from matchattention.bench.training import bench_training

    return bench_training(
        device,
        arguments.model,
        parse_size(arguments.size or "512x768"),
        arguments.batch,
        modes,
        seconds,
        with_kernels=arguments.profile,
        say=say,
        keep=keep,
    )
