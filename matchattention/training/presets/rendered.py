"""Trainings on pairs that we render ourselves: no dataset needed."""

from __future__ import annotations

from dataclasses import replace

from matchattention.models.config import NetworkConfig
from matchattention.training.optimizer import OptimizerConfig
from matchattention.training.recipe import Preset, SourceConfig, Stage
from matchattention.training.schedule import ScheduleConfig

TINY = NetworkConfig(channels=(16, 16, 32, 32), encoder_depths=(1, 1, 1, 1), decoder_depths=(1, 1, 1, 1))

_TINY_SMOKE = Preset(
    "a tiny network on a CPU for two minutes: does training work at all?",
    model=TINY,
    stages=(Stage(64, 128, 4),),
    sources=(SourceConfig("scenes", preset="small", pool=24), SourceConfig("cards")),
    schedule=ScheduleConfig(kind="one-cycle", peak=2e-3, warmup_steps=20),
    optimizer=OptimizerConfig(average_decay=0.98),
    mixed_precision=False,
    minutes=None,
    steps=150,
    validation_pairs=8,
    validation_size=(64, 128),
)

PRESETS: dict[str, Preset] = {
    "rt-synth": Preset(
        "RT from scratch on rendered scenes: small crops first, large ones and wide ranges in the last third",
        stages=(Stage(320, 640, 16, 0.67), Stage(512, 768, 16, 0.33)),
        sources=(SourceConfig("scenes", mirror=True),),
        optimizer=OptimizerConfig(kind="muon", average_decay=0.9998),
        schedule=ScheduleConfig(peak=8e-4, cooldown_fraction=0.9),
    ),
    "rt-flow-synth": Preset(
        "RT for optical flow on moving scenes and photos, from the shipped stereo weights",
        model="rt-flow",
        start="rt",
        stages=(Stage(320, 640, 16),),
        sources=(
            SourceConfig("scenes", 3.0, "flow", mirror=True),
            SourceConfig("moving-photos", 1.0, mirror=True),
        ),
        optimizer=OptimizerConfig(kind="muon"),
    ),
    "tiny-smoke": _TINY_SMOKE,
    "tiny-flow-smoke": replace(
        _TINY_SMOKE,
        summary="the same for optical flow",
        model=replace(TINY, task="flow", windows=((4, 4),) * 4),
        sources=(SourceConfig("scenes", preset="flow-small", pool=24), SourceConfig("cards")),
    ),
}
