"""Which engine for a CPU: PyTorch, ONNX Runtime and OpenVINO in fp32, bf16 and int8, on one file of `export`.

    python benchmarks/cpu_engines.py accuracy --data DIR    Middlebury Q and KITTI 2015, the folders as they unpack
    python benchmarks/cpu_engines.py latency                all engines in turn in one process, two threads each

Both keep their part of one JSON file. Latency is what a user waits for: uint8 images in, both views' disparity,
occlusion and confidence out. Engines take turns, so that a busy moment meets all of them, and the fastest run of each
counts; `load_average` in the file says how busy the machine was.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matchattention.data import datasets
from matchattention.data.atomic import replacing
from matchattention.evaluation.environment import describe_environment
from matchattention.evaluation.runner import evaluate

RESULT = Path(__file__).parent / "results" / "cpu-engines.json"
SETS = {"middlebury": ("MiddEval3", "trainingQ"), "kitti2015": ("kitti2015", None)}
FIGURES = {"middlebury": ("bad2", "bad1", "epe"), "kitti2015": ("d1", "epe")}
# Name: file, engine, precision; None is PyTorch.
ENGINES: dict[str, tuple[str, str, str] | None] = {
    "PyTorch fp32": None,
    "ONNX Runtime fp32": ("rt.onnx", "onnx", "auto"),
    "OpenVINO fp32": ("rt.onnx", "openvino", "fp32"),
    "OpenVINO bf16": ("rt.onnx", "openvino", "bf16"),
    "ONNX Runtime int8": ("rt-int8.onnx", "onnx", "auto"),
    "OpenVINO int8": ("rt-int8.onnx", "openvino", "fp32"),
}


class Engine:
    """One of `ENGINES` as a matcher that `evaluate` can measure."""

    def __init__(self, name: str, files: Path, threads: int) -> None:
        from matchattention.exporting.predictor import ExportedPredictor
        from matchattention.inference.predictor import Predictor

        choice = ENGINES[name]
        self.settings: dict[str, Any] = {"name": name, "label": name}
        self.match: Callable[..., Any]
        if choice is None:
            self.match = Predictor("rt", "cpu", check=False).match
        else:
            file, engine, precision = choice
            self.match = ExportedPredictor(files / file, engine, precision, threads, check=False).match

    def __call__(self, first: Any, second: Any, sample: Any) -> Any:
        return np.asarray(self.match(first, second).disparity, np.float32)


def prepare(files: Path, names: list[str]) -> dict[str, Any]:
    """Export what these engines need and is missing; sizes and node counts."""
    from matchattention import export
    from matchattention.exporting.onnx_file import count_nodes

    files.mkdir(parents=True, exist_ok=True)
    facts = {}
    needed = {choice[0] for name in names if (choice := ENGINES[name]) is not None}
    for name, precision in (("rt.onnx", "fp32"), ("rt-int8.onnx", "int8")):
        if name not in needed:
            continue
        if not (files / name).is_file():
            print(f"exporting {name}", file=sys.stderr)
            export("rt", files / name, precision=precision)
        size = (files / name).stat().st_size
        facts[name] = {"megabytes": round(size / 1e6, 1), "nodes": sum(count_nodes(files / name).values())}
    return facts


def measure_accuracy(names: list[str], files: Path, threads: int, data: Path, keep: Callable[[str, Any], None]) -> None:
    """Every engine on both sets; kept after each set, since this takes a while."""
    for name in names:
        engine = Engine(name, files, threads)
        figures = {}
        for dataset, (folder, split) in SETS.items():
            report = evaluate(datasets.open(dataset, data / folder, split), engine)
            means = report.mean()
            figures[dataset] = {"scenes": len(report.scenes)} | {
                mask: {figure: round(means[mask][figure], 4) for figure in FIGURES[dataset]} for mask in ("noc", "all")
            }
            print(name, dataset, figures[dataset], file=sys.stderr, flush=True)
            keep(name, figures)


def measure_latency(names: list[str], files: Path, threads: int, size: tuple[int, int], rounds: int) -> dict[str, Any]:
    """Milliseconds of a pair for every engine, and how many times PyTorch's speed that is."""
    from PIL import Image

    from matchattention.examples import example

    pair = example("donkey")
    height, width = size
    left, right = (
        np.asarray(Image.open(path).convert("RGB").resize((width, height))) for path in (pair.left, pair.right)
    )
    engines = {name: Engine(name, files, threads) for name in names}
    taken: dict[str, list[float]] = {name: [] for name in names}
    before = os.getloadavg()
    for turn in range(rounds + 1):
        for name, engine in engines.items():
            started = time.perf_counter()
            engine.match(left, right)
            if turn:  # the first prepares
                taken[name].append(1000 * (time.perf_counter() - started))
    best = {name: min(times) for name, times in taken.items()}
    return {
        "size": f"{height}x{width}",
        "threads": threads,
        "rounds": rounds,
        "load_average": {"before": before, "after": os.getloadavg()},
        "quiet_machine": before[0] < 0.5,
        "engines": {
            name: {
                "best_ms": round(best[name], 1),
                "median_ms": round(float(np.median(times)), 1),
                "times_as_fast_as_pytorch": round(best[names[0]] / best[name], 2),
            }
            for name, times in taken.items()
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("accuracy", "latency"))
    parser.add_argument("--data", type=Path, help="holds MiddEval3 and kitti2015")
    parser.add_argument(
        "--files", type=Path, default=Path("output/cpu_engines"), help="exported files; made if missing"
    )
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES), metavar="NAME")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--size", default="480x640", metavar="HxW")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", type=Path, default=RESULT)
    arguments = parser.parse_args()
    if arguments.part == "accuracy" and arguments.data is None:
        parser.error("accuracy needs --data, the folder of MiddEval3 and kitti2015")
    import torch

    torch.set_num_threads(arguments.threads)
    files = prepare(arguments.files, arguments.engines)
    environment = describe_environment()
    environment["versions"] |= {name: metadata.version(name) for name in ("onnx", "onnxruntime", "openvino")}

    def keep(part: str, content: Any) -> None:
        whole = json.loads(arguments.json.read_text()) if arguments.json.is_file() else {}
        whole["model"] = "rt"
        whole["files"] = whole.get("files", {}) | files
        section = whole.setdefault(part, {})
        section |= {"environment": environment} | content
        with replacing(arguments.json) as temporary:
            temporary.write_text(json.dumps(whole, indent=2) + "\n")

    if arguments.part == "accuracy":
        measured: dict[str, Any] = {}

        def keep_engine(name: str, figures: Any) -> None:
            measured[name] = figures
            earlier = json.loads(arguments.json.read_text()).get("accuracy", {}) if arguments.json.is_file() else {}
            keep("accuracy", {"engines": earlier.get("engines", {}) | measured})

        measure_accuracy(arguments.engines, arguments.files, arguments.threads, arguments.data, keep_engine)
    else:
        height, width = map(int, arguments.size.split("x"))
        found = measure_latency(
            arguments.engines, arguments.files, arguments.threads, (height, width), arguments.rounds
        )
        print(json.dumps(found, indent=2))
        keep("latency", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
