"""Which engine for a CPU: PyTorch, ONNX Runtime and OpenVINO in fp32, bf16 and int8, on files of `export`.

    python benchmarks/cpu_engines.py accuracy --data DIR                    Middlebury Q and KITTI 2015, as they unpack
    python benchmarks/cpu_engines.py accuracy --model rt-flow --data DIR    a folder of pairs for each flow benchmark
    python benchmarks/cpu_engines.py latency                                all engines in turn in one process
    python benchmarks/cpu_engines.py page                                   tables and advice in docs/deployment.md

The first two kinds keep their parts of one JSON file a model (`cpu_engines_studies.py` says what is measured). A run
that was stopped goes on: what the file holds is not measured again. Latency is what a user waits for: uint8 images in,
both views' fields, occlusion and confidence out. Engines take turns, so that a busy moment meets all of them, and the
fastest run of each counts; `load_average` in the file says how busy the machine was.
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
from cpu_engines_studies import FLOATS, STUDIES, Pairs, Study

from matchattention.data import datasets
from matchattention.data.atomic import replacing
from matchattention.data.formats import read_flo, read_pfm
from matchattention.data.provenance import describe_environment
from matchattention.evaluation.runner import evaluate, save_prediction

PLAIN = next(iter(FLOATS))  # what all others are compared with


class Matcher:
    """One of a study's engines as a matcher that `evaluate` can measure."""

    def __init__(self, study: Study, name: str, files: Path, threads: int) -> None:
        from matchattention.exporting.predictor import ExportedPredictor
        from matchattention.inference.predictor import Predictor

        engine = study.engines[name]
        self.settings: dict[str, Any] = {"name": name, "label": name}
        self.match: Callable[..., Any]
        if engine is None:
            self.match = Predictor(study.model, "cpu", check=False).match
        else:
            file = files / study.file(engine)
            self.match = ExportedPredictor(file, engine.engine, engine.precision, threads, check=False).match

    def __call__(self, first: Any, second: Any, sample: Any) -> Any:
        result = self.match(first, second)
        return np.asarray(result.flow if result.task == "flow" else result.disparity, np.float32)


def prepare(study: Study, files: Path, names: list[str]) -> dict[str, Any]:
    """Export what these engines need and is missing; sizes and node counts."""
    from matchattention import export
    from matchattention.exporting.onnx_file import count_nodes

    files.mkdir(parents=True, exist_ok=True)
    facts = {}
    for engine in dict.fromkeys(study.engines[name] for name in names):
        if engine is None or (name := study.file(engine)) in facts:
            continue
        if not (files / name).is_file():
            print(f"exporting {name}", file=sys.stderr)
            export(study.model, files / name, precision=engine.exported)
        size = (files / name).stat().st_size
        facts[name] = {"megabytes": round(size / 1e6, 1), "nodes": sum(count_nodes(files / name).values())}
    return facts


def measure_accuracy(matcher: Matcher, pairs: Pairs, data: Path, found: Path) -> dict[str, Any]:
    """Means over a set's scenes.

    Args:
        matcher: what to measure.
        pairs: the set.
        data: holds the sets' folders.
        found: folder where PyTorch's answers to this set stay: every other engine is compared with them pixel by pixel.
    """
    name, apart = matcher.settings["name"], []

    def compare(_: int, result: Any, sample: Any, field: Any) -> None:
        print(".", end="", file=sys.stderr, flush=True)
        if name == PLAIN:
            save_prediction(found, sample.name, field)
        else:
            suffix, read = (".flo", read_flo) if field.ndim == 3 else (".pfm", read_pfm)
            if (path := found / f"{sample.name}{suffix}").is_file():
                vectors = (field - read(path)).reshape(*field.shape[:2], -1)
                apart.append(float(np.linalg.norm(vectors, axis=-1).mean()))

    opened = datasets.open(pairs.dataset, data / pairs.folder, pairs.split, pairs.patterns)
    report = evaluate(opened, matcher, on_scene=compare)
    means = report.mean()
    figures: dict[str, Any] = {"scenes": len(report.scenes), "commit": report.environment["commit"]}
    if len(apart) == len(report.scenes):
        figures["px_from_pytorch"] = round(float(np.mean(apart)), 5)
    for mask in [mask for mask in ("noc", "all") if mask in means]:
        figures[mask] = {figure: round(means[mask][figure], 4) for figure in pairs.figures}
    print(name, pairs.title, figures, file=sys.stderr, flush=True)
    return figures


def measure_latency(
    study: Study, names: list[str], files: Path, threads: int, size: tuple[int, int], rounds: int
) -> dict[str, Any]:
    """Milliseconds of a pair for every engine, and how many times PyTorch's speed that is."""
    from PIL import Image

    from matchattention.examples import example

    pair = example("donkey")
    height, width = size
    left, right = (
        np.asarray(Image.open(path).convert("RGB").resize((width, height))) for path in (pair.left, pair.right)
    )
    engines = {name: Matcher(study, name, files, threads) for name in names}
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
    parser.add_argument("--model", default="rt", choices=list(STUDIES))
    parser.add_argument("--data", type=Path, help="holds the sets' folders")
    parser.add_argument(
        "--files", type=Path, default=Path("output/cpu_engines"), help="exported files; made if missing"
    )
    parser.add_argument("--engines", nargs="+", metavar="NAME", help="some of the study's, such as 'OpenVINO fp32'")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--size", default="480x640", metavar="HxW")
    parser.add_argument("--rounds", type=int, default=8)
    arguments = parser.parse_args()
    study = STUDIES[arguments.model]
    names = arguments.engines or list(study.engines)
    if unknown := [name for name in names if name not in study.engines]:
        parser.error(f"{study.model} has no engine {unknown[0]}: use {', '.join(study.engines)}")
    if arguments.part == "accuracy" and arguments.data is None:
        folders = ", ".join(pairs.folder for pairs in study.pairs.values())
        parser.error(f"accuracy needs --data, the folder that holds {folders}")
    if arguments.part == "page":
        for each in STUDIES.values():
            write_page(json.loads(each.result.read_text()), each)
        return 0
    import torch

    torch.set_num_threads(arguments.threads)
    files = prepare(study, arguments.files, names)
    environment = describe_environment()
    environment["versions"] |= {name: metadata.version(name) for name in ("onnx", "onnxruntime", "openvino")}

    whole = json.loads(study.result.read_text()) if study.result.is_file() else {}
    whole["model"] = study.model
    whole["files"] = whole.get("files", {}) | files

    def write() -> None:
        with replacing(study.result) as temporary:
            temporary.write_text(json.dumps(whole, indent=2) + "\n")

    if arguments.part == "accuracy":
        accuracy = whole.setdefault("accuracy", {})
        done = accuracy.setdefault("engines", {})
        for name in names:
            missing = [key for key in study.pairs if key not in done.get(name, {})]
            matcher = Matcher(study, name, arguments.files, arguments.threads) if missing else None
            for key in missing:
                found = arguments.files / "pytorch" / study.model / key
                figures = measure_accuracy(matcher, study.pairs[key], arguments.data, found)
                done.setdefault(name, {})[key] = figures
                accuracy["environment"] = environment
                write()
        write()
    else:
        height, width = map(int, arguments.size.split("x"))
        found = measure_latency(study, names, arguments.files, arguments.threads, (height, width), arguments.rounds)
        print(json.dumps(found, indent=2))
        whole["latency"] = {"environment": environment} | found
        write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
