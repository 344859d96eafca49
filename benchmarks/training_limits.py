"""Largest batches and rates of training, per network and crop, with and without activation checkpointing.

    python3 benchmarks/training_limits.py --models xl,rt --sizes 320x640,512x768 --output $OUT

Writes training-limits-DEVICE.json after every case, for `matchattention scale training --rates FILE` and
docs/scaling.md. "eager" needs no compiling; "capture" adds a CUDA graph.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from matchattention.bench import report
from matchattention.bench.training_limits import bench_limits
from matchattention.cli.sizes import parse_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="xl,rt")
    parser.add_argument("--sizes", default="320x640,512x768", help="HxW, comma-separated")
    parser.add_argument("--most", type=int, default=256, help="largest batch to try")
    parser.add_argument("--mode", choices=("eager", "capture", "compile", "graph"), default="capture")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    keep = functools.partial(report.write, "training-limits", device, arguments.output)
    shapes = [parse_size(size, "--sizes") for size in arguments.sizes.split(",")]
    bench_limits(
        device,
        arguments.models.split(","),
        shapes,
        most=arguments.most,
        mode=arguments.mode,
        seconds=arguments.seconds,
        say=functools.partial(print, flush=True),
        keep=keep,
    )


if __name__ == "__main__":
    main()
