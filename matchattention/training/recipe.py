"""What a training is made of, as data: crops, sources of pairs, objective, optimizer, schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from matchattention.data.augmentation import AugmentationConfig
from matchattention.errors import InputError
from matchattention.models.config import NetworkConfig
from matchattention.training.distillation import DistillationConfig
from matchattention.training.losses import LossConfig
from matchattention.training.optimizer import OptimizerConfig
from matchattention.training.schedule import ScheduleConfig


@dataclass(frozen=True)
class Stage:
    """A part of a run at one crop size.

    Attributes:
        height: px, a multiple of 32.
        width: px, a multiple of 32.
        batch: Pairs a step, over all processes and accumulated micro-batches.
        share: Part of the run's steps or time.
    """

    height: int
    width: int
    batch: int
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.height % 32 or self.width % 32 or self.height < 32 or self.width < 32:
            raise InputError(f"Crops are multiples of 32 px, not {self.height}x{self.width}")
        if self.batch < 1:
            raise InputError(f"A batch holds at least one pair, not {self.batch}")


@dataclass(frozen=True)
class SourceConfig:
    """A supply of pairs.

    Attributes:
        kind: "scenes" (rendered), "photos" (photos cut into layers), "moving-photos" (the same for flow), "data"
            (files), "cards" (a test).
        weight: Share of each batch, relative to the other sources.
        preset: The renderer's preset, the photo bank's file, or NAME[/SPLIT]:PATH of a dataset; empty for the usual. A
            dataset without a path gets it from the command line.
        pool: Repeat the first samples instead of making new ones for ever, for renderers on a CPU; 0 for no.
        mirror: Train on every pair twice, the second time on its mirror image: rendering costs half as much.
        augmentation: How pairs from files are changed; None for RAFT-Stereo's.
        layout: File names of ``folder`` and ``folder-flow``, by the names of `FolderPatterns`.
        held_out: Share of a dataset's pairs that is never trained on, to measure with.
    """

    kind: Literal["scenes", "photos", "moving-photos", "data", "cards"]
    weight: float = 1.0
    preset: str = ""
    pool: int = 0
    mirror: bool = False
    augmentation: AugmentationConfig | None = None
    layout: Mapping[str, Any] | None = None
    held_out: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1:
            raise InputError(f"The share of pairs held out must lie in [0, 1), not {self.held_out:g}")

    @property
    def dataset(self) -> str:
        """The dataset's name without split and path; empty for rendered sources."""
        return self.preset.partition(":")[0].partition("/")[0] if self.kind == "data" else ""


@dataclass(frozen=True)
class Preset:
    """A whole training.

    Attributes:
        summary: One line for the command line's help.
        model: A registered network's name, or a config.
        start: Weights to begin with: None for random ones, else a shipped model's name or a file.
        fine_tunes: Whether it is meant for trained weights alone, and refuses to begin with random ones.
        stages: Crop sizes in order.
        sources: Where pairs come from.
        loss: The objective.
        optimizer: AdamW or Muon, and averaging.
        schedule: Learning rates.
        distillation: A fixed teacher beside the ground truth, or None.
        accumulate: Micro-batches a step, one after the other: a step's batch need not fit into memory at once.
        recompute: Forget activations inside blocks and compute them again on the way back (activation checkpointing):
            a third more arithmetic for a fraction of the memory.
        batch_norm: Batch norm between scales while training; checkpoints have it folded in.
        mixed_precision: bf16 features on a GPU.
        minutes: Time limit of a run's process; None for none.
        steps: Total steps over all runs; None for none.
        seed: Random seed of weights, sources and augmentation.
        validation_pairs: Held-out rendered pairs.
        validation_size: Their height and width.
    """

    summary: str
    model: str | NetworkConfig = "rt"
    start: str | None = None
    fine_tunes: bool = False
    stages: tuple[Stage, ...] = (Stage(320, 640, 32),)
    sources: tuple[SourceConfig, ...] = (SourceConfig("scenes"),)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    distillation: DistillationConfig | None = None
    accumulate: int = 1
    recompute: bool = False
    batch_norm: bool = True
    mixed_precision: bool = True
    minutes: float | None = 9.0
    steps: int | None = None
    seed: int = 0
    validation_pairs: int = 16
    validation_size: tuple[int, int] = (384, 768)

    def __post_init__(self) -> None:
        if self.accumulate < 1:
            raise InputError(f"A step takes at least one micro-batch, not {self.accumulate}")
        for stage in self.stages:
            if stage.batch % self.accumulate:
                raise InputError(
                    f"A batch of {stage.batch} does not divide into {self.accumulate} micro-batches: "
                    f"choose --accumulate so that it does"
                )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as stored beside the weights: of files their names, not where they lie on this machine."""
        values = dataclasses.asdict(self)
        if self.start is not None:
            values["start"] = Path(self.start).name
        if self.distillation is not None:
            values["distillation"]["teacher"] = Path(self.distillation.teacher).name
        for source in values["sources"]:
            name, separator, path = (
                source["preset"].partition(":") if source["kind"] == "data" else ("", "", source["preset"])
            )
            source["preset"] = name + separator + Path(path).name
        return values
