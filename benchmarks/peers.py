"""Time other people's networks beside ours, in one run on one machine.

    python benchmarks/peers.py --adapter peer.py [--adapter another.py] --size 512x1024 --compiled

No peer's code is part of this project. Clone one yourself and write an adapter, a Python file of your own with

    NAME = "SomeStereo-S"
    def load(device):
        # import the peer from its clone, build it, move it to the device, and return a function of two float
        # images (1, 3, H, W) in [0, 255] that returns its result
        return function

Every network is timed as its authors run it (eager, fp16 autocast) and, where it can be captured, replayed as a CUDA
graph, which takes the launches from Python out; with --compiled also by inductor, which compiles for minutes. A peer
that fails is reported and the others go on.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matchattention.bench import report
from matchattention.bench.network import load_or_create, time_mode
from matchattention.bench.scenes import image_pair
from matchattention.bench.timing import measure
from matchattention.cli.sizes import parse_size
from matchattention.errors import first_line
from matchattention.runtime.graph import capture
from matchattention.runtime.precision import choose_device
from matchattention.runtime.runtime import Mode


def load_adapter(path: Path, device: torch.device) -> tuple[str, Callable[[Tensor, Tensor], Any]]:
    """The adapter's name and its network."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None:
        raise ValueError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return getattr(module, "NAME", path.stem), module.load(device)


def time_peer(
    network: Callable[[Tensor, Tensor], Any], pair: list[Tensor], seconds: float, compiled: bool
) -> dict[str, Any]:
    """Eager and perhaps compiled, each also captured."""
    device = pair[0].device
    half = device.type == "cuda"

    def pass_of(function: Callable[[Tensor, Tensor], Any]) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad(), torch.autocast(device.type, dtype=torch.float16 if half else None, enabled=half):
                function(*pair)

        return run

    passes = {"eager": pass_of(network)}
    if compiled:
        passes["compiled"] = pass_of(torch.compile(network, dynamic=False))
    results: dict[str, Any] = {}
    for mode, run in passes.items():
        ways: dict[str, Callable[[], Callable[[], Any]]] = {mode: lambda run=run: run}  # type: ignore[misc]
        if half:
            ways[f"{mode}-graph"] = lambda run=run: capture(run)[0].replay  # type: ignore[misc]
        for way, made in ways.items():
            try:
                results[way] = measure(made(), device, seconds).to_dict()
            except Exception as error:
                results[way] = {"failed": first_line(error)}
                if half:
                    torch.cuda.synchronize()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapter", type=Path, action="append", default=[], help="a peer's adapter; repeat for more")
    parser.add_argument("--size", default="512x1024", metavar="HxW")
    parser.add_argument("--compiled", action="store_true", help="also compiled by inductor")
    parser.add_argument("--model", default="rt", help="our network")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path, help="folder of the JSON file (default: benchmarks/results)")
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    height, width = parse_size(arguments.size)
    left, right, _ = image_pair(height, width, device)
    pair = [left.float(), right.float()]
    ours, _ = load_or_create(arguments.model)
    modes: list[Mode] = ["eager", "eager-graph", "fused-graph"] if device.type == "cuda" else ["eager"]
    if arguments.compiled:
        modes += ["compiled", "compiled-graph"] if device.type == "cuda" else ["compiled"]
    precision = "fp16" if device.type == "cuda" else "fp32"
    print(f"matchattention {arguments.model}")
    timed = {
        mode: time_mode(ours, (height, width), device, precision, mode, arguments.seconds, print) for mode in modes
    }
    results: dict[str, Any] = {"size": [height, width], "networks": {f"matchattention {arguments.model}": timed}}
    for path in arguments.adapter:
        try:
            name, network = load_adapter(path, device)
            results["networks"][name] = time_peer(network, pair, arguments.seconds, arguments.compiled)
        except Exception as error:
            name = path.stem
            results["networks"][name] = {"failed": first_line(error)}
        print(
            name,
            {
                mode: row.get("median_ms", row)
                for mode, row in results["networks"][name].items()
                if isinstance(row, dict)
            }
            or results["networks"][name],
        )
    print(f"written: {report.write('peers', device, arguments.output, results)}")


if __name__ == "__main__":
    main()
