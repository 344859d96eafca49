"""Which engine for a CPU: PyTorch, ONNX Runtime and OpenVINO in fp32, bf16 and int8, on one file of `export`.

    python benchmarks/cpu_engines.py accuracy --data DIR    Middlebury Q and KITTI 2015, the folders as they unpack
    python benchmarks/cpu_engines.py latency                all engines in turn in one process, two threads each
    python benchmarks/cpu_engines.py page                   the tables and the advice in docs/deployment.md

The first two keep their parts of one JSON file. A run that was stopped goes on: what the file holds is not measured
again. Latency is what a user waits for: uint8 images in, both views' disparity, occlusion and confidence out. Engines
take turns, so that a busy moment meets all of them, and the fastest run of each counts; `load_average` in the file says
how busy the machine was.
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
sys.path.insert(0, str(Path(__file__).resolve().parent))

from cpu_engines_page import write_page

from matchattention.data import datasets
from matchattention.data.atomic import replacing
from matchattention.data.formats import read_pfm
from matchattention.data.provenance import describe_environment
from matchattention.evaluation.runner import evaluate, save_prediction

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


def measure_accuracy(engine: Engine, dataset: str, data: Path, found: Path) -> dict[str, Any]:
    """Means over a set's scenes.

    Args:
        engine: what to measure.
        dataset: of `SETS`.
        data: holds the sets' folders.
        found: folder where PyTorch's disparities stay: every other engine is compared with them pixel by pixel.
    """
    name, apart = engine.settings["name"], []

    def compare(_: int, result: Any, sample: Any, disparity: Any) -> None:
        print(".", end="", file=sys.stderr, flush=True)
        if ENGINES[name] is None:
            save_prediction(found / dataset, sample.name, disparity)
        elif (path := found / dataset / f"{sample.name}.pfm").is_file():
            apart.append(float(np.abs(disparity - read_pfm(path)).mean()))

    folder, split = SETS[dataset]
    report = evaluate(datasets.open(dataset, data / folder, split), engine, on_scene=compare)
    means = report.mean()
    figures: dict[str, Any] = {"scenes": len(report.scenes), "commit": report.environment["commit"]}
    if len(apart) == len(report.scenes):
        figures["px_from_pytorch"] = round(float(np.mean(apart)), 5)
    for mask in ("noc", "all"):
        figures[mask] = {figure: round(means[mask][figure], 4) for figure in FIGURES[dataset]}
    print(name, dataset, figures, file=sys.stderr, flush=True)
    return figures


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
    parser.add_argument("part", choices=("accuracy", "latency", "page"))
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
    if arguments.part == "page":
        write_page(json.loads(arguments.json.read_text()), ENGINES)
        return 0
    import torch

    torch.set_num_threads(arguments.threads)
    files = prepare(arguments.files, arguments.engines)
    environment = describe_environment()
    environment["versions"] |= {name: metadata.version(name) for name in ("onnx", "onnxruntime", "openvino")}

    whole = json.loads(arguments.json.read_text()) if arguments.json.is_file() else {}
    whole["model"] = "rt"
    whole["files"] = whole.get("files", {}) | files

    def write() -> None:
        with replacing(arguments.json) as temporary:
            temporary.write_text(json.dumps(whole, indent=2) + "\n")

    if arguments.part == "accuracy":
        accuracy = whole.setdefault("accuracy", {})
        done = accuracy.setdefault("engines", {})
        for name in arguments.engines:
            missing = [dataset for dataset in SETS if dataset not in done.get(name, {})]
            engine = Engine(name, arguments.files, arguments.threads) if missing else None
            for dataset in missing:
                figures = measure_accuracy(engine, dataset, arguments.data, arguments.files / "pytorch")
                done.setdefault(name, {})[dataset] = figures
                accuracy["environment"] = environment
                write()
    else:
        height, width = map(int, arguments.size.split("x"))
        found = measure_latency(
            arguments.engines, arguments.files, arguments.threads, (height, width), arguments.rounds
        )
        print(json.dumps(found, indent=2))
        whole["latency"] = {"environment": environment} | found
        write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
