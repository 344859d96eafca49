"""Learning rates, by steps or by time, in a form that can be continued."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from matchattention.errors import InputError


@dataclass(frozen=True)
class ScheduleConfig:
    """How the learning rate moves.

    ``constant`` warms up and stays at the peak for as long as anyone wants to go on; a run that is to end
    well cools down over its last part, and the state saved before the cool-down can be continued too.
    ``one-cycle`` spreads one rise and one fall over the whole run.

    Attributes:
        kind: "constant" or "one-cycle".
        peak: Largest learning rate.
        warmup_steps: Steps of linear rise from ``peak / 25``, counted over all runs.
        cooldown: Whether a constant schedule falls at the end of this run.
        cooldown_fraction: Last share of the run in which it falls.
        final_ratio: Learning rate at the end, relative to the peak.
    """

    kind: Literal["constant", "one-cycle"] = "constant"
    peak: float = 5e-4
    warmup_steps: int = 400
    cooldown: bool = False
    cooldown_fraction: float = 0.3
    final_ratio: float = 0.01

    def __post_init__(self) -> None:
        if self.kind not in ("constant", "one-cycle"):
            raise InputError(f"Unknown schedule '{self.kind}': choose constant or one-cycle")
        if not 0 < self.cooldown_fraction <= 1:
            raise InputError("The cool-down's share of the run must lie in (0, 1]")


def learning_rate(config: ScheduleConfig, step: int, progress: float, restarted_at: int = 0) -> float:
    """The learning rate of one step.

    Args:
        config: The schedule.
        step: Steps made so far, over all runs.
        progress: How much of this run's steps or time is used up, 0 to 1.
        restarted_at: Step at which the optimizer's moments were last empty; warming up begins there.
    """
    progress = min(max(progress, 0.0), 1.0)
    rise = min(1.0, (step - restarted_at + 1) / max(config.warmup_steps, 1))
    warm = 1 / 25 + (1 - 1 / 25) * rise
    begin = 0.0 if config.kind == "one-cycle" else 1 - config.cooldown_fraction
    fall = 0.0
    if (config.kind == "one-cycle" or config.cooldown) and progress > begin:
        fall = (progress - begin) / (1 - begin)
    return config.peak * warm * (1 - (1 - config.final_ratio) * fall)
