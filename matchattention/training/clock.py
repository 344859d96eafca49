"""How much of a run is used up, by steps or by time since the process began."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from matchattention.errors import InputError

_IMPORTED = time.monotonic()


def process_age() -> float:
    """Seconds since this process started: imports and compiling count against a time limit too."""
    try:
        fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
        started = float(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, IndexError, ValueError, AttributeError):
        return time.monotonic() - _IMPORTED


def arm(minutes: float | None) -> None:
    """End the process with a sentence if its time is over before `disarm` says that the first step was made.

    Reading data, rendering and compiling come first and may take longer than somebody thought.
    """
    if minutes is None:
        return
    if not minutes > 0:
        raise InputError(f"--minutes must be above zero, not {minutes:g}")
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        return

    def over(number: int, frame: object) -> None:
        raise too_short(minutes)

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, max(minutes * 60 - process_age(), 1e-3))


def disarm() -> None:
    """The first step is made: from now on the loop watches the clock."""
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)


def too_short(minutes: float | None) -> InputError:
    """What to say to whoever gave too little time."""
    return InputError(
        f"{minutes or 0:g} minutes were over before the first step (starting, rendering and compiling count): "
        "nothing was trained and no model written; give more --minutes, a smaller --size or --batch"
    )


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
