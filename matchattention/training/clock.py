"""How much of a run is used up, by steps or by time since the process began."""

from __future__ import annotations

import os
import time
from pathlib import Path

_IMPORTED = time.monotonic()


def process_age() -> float:
    """Seconds since this process started: imports and compiling count against a time limit too."""
    try:
        fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
        started = float(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, IndexError, ValueError, AttributeError):
        return time.monotonic() - _IMPORTED


class RunClock:
    """Progress of one run, 0 to 1.

    Time is measured from the first step to the deadline, so that compiling does not eat the schedule.

    Args:
        minutes: Time limit of the process, everything included; None for none.
        steps: Total steps over all runs; None for none.
        reserve: Seconds kept at the end for validating and saving.
    """

    def __init__(self, minutes: float | None, steps: int | None, reserve: float) -> None:
        self.steps = steps
        self.reserve = reserve
        self._deadline = None if minutes is None else time.monotonic() + minutes * 60 - process_age()
        self._began: float | None = None

    def begin(self) -> None:
        """The first step is about to run."""
        if self._began is None:
            self._began = time.monotonic()

    def time_left(self) -> float | None:
        """Seconds of training left; None without a time limit."""
        return None if self._deadline is None else self._deadline - self.reserve - time.monotonic()

    def progress(self, step: int) -> float:
        """Share used up, 0 to 1: of the steps where their number is given, else of the time."""
        if self.steps:
            return min(step / self.steps, 1.0)
        left = self.time_left()
        if left is None:
            return 0.0
        spent = 0.0 if self._began is None else time.monotonic() - self._began
        return 1.0 if left <= 0 else spent / (spent + left)

    def is_over(self, step: int) -> bool:
        """Whether either limit is reached."""
        left = self.time_left()
        return (self.steps is not None and step >= self.steps) or (left is not None and left <= 0)
