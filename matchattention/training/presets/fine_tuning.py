"""Trained weights on data of your own."""

from __future__ import annotations

from dataclasses import replace

from matchattention.training.recipe import Preset, Stage
from matchattention.training.schedule import ScheduleConfig

FINE_TUNE = Preset(
    "RT's shipped weights on your own data: --data folder:PATH",
    start="rt",
    stages=(Stage(320, 640, 8),),
    sources=(),
    schedule=ScheduleConfig(kind="one-cycle", peak=1e-4, warmup_steps=200),
    minutes=60.0,
)

FINE_TUNE_FLOW = replace(
    FINE_TUNE,
    summary="a trained rt-flow on your own frames: --start FILE --data folder-flow:PATH",
    model="rt-flow",
    start="rt-flow",
)

PRESETS: dict[str, Preset] = {"rt": FINE_TUNE, "rt-finetune": FINE_TUNE, "rt-flow": FINE_TUNE_FLOW}
