"""What every row of a table gets: the same pairs, or the same minutes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from matchattention.errors import InputError
from matchattention.models.config import NetworkConfig
from matchattention.models.registry import network_config
from matchattention.synth.world.config import PRESETS, SceneConfig
from matchattention.training.presets import TINY
from matchattention.training.schedule import ScheduleConfig


@dataclass(frozen=True)
class Budget:
    """Settings that all runs of one results file share; two files with other ones do not compare.

    Attributes:
        base: The baseline network's name, or "tiny" for tests.
        scenes: The renderer's preset.
        height: Of the pairs, px.
        width: Of the pairs, px.
        batch: Pairs a step.
        pairs: Pairs a training sees; None where ``minutes`` counts.
        minutes: Training time of each; None where ``pairs`` counts.
        pool: Rendered pairs; each comes as it is and mirrored before any comes again.
        held_out: Pairs of each kind of scene to measure on.
        rate: Peak learning rate.
        photos: Whether a photo bank was there: scenes without one have other textures.
    """

    base: str = "rt"
    scenes: str = "mixed"
    height: int = 256
    width: int = 512
    batch: int = 16
    pairs: int | None = 12288
    minutes: float | None = None
    pool: int = 6144
    held_out: int = 48
    rate: float = 8e-4
    photos: bool = False

    def __post_init__(self) -> None:
        if (self.pairs is None) == (self.minutes is None):
            raise InputError("A budget is either pairs or minutes: give one of --pairs and --minutes.")
        if self.height % 32 or self.width % 32 or min(self.height, self.width) < 32:
            raise InputError(f"Pairs are multiples of 32 px a side, not {self.height}x{self.width}.")
        if min(self.batch, self.pool, self.held_out) < 1:
            raise InputError("--batch, --pool and --held-out are at least 1.")
        if self.pairs is not None and self.pairs < self.batch:
            raise InputError(f"--pairs {self.pairs} is less than one batch of {self.batch}.")
        if self.minutes is not None and not self.minutes > 0:
            raise InputError("--minutes must be above zero.")
        if self.scenes not in PRESETS:
            raise InputError(f"There are no scenes '{self.scenes}'; choose one of {', '.join(PRESETS)}.")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width, px."""
        return self.height, self.width

    @property
    def steps(self) -> int | None:
        """Updates of a training; None where time counts."""
        return None if self.pairs is None else self.pairs // self.batch

    def network(self) -> NetworkConfig:
        """The baseline's config."""
        return TINY if self.base == "tiny" else network_config(self.base)

    def scene_config(self) -> SceneConfig:
        """The baseline's scenes."""
        return PRESETS[self.scenes]

    def schedule(self) -> ScheduleConfig:
        """A short rise, then a linear fall to nearly nothing: what trained RT from scratch without help."""
        warm_up = 200 if self.steps is None else max(1, min(200, self.steps // 8))
        return ScheduleConfig(peak=self.rate, warmup_steps=warm_up, cooldown=True, cooldown_fraction=0.9)

    def average_decay(self) -> float:
        """The average of the weights spans the last twentieth of a training."""
        steps = 1000 if self.steps is None else self.steps
        return 1 - 1 / max(10.0, steps / 20)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)
