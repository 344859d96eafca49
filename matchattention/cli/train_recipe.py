"""From the options of `train` to a recipe: a preset with what the command line changes."""

from __future__ import annotations

import argparse
import dataclasses
import math
from typing import TYPE_CHECKING, Any

from matchattention.cli.patterns import given_patterns
from matchattention.cli.sizes import parse_size
from matchattention.errors import InputError

if TYPE_CHECKING:
    from matchattention.data.augmentation import AugmentationConfig
    from matchattention.models.config import NetworkConfig
    from matchattention.training.distillation import DistillationConfig
    from matchattention.training.optimizer import OptimizerConfig
    from matchattention.training.recipe import Preset, SourceConfig
    from matchattention.training.schedule import ScheduleConfig


def adjusted_preset(preset: Preset, arguments: argparse.Namespace) -> Preset:
    """The preset with what the command line changes."""
    stages = preset.stages
    if arguments.size:
        stages = tuple(parse_stage(text, preset.stages[0].batch) for text in arguments.size)
    if arguments.batch is not None:
        stages = tuple(dataclasses.replace(stage, batch=arguments.batch) for stage in stages)
    steps = preset.steps if arguments.steps is None else arguments.steps
    minutes = arguments.minutes
    if minutes is None and steps is None:
        minutes = preset.minutes  # a preset's time is for runs that nothing else ends
    model, start = _model_and_start(preset, arguments)
    adjusted = dataclasses.replace(
        preset,
        model=model,
        start=start,
        minutes=minutes,
        steps=steps,
        schedule=_schedule(preset, arguments, stages[0].batch),
        optimizer=_optimizer(preset, arguments),
        stages=stages,
        sources=_sources(preset, arguments),
        accumulate=arguments.accumulate or preset.accumulate,
        distillation=_distillation(preset, arguments),
        recompute=arguments.checkpoint_activations or preset.recompute,
        validation_pairs=preset.validation_pairs if arguments.validation_pairs is None else arguments.validation_pairs,
        seed=preset.seed if arguments.seed is None else arguments.seed,
    )
    _check_task(adjusted)
    return adjusted


def _model_and_start(preset: Preset, arguments: argparse.Namespace) -> tuple[str | NetworkConfig, str | None]:
    from matchattention.models.registry import NETWORKS

    if arguments.model is None:
        return preset.model, arguments.start or preset.start
    if arguments.model not in NETWORKS:
        raise InputError(f"Unknown network '{arguments.model}': choose one of {', '.join(NETWORKS)}")
    # A preset that begins with its own network's weights now begins with the other network's; other starts do not fit.
    own = arguments.model if preset.start == preset.model else None
    return arguments.model, arguments.start or (preset.start if arguments.model == preset.model else own)


def _schedule(preset: Preset, arguments: argparse.Namespace, batch: int) -> ScheduleConfig:
    changes: dict[str, Any] = {}
    if arguments.scale_rate is not None:
        ratio = batch / preset.stages[0].batch
        changes["peak"] = preset.schedule.peak * (ratio if arguments.scale_rate == "linear" else math.sqrt(ratio))
    if arguments.rate is not None:
        if arguments.scale_rate is not None:
            raise InputError("Give either --rate or --scale-rate, not both")
        changes["peak"] = arguments.rate
    if arguments.schedule is not None:
        changes["kind"] = arguments.schedule
    if arguments.cooldown:
        changes["cooldown"] = True
    if arguments.cooldown_fraction is not None:
        changes["cooldown_fraction"] = arguments.cooldown_fraction
    return dataclasses.replace(preset.schedule, **changes)


def _distillation(preset: Preset, arguments: argparse.Namespace) -> DistillationConfig | None:
    from matchattention.training.distillation import DistillationConfig

    wanted = {"teacher": arguments.teacher, "weight": arguments.teacher_weight, "hopeless": arguments.drop_hopeless}
    changes = {name: value for name, value in wanted.items() if value is not None}
    if arguments.teacher is None and preset.distillation is None:
        if changes:
            raise InputError("--teacher-weight and --drop-hopeless need a --teacher, such as --teacher rt")
        return None
    return dataclasses.replace(preset.distillation or DistillationConfig(), **changes)


def _optimizer(preset: Preset, arguments: argparse.Namespace) -> OptimizerConfig:
    changes: dict[str, Any] = {}
    if arguments.optimizer is not None:
        changes["kind"] = arguments.optimizer
    if arguments.ema_horizon is not None:
        if not arguments.ema_horizon >= 1:
            raise InputError(f"--ema-horizon is a number of steps, at least 1, not {arguments.ema_horizon:g}")
        changes["average_decay"] = 1 - 1 / arguments.ema_horizon
    return dataclasses.replace(preset.optimizer, **changes)


def _sources(preset: Preset, arguments: argparse.Namespace) -> tuple[SourceConfig, ...]:
    """The preset's or the given renderers, and datasets with their places, layouts, augmentation and held-out share."""
    sources = list(preset.sources)
    if arguments.source:
        sources = [parse_source(text) for text in arguments.source]
    layout = given_patterns(arguments)
    fields: dict[str, Any] = {}
    if arguments.augment:
        fields["augmentation"] = _augmentation(arguments.augment)
    if arguments.held_out is not None:
        fields["held_out"] = arguments.held_out
    for text in arguments.data or ():
        name, weight = _split_weight(text)
        given = _data_source(name, 1.0 if weight is None else weight)
        # The preset's own entry of that name keeps its split and weight.
        waiting = [i for i, s in enumerate(sources) if s.kind == "data" and ":" not in s.preset]
        place = next((i for i in waiting if sources[i].dataset == given.dataset), None)
        if place is not None:
            old = sources[place]
            split = "" if "/" in name.partition(":")[0] else old.preset.removeprefix(old.dataset)
            text_with_split = given.preset.replace(":", f"{split}:", 1)
            keeps = old.weight if weight is None else weight
            sources[place] = dataclasses.replace(old, preset=text_with_split, weight=keeps)
        else:
            in_shards = name.partition(":")[0].endswith("shards")
            usual = 0.0 if in_shards else 0.1  # shards are read in order, not one by one
            held_out = usual if arguments.held_out is None else arguments.held_out
            sources.append(dataclasses.replace(given, held_out=held_out))
    for index, source in enumerate(sources):
        if source.kind != "data":
            continue
        if ":" not in source.preset and arguments.data_root is not None:
            source = dataclasses.replace(source, preset=f"{source.preset}:{arguments.data_root / source.dataset}")
        if layout and source.dataset in ("folder", "folder-flow"):
            source = dataclasses.replace(source, layout=layout)
        sources[index] = dataclasses.replace(source, **fields)
    if layout and not any(source.layout for source in sources):
        raise InputError("--left, --right, --truth and the like name the files of --data folder:PATH: give it too")
    return tuple(sources)


def _check_task(preset: Preset) -> None:
    """A stereo network has no answer for motion; a flow network learns from both."""
    from matchattention.models.registry import NETWORKS

    config = NETWORKS[preset.model].config if isinstance(preset.model, str) else preset.model
    if config.task == "flow":
        return
    from matchattention.data.datasets import DATASETS
    from matchattention.synth.world.config import PRESETS as SCENES

    for source in preset.sources:
        scenes = SCENES.get(source.preset) if source.kind == "scenes" else None
        moving = source.kind == "moving-photos" or (scenes is not None and scenes.task == "flow")
        if moving or (source.dataset in DATASETS and DATASETS[source.dataset].kind == "flow"):
            raise InputError(
                f"{source.preset or source.kind} is for optical flow, the network for stereo: "
                "choose --model rt-flow or xl-flow"
            )


def _augmentation(texts: list[str]) -> AugmentationConfig:
    """From NAME=VALUE or NAME=LOW,HIGH."""
    from matchattention.data.augmentation import AugmentationConfig

    defaults = dataclasses.asdict(AugmentationConfig())
    changes: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in defaults:
            raise InputError(f"Unknown augmentation '{name}': choose one of {', '.join(defaults)}")
        try:
            numbers = tuple(
                type(one)(part) for one, part in zip(_as_tuple(defaults[name]), value.split(","), strict=True)
            )
        except ValueError:
            raise InputError(
                f"--augment {text}: give {name}={','.join(f'{one:g}' for one in _as_tuple(defaults[name]))} or the like"
            ) from None
        changes[name] = numbers if isinstance(defaults[name], tuple) else numbers[0]
    return dataclasses.replace(AugmentationConfig(), **changes)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _split_weight(text: str) -> tuple[str, float | None]:
    """What comes before ``=WEIGHT``, and the weight where one is given."""
    name, separator, weight = text.rpartition("=")
    if not separator:
        return text, None
    try:
        value = float(weight)
    except ValueError:
        return text, None  # a path may hold an equals sign
    if not (value > 0 and math.isfinite(value)):
        raise InputError(f"The weight in '{text}' must be above zero")
    return name, value


def parse_source(text: str) -> SourceConfig:
    from matchattention.synth.world.config import PRESETS as SCENES
    from matchattention.training.recipe import SourceConfig

    name, weight = _split_weight(text)
    kind, _, preset = name.partition(":")
    if kind not in ("scenes", "photos", "moving-photos", "cards"):
        raise InputError(
            f"Unknown source '{kind}': choose scenes, photos, moving-photos or cards, or name files with --data"
        )
    if kind == "scenes" and preset and preset not in SCENES:
        raise InputError(f"Unknown scenes '{preset}': choose one of {', '.join(SCENES)}")
    return SourceConfig(kind, 1.0 if weight is None else weight, preset, mirror=kind != "cards")  # type: ignore[arg-type]


def _data_source(name: str, weight: float) -> SourceConfig:
    from matchattention.training.recipe import SourceConfig

    if ":" not in name:
        raise InputError(f"--data takes NAME:PATH, such as folder:{name}")
    return SourceConfig("data", weight, name)


def parse_stage(text: str, batch: int):  # type: ignore[no-untyped-def]
    from matchattention.training.recipe import Stage

    size, _, count = text.partition(":")
    if count and not count.isdecimal():
        raise InputError(f"--size takes HEIGHTxWIDTH or HEIGHTxWIDTH:BATCH such as 320x640:16; got '{text}'.")
    return Stage(*parse_size(size), int(count) if count else batch)
