"""Train or fine-tune a network; a run that is started again continues."""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING

from matchattention.errors import InputError

if TYPE_CHECKING:
    from matchattention.training.presets import Preset, SourceConfig

SHORT_RUN = 15.0  # minutes; shorter runs are validated at their end only
_EPILOG = """
examples:
  matchattention train rt-synth --minutes 9              nine minutes on rendered scenes, then saves
  matchattention train rt-synth --minutes 9 --cooldown   nine more, ending at a low learning rate
  matchattention train rt --data folder:PAIRS            fine-tunes the shipped weights on your own pairs
  torchrun --nproc-per-node 8 -m matchattention train rt-synth --minutes 60

Everything lands in runs/NAME: state.pt (continues exactly), model.safetensors (averaged weights, fp16),
log.jsonl. A run that has a state there goes on with it; --fresh begins anew.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    from matchattention.training.presets import PRESETS

    lines = "\n".join(f"  {name:12} {preset.summary}" for name, preset in PRESETS.items())
    parser.epilog = f"presets:\n{lines}\n{_EPILOG}"
    parser.add_argument("preset", help="what to train, see below")
    limit = parser.add_argument_group("how long")
    limit.add_argument("--minutes", type=float, help="time limit of the process, compiling and saving included")
    limit.add_argument("--steps", type=int, help="total steps over all runs")
    limit.add_argument("--cooldown", action="store_true", help="let the learning rate fall at the end of this run")
    limit.add_argument("--cooldown-fraction", type=float, help="last share of the run in which it falls (0.3)")
    what = parser.add_argument_group("what")
    what.add_argument(
        "--size",
        action="append",
        metavar="HxW[:BATCH]",
        help="crop size instead of the preset's stages; repeat for several of equal length",
    )
    what.add_argument("--batch", type=int, help="pairs a step, over all processes")
    what.add_argument(
        "--source",
        action="append",
        metavar="KIND[:PRESET][=WEIGHT]",
        help="scenes, photos, moving-photos or cards, instead of the preset's; repeat to mix",
    )
    what.add_argument(
        "--data",
        action="append",
        metavar="NAME:PATH[=WEIGHT]",
        help="a dataset on disk, beside the preset's sources; repeat to mix",
    )
    what.add_argument("--rate", type=float, help="peak learning rate")
    what.add_argument("--optimizer", choices=("adamw", "muon"))
    what.add_argument("--schedule", choices=("constant", "one-cycle"))
    what.add_argument("--seed", type=int, help="of everything random (0)")
    where = parser.add_argument_group("where")
    where.add_argument("--name", help="folder under runs/ (the preset's name)")
    where.add_argument("--output", type=Path, help="folder of the run instead of runs/NAME")
    where.add_argument("--start", help="begin with these weights: a shipped model's name or a file")
    where.add_argument("--resume", type=Path, help="continue this run or export")
    where.add_argument("--fresh", action="store_true", help="begin anew even where a state is")
    where.add_argument("--export", type=Path, help="also write what travels: parts of less than 16 MiB")
    where.add_argument("--cache", type=Path, default=Path("runs/cache"), help="compile caches (runs/cache)")
    where.add_argument("--load-cache", type=Path, help="folder of an export whose compile caches to use")
    how = parser.add_argument_group("how")
    how.add_argument("--device", default="auto", help="auto, cpu or cuda")
    how.add_argument(
        "--mode",
        choices=("graph", "capture", "compile", "eager"),
        default="graph",
        help="fastest to try on a GPU: compiled blocks in a CUDA graph, plain kernels in one, compiled, neither",
    )
    how.add_argument("--eval-pairs", type=Path, help="packed real pairs to watch (scripts/pack_eval_pairs.py)")
    how.add_argument(
        "--validate-minutes",
        type=float,
        help=f"between validations; 0 for the end only (3, but 0 for runs of less than {SHORT_RUN:.0f} minutes)",
    )
    how.add_argument("--validation-pairs", type=int, help="held-out rendered pairs (16); 0 for none")
    how.add_argument("--log-seconds", type=float, default=10.0)


def run(arguments: argparse.Namespace) -> None:
    """Train."""
    from matchattention.training.compilation import load_caches, use_cache_folder

    use_cache_folder(arguments.cache)  # before torch compiles anything
    import torch

    from matchattention.training import distributed
    from matchattention.training.build import build_model, choose_device
    from matchattention.training.loop import RunOptions, Trainer
    from matchattention.training.presets import find_preset
    from matchattention.training.state import STATE_FILE
    from matchattention.training.supply import make_source

    preset = _adjusted(find_preset(arguments.preset), arguments)
    if arguments.load_cache is not None:
        load_caches(arguments.load_cache, arguments.cache)
    replicas = distributed.join()
    try:
        device = choose_device(arguments.device, replicas)
        folder = arguments.output or Path("runs") / (arguments.name or arguments.preset)
        resume = arguments.resume
        if resume is None and not arguments.fresh and (folder / STATE_FILE).is_file():
            resume = folder
        torch.manual_seed(preset.seed)
        source = make_source(preset.sources, preset.seed, device)
        # Held-out pairs come from the first renderer; a pool or a mirror would only repeat them.
        rendered = [dataclasses.replace(c, pool=0, mirror=False) for c in preset.sources if c.kind != "data"][:1]
        held_out = make_source(rendered, preset.seed + 1_000_003, device) if rendered else None
        model, config = build_model(preset, device, weights=resume is None)
        options = RunOptions(
            folder=folder,
            resume=resume,
            export=arguments.export,
            cache=arguments.cache,
            fastest=arguments.mode,
            eval_pairs=arguments.eval_pairs,
            log_seconds=arguments.log_seconds,
            validate_seconds=_validate_seconds(arguments.validate_minutes, preset.minutes),
        )
        Trainer(preset, options, model, config, source, held_out, replicas).run()
    finally:
        distributed.leave()


def _validate_seconds(asked: float | None, minutes: float | None) -> float | None:
    """Time between validations; None for the end only, which a run of minutes does unless told otherwise."""
    if asked is None:
        asked = 0.0 if minutes is not None and minutes < SHORT_RUN else 3.0
    return asked * 60 or None


def _adjusted(preset: Preset, arguments: argparse.Namespace) -> Preset:
    """The preset with what the command line changes."""
    schedule = preset.schedule
    if arguments.rate is not None:
        schedule = dataclasses.replace(schedule, peak=arguments.rate)
    if arguments.schedule is not None:
        schedule = dataclasses.replace(schedule, kind=arguments.schedule)
    if arguments.cooldown:
        schedule = dataclasses.replace(schedule, cooldown=True)
    if arguments.cooldown_fraction is not None:
        schedule = dataclasses.replace(schedule, cooldown_fraction=arguments.cooldown_fraction)
    optimizer = preset.optimizer
    if arguments.optimizer is not None:
        optimizer = dataclasses.replace(optimizer, kind=arguments.optimizer)
    stages = preset.stages
    if arguments.size:
        stages = tuple(_parse_size(text, preset.stages[0].batch) for text in arguments.size)
    if arguments.batch is not None:
        stages = tuple(dataclasses.replace(stage, batch=arguments.batch) for stage in stages)
    sources = preset.sources
    if arguments.source:
        sources = tuple(_parse_source(text) for text in arguments.source)
    for text in arguments.data or ():
        name, weight = _split_weight(text)
        sources = (*sources, _data_source(name, weight))
    steps = preset.steps if arguments.steps is None else arguments.steps
    minutes = arguments.minutes
    if minutes is None and steps is None:
        minutes = preset.minutes  # a preset's time is for runs that nothing else ends
    return dataclasses.replace(
        preset,
        minutes=minutes,
        steps=steps,
        schedule=schedule,
        optimizer=optimizer,
        stages=stages,
        sources=sources,
        start=arguments.start or preset.start,
        validation_pairs=preset.validation_pairs if arguments.validation_pairs is None else arguments.validation_pairs,
        seed=preset.seed if arguments.seed is None else arguments.seed,
    )


def _split_weight(text: str) -> tuple[str, float]:
    name, separator, weight = text.rpartition("=")
    if not separator:
        return text, 1.0
    try:
        value = float(weight)
    except ValueError:
        return text, 1.0  # a path may hold an equals sign
    if not (value > 0 and math.isfinite(value)):
        raise InputError(f"the weight in '{text}' must be above zero")
    return name, value


def _parse_source(text: str) -> SourceConfig:
    from matchattention.training.presets import SourceConfig

    name, weight = _split_weight(text)
    kind, _, preset = name.partition(":")
    if kind not in ("scenes", "photos", "moving-photos", "cards"):
        raise InputError(
            f"unknown source '{kind}': choose scenes, photos, moving-photos or cards, or name files with --data"
        )
    return SourceConfig(kind, weight, preset, mirror=kind != "cards")  # type: ignore[arg-type]


def _data_source(name: str, weight: float) -> SourceConfig:
    from matchattention.training.presets import SourceConfig

    if ":" not in name:
        raise InputError(f"--data takes NAME:PATH, such as folder:{name}")
    return SourceConfig("data", weight, name)


def _parse_size(text: str, batch: int):  # type: ignore[no-untyped-def]
    from matchattention.training.presets import Stage

    size, _, count = text.partition(":")
    try:
        height, width = (int(part) for part in size.lower().split("x"))
        return Stage(height, width, int(count) if count else batch)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"'{text}' is no crop size: write HEIGHTxWIDTH, such as 320x640") from None
