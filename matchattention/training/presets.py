"""Recipes as data: what to train, on what, how long."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from matchattention.errors import InputError
from matchattention.models.config import NetworkConfig
from matchattention.training.losses import LossConfig
from matchattention.training.optimizer import OptimizerConfig
from matchattention.training.schedule import ScheduleConfig


@dataclass(frozen=True)
class Stage:
    """A part of a run at one crop size.

    Attributes:
        height: px, a multiple of 32.
        width: px, a multiple of 32.
        batch: Pairs a step, over all processes.
        share: Part of the run's steps or time.
    """

    height: int
    width: int
    batch: int
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.height % 32 or self.width % 32 or self.height < 32 or self.width < 32:
            raise InputError(f"crops are multiples of 32 px, not {self.height}x{self.width}")


@dataclass(frozen=True)
class SourceConfig:
    """A supply of pairs.

    Attributes:
        kind: "scenes" (rendered), "photos" (photos cut into layers), "moving-photos" (the same for flow), "data"
            (files), "cards" (a test).
        weight: Share of each batch, relative to the other sources.
        preset: The renderer's preset, the photo bank's file, or NAME:PATH of a dataset; empty for the usual.
        pool: Repeat the first samples instead of making new ones for ever, for renderers on a CPU; 0 for no.
        mirror: Train on every pair twice, the second time on its mirror image: rendering costs half as much.
    """

    kind: Literal["scenes", "photos", "moving-photos", "data", "cards"]
    weight: float = 1.0
    preset: str = ""
    pool: int = 0
    mirror: bool = False


@dataclass(frozen=True)
class Preset:
    """A whole training.

    Attributes:
        summary: One line for the command line's help.
        model: A registered network's name, or a config.
        start: Weights to begin with: None for random ones, else a shipped model's name or a file.
        stages: Crop sizes in order.
        sources: Where pairs come from.
        loss: The objective.
        optimizer: AdamW and averaging.
        schedule: Learning rates.
        batch_norm: Batch norm between scales while training; checkpoints have it folded in.
        mixed_precision: bf16 features on a GPU.
        minutes: Time limit of a run's process; None for none.
        steps: Total steps over all runs; None for none.
        seed: Of everything random.
        validation_pairs: Held-out rendered pairs.
        validation_size: Their height and width.
    """

    summary: str
    model: str | NetworkConfig = "rt"
    start: str | None = None
    stages: tuple[Stage, ...] = (Stage(320, 640, 32),)
    sources: tuple[SourceConfig, ...] = (SourceConfig("scenes"),)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    batch_norm: bool = True
    mixed_precision: bool = True
    minutes: float | None = 9.0
    steps: int | None = None
    seed: int = 0
    validation_pairs: int = 16
    validation_size: tuple[int, int] = (384, 768)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as stored beside the weights: of files their names, not where they lie on this machine."""
        values = dataclasses.asdict(self)
        if self.start is not None:
            values["start"] = Path(self.start).name
        for source in values["sources"]:
            dataset, separator, path = source["preset"].rpartition(":")
            source["preset"] = dataset + separator + Path(path).name
        return values


TINY = NetworkConfig(channels=(16, 16, 32, 32), encoder_depths=(1, 1, 1, 1), decoder_depths=(1, 1, 1, 1))

FINE_TUNE = Preset(
    "RT's shipped weights on your own data: --data folder:PATH",
    start="rt",
    stages=(Stage(320, 640, 8),),
    sources=(),
    schedule=ScheduleConfig(kind="one-cycle", peak=1e-4, warmup_steps=200),
    minutes=60.0,
)

FINE_TUNE_FLOW = dataclasses.replace(
    FINE_TUNE,
    summary="a trained rt-flow on your own frames: --start FILE --data sintel:PATH",
    model="rt-flow",
    start="rt-flow",
)

PRESETS: dict[str, Preset] = {
    "rt-synth": Preset(
        "RT from scratch on rendered scenes: small crops first, large ones and wide ranges last",
        stages=(Stage(320, 640, 16, 0.6), Stage(384, 768, 16, 0.2), Stage(512, 768, 16, 0.2)),
        sources=(SourceConfig("scenes", mirror=True),),
        optimizer=OptimizerConfig(kind="muon"),
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
    "rt-flow": FINE_TUNE_FLOW,
    "rt-finetune": FINE_TUNE,
    "rt": FINE_TUNE,
    "tiny-smoke": Preset(
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
    ),
}


def find_preset(name: str) -> Preset:
    """The preset of that name.

    Raises:
        InputError: There is none; the text names those there are.
    """
    if name not in PRESETS:
        raise InputError(f"unknown preset '{name}': choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
