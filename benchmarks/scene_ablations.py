"""What each ingredient of the rendered scenes is worth: the same short training without it, measured on real pairs.

    python3 benchmarks/scene_ablations.py --seconds 70 --validate shards:local/real.tar --output ablations.json
    python benchmarks/scene_ablations.py --table ablations.json [MORE.json ...]     prints what the files hold

Every variant begins with the same random weights and sees as many GPU seconds. The step is compiled and captured once
and serves all of them. The baseline runs twice, with two seeds: differences smaller than theirs say nothing. Results
are printed and written as each variant ends. Other seeds (`--seed`) make other files, and tables of all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matchattention.training.compilation import use_cache_folder

WARM_UP = 200  # steps
COOL_DOWN = 0.4  # of a variant's time


def variants() -> dict[str, tuple[str, Callable[[Any], Any]]]:
    """By name: what is different in words, and the change of a `SceneConfig`."""
    return {
        "all": ("nothing", lambda c: c),
        "thin": ("no wires, cut-outs, plants", lambda c: replace(c, wires=False, cards=False, plants=False)),
        "floating": ("no floating objects", lambda c: replace(c, floating=0.0)),
        "plausible": ("floating objects alone, no layouts", lambda c: replace(c, layouts={"flying": 1.0})),
        "photos": ("no photo textures", lambda c: replace(c, photos=0.0)),
        "gloss": (
            "no highlights, mirrors, glass",
            lambda c: replace(c, specular=False, mirrors=0.0, clear=0.0, panes=0.0),
        ),
        "plain": ("no bare surfaces", lambda c: replace(c, plain=0.0)),
        "light": ("no shadows, no other light in one view", lambda c: replace(c, shadows=False, relit=0.0)),
        "sensor": ("perfect cameras", lambda c: replace(c, sensor="clean", vertical_error=(0.0, 0.0))),
        "curved": ("boxes and cards alone", lambda c: replace(c, curved=False)),
    }


class Trainings:
    """One short training after the other, of the same network from the same weights, by one compiled step."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import torch

        from matchattention.models import create_model
        from matchattention.synth.world.config import PRESETS
        from matchattention.training.batch_norms import BatchNorms
        from matchattention.training.build import use_fast_arithmetic
        from matchattention.training.losses import LossConfig
        from matchattention.training.optimizer import OptimizerConfig, Updater
        from matchattention.training.presets import TINY
        from matchattention.training.real_pairs import read_real_pairs
        from matchattention.training.step import TrainingStep
        from matchattention.training.validation import Validator

        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        use_fast_arithmetic()
        self.size = tuple(int(part) for part in arguments.size.split("x"))
        self.batch, self.rate, self.seconds = arguments.batch, arguments.rate, arguments.seconds
        self.scenes = PRESETS[arguments.scenes]
        self.real = read_real_pairs(arguments.validate, most=100)
        torch.manual_seed(0)
        model = create_model(TINY if arguments.model == "tiny" else arguments.model).to(self.device).train()
        on_gpu = self.device.type == "cuda"
        held_out = self._stream(self.scenes, 8, 1_000_003).next()
        self.validator = Validator(model, [held_out], self.real, on_gpu, self.size)
        self.norms = BatchNorms(model, [held_out], on_gpu, trained=False)
        self.updater = Updater(model, OptimizerConfig(kind="muon"))
        self.first_weights = [p.detach().clone() for p in self.updater.parameters]
        self.step = TrainingStep(model, self.updater, LossConfig(), mixed_precision=on_gpu)
        self.mode = self.step.prepare(held_out._replace(**_first(held_out, self.batch)), "graph")

    def _stream(self, config: Any, count: int, seed: int) -> Any:
        from matchattention.synth.stream.scene_stream import SceneStream

        return SceneStream(config, self.size, count, seed, self.device)

    def begin_again(self) -> None:
        """The first weights, and no memory of any update."""
        import torch

        with torch.no_grad():
            for parameter, weight in zip(self.updater.parameters, self.first_weights):
                parameter.copy_(weight)
            for moments in self.updater.moments().values():
                for moment in moments.values():
                    moment.zero_()
        self.updater.restart_average()

    def train(self, config: Any, seed: int) -> tuple[dict[str, float], int]:
        """Errors after a training on scenes of ``config``, and its steps."""
        from matchattention.training.feed import Feed
        from matchattention.training.mirrored import MirroredAgain
        from matchattention.training.schedule import ScheduleConfig, learning_rate
        from matchattention.training.supply import StreamSource
        from matchattention.training.validation import untuned_convolutions

        self.begin_again()
        schedule = ScheduleConfig(peak=self.rate, warmup_steps=WARM_UP, cooldown=True, cooldown_fraction=COOL_DOWN)
        source = MirroredAgain(StreamSource(lambda size, count: self._stream(config, count, seed)))
        feed = Feed(source, self.step)
        feed.example(0, self.batch, *self.size)  # kernels of this variant are built before its clock starts
        began, steps = time.monotonic(), 0
        while (spent := time.monotonic() - began) < self.seconds:
            rate = learning_rate(schedule, steps, spent / self.seconds)
            first, following = steps * self.batch, (steps + 1) * self.batch
            feed.train((first, self.batch, *self.size), following, rate, steps)
            steps += 1
        feed.wait()
        with untuned_convolutions():
            weights = self.norms.folded({**self.step.model.state_dict(), **self.updater.averaged()})
            return self.validator.measure(weights), steps


def _first(batch: Any, count: int) -> dict[str, Any]:
    """A batch of ``count`` pairs from fewer, for its shapes."""
    repeats = -(-count // batch.image0.shape[0])
    return {
        name: None if value is None else value.repeat(repeats, *[1] * (value.dim() - 1))[:count].contiguous()
        for name, value in zip(batch._fields, batch)
    }


def table(files: list[Path]) -> str:
    """Markdown: a row a variant with the means of its runs, the baseline's runs one by one above them."""
    shown = {"middlebury-noc/bad2": "Middlebury bad 2 noc", "middlebury-all/bad2": "all", "kitti-all/d1": "KITTI D1"}
    rows = [row for path in files for row in json.loads(path.read_text())["variants"]]
    cells = [["switched off", "runs", "pairs a run", *shown.values()], ["---"] * (3 + len(shown))]
    for row in (row for row in rows if row["name"] == "all"):
        cells.append([f"nothing, seed {row['seed']}", "1", str(row["pairs"]), *(f"{row[key]:.1f}" for key in shown)])
    for name in dict.fromkeys(row["name"] for row in rows):
        runs = [row for row in rows if row["name"] == name]
        means = [sum(run[key] for run in runs) / len(runs) for key in ("pairs", *shown)]
        words = "nothing, mean" if name == "all" else runs[0]["changed"]
        cells.append([words, str(len(runs)), f"{means[0]:.0f}", *(f"{mean:.1f}" for mean in means[1:])])
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def main() -> None:
    known = variants()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=70.0, help="training time of a variant")
    parser.add_argument("--only", default=",".join(known), help=f"comma-separated: {', '.join(known)}")
    parser.add_argument("--seed", type=int, default=1, help="of the scenes; the baseline's second run has the next one")
    parser.add_argument("--size", default="320x640")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=8e-4)
    parser.add_argument("--model", default="rt")
    parser.add_argument("--scenes", default="mixed", help="the renderer's preset that variants differ from")
    parser.add_argument("--validate", action="append", default=[], metavar="NAME:PATH", help="real pairs to measure")
    parser.add_argument("--output", type=Path, default=Path("scene_ablations.json"))
    parser.add_argument("--cache", type=Path, default=Path("runs/cache"))
    parser.add_argument("--table", type=Path, nargs="+", metavar="FILE", help="print what these hold, train nothing")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(arguments.table))
        return
    names = arguments.only.split(",")
    unknown = set(names) - known.keys()
    if unknown:
        parser.error(f"there is no variant '{sorted(unknown)[0]}': choose from {', '.join(known)}")
    use_cache_folder(arguments.cache)

    from matchattention.bench.report import circumstances

    trainings = Trainings(arguments)
    print(f"step ready: {trainings.mode}", flush=True)
    report: dict[str, Any] = {
        **circumstances(trainings.device),
        "seconds": arguments.seconds,
        "crop": list(trainings.size),
        "batch": arguments.batch,
        "real_pairs": [f"{pair.dataset}/{pair.name}" for pair in trainings.real],
        "variants": [],
    }
    runs = [(name, arguments.seed) for name in names] + ([("all", arguments.seed + 1)] if "all" in names else [])
    for name, seed in runs:
        words, change = known[name]
        try:
            errors, steps = trainings.train(change(trainings.scenes), seed)
        except Exception as error:  # the others are still worth their minutes
            print(f"{name}: failed: {error}", flush=True)
            continue
        row = {"name": name, "changed": words, "seed": seed, "pairs": steps * arguments.batch, **errors}
        report["variants"].append(row)
        arguments.output.write_text(json.dumps(report, indent=1))
        figures = "  ".join(f"{key} {value:.2f}" for key, value in errors.items() if key.endswith(("/bad2", "/d1")))
        print(f"{name} ({words}), seed {seed}: {row['pairs']} pairs  {figures}", flush=True)


if __name__ == "__main__":
    main()
