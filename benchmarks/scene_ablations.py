"""What each ingredient of the rendered scenes is worth: the same short training without it, measured on real pairs.

    python3 benchmarks/scene_ablations.py --seconds 70 --eval-pairs local/eval_pairs.bin --output ablations.json

Every variant begins with the same random weights and sees as many GPU seconds. The step is compiled and captured once
and serves all of them. The baseline runs twice, with two seeds: differences smaller than theirs say nothing. Results
are printed and written as each variant ends.
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

from matchattention.training.compilation import load_caches, use_cache_folder

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


def main() -> None:
    known = variants()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=70.0, help="training time of a variant")
    parser.add_argument("--only", default=",".join(known), help=f"comma-separated: {', '.join(known)}")
    parser.add_argument("--size", default="320x640")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=8e-4)
    parser.add_argument("--model", default="rt")
    parser.add_argument("--scenes", default="mixed", help="the renderer's preset that variants differ from")
    parser.add_argument("--eval-pairs", type=Path, help="packed real pairs (scripts/pack_eval_pairs.py)")
    parser.add_argument("--output", type=Path, default=Path("scene_ablations.json"))
    parser.add_argument("--cache", type=Path, default=Path("runs/cache"))
    parser.add_argument("--load-cache", type=Path)
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    unknown = set(names) - known.keys()
    if unknown:
        parser.error(f"there is no variant '{sorted(unknown)[0]}': choose from {', '.join(known)}")
    use_cache_folder(arguments.cache)

    import torch

    from matchattention.bench.report import circumstances
    from matchattention.models import create_model
    from matchattention.synth.config import PRESETS
    from matchattention.synth.stream import SceneStream
    from matchattention.training.build import use_fast_arithmetic
    from matchattention.training.eval_pairs import read_pairs
    from matchattention.training.feed import Feed
    from matchattention.training.losses import LossConfig
    from matchattention.training.mirrored import MirroredAgain
    from matchattention.training.optimizer import OptimizerConfig, Updater
    from matchattention.training.presets import TINY
    from matchattention.training.schedule import ScheduleConfig, learning_rate
    from matchattention.training.step import TrainingStep
    from matchattention.training.supply import StreamSource
    from matchattention.training.upkeep import INTERVAL, Upkeep
    from matchattention.training.validation import Validator, untuned_convolutions

    if arguments.load_cache is not None:
        load_caches(arguments.load_cache, arguments.cache)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    use_fast_arithmetic()
    height, width = (int(part) for part in arguments.size.split("x"))
    base = PRESETS[arguments.scenes]

    def source_of(config: Any, seed: int) -> MirroredAgain:
        return MirroredAgain(StreamSource(lambda size, count: SceneStream(config, size, count, seed, device)))

    torch.manual_seed(0)
    model = create_model(TINY if arguments.model == "tiny" else arguments.model).to(device).train()
    updater = Updater(model, OptimizerConfig(kind="muon"))
    first_weights = [p.detach().clone() for p in updater.parameters]
    on_gpu = device.type == "cuda"
    step = TrainingStep(model, updater, LossConfig(), mixed_precision=on_gpu)
    real = read_pairs(arguments.eval_pairs) if arguments.eval_pairs is not None else []
    held_out = SceneStream(base, (height, width), 8, 1_000_003, device).next()
    validator = Validator(model, [held_out], real, on_gpu, (height, width))
    upkeep = Upkeep(model, updater, held_out, on_gpu, 0)
    mode = step.prepare(held_out._replace(**_first(held_out, arguments.batch)), "graph")
    print(f"step ready: {mode}", flush=True)
    schedule = ScheduleConfig(peak=arguments.rate, warmup_steps=WARM_UP, cooldown=True, cooldown_fraction=COOL_DOWN)
    report: dict[str, Any] = {
        **circumstances(device), "seconds": arguments.seconds, "crop": [height, width], "batch": arguments.batch,
        "real_pairs": [f"{pair.dataset}/{pair.name}" for pair in real], "variants": [],
    }

    def train(config: Any, seed: int) -> tuple[dict[str, float], int]:
        with torch.no_grad():
            for parameter, weight in zip(updater.parameters, first_weights):
                parameter.copy_(weight)
            for moments in updater.moments().values():
                for moment in moments.values():
                    moment.zero_()
        updater.restart_average()
        upkeep.run(0)
        feed = Feed(source_of(config, seed), step)
        feed.example(0, arguments.batch, height, width)  # kernels of this variant are built before its clock starts
        began, steps = time.monotonic(), 0
        while (spent := time.monotonic() - began) < arguments.seconds:
            rate = learning_rate(schedule, steps, spent / arguments.seconds)
            first, following = steps * arguments.batch, (steps + 1) * arguments.batch
            feed.train((first, arguments.batch, height, width), following, rate, steps)
            steps += 1
            if steps % INTERVAL == 0:
                feed.wait()
                upkeep.run(steps)
        feed.wait()
        with untuned_convolutions():
            return validator.measure(updater.averaged()), steps

    runs = [(name, 1) for name in names] + ([("all", 2)] if "all" in names else [])
    for name, seed in runs:
        words, change = known[name]
        try:
            errors, steps = train(change(base), seed)
        except Exception as error:  # the others are still worth their minutes
            print(f"{name}: failed: {error}", flush=True)
            continue
        row = {"name": name, "changed": words, "seed": seed, "pairs": steps * arguments.batch, **errors}
        report["variants"].append(row)
        arguments.output.write_text(json.dumps(report, indent=1))
        shown = {key: value for key, value in errors.items() if key.split("/")[1] in ("bad2", "d1")}
        figures = "  ".join(f"{key} {value:.2f}" for key, value in shown.items())
        print(f"{name} ({words}), seed {seed}: {row['pairs']} pairs  {figures}", flush=True)


def _first(batch: Any, count: int) -> dict[str, Any]:
    """A batch of ``count`` pairs from fewer, for its shapes."""
    repeats = -(-count // batch.image0.shape[0])
    return {
        name: None if value is None else value.repeat(repeats, *[1] * (value.dim() - 1))[:count].contiguous()
        for name, value in zip(batch._fields, batch)
    }


if __name__ == "__main__":
    main()
