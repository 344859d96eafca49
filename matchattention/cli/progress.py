"""A progress bar on standard error: redrawn in a terminal, one line an item in a log."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    """Counts items done.

    Args:
        total: how many there will be; None: unknown (a live camera).
        what: one item, in words ("pair", "frame").
        stream: where to write; standard error when None.
    """

    def __init__(self, total: int | None, what: str, stream: TextIO | None = None) -> None:
        self.total = total
        self.what = what
        self.done = 0
        self._worked = 0
        self._stream = sys.stderr if stream is None else stream
        self._started = time.monotonic()
        self._terminal = self._stream.isatty()

    def step(self, name: str, note: str = "", *, skipped: bool = False) -> None:
        """One item finished; `skipped` items do not count towards the speed."""
        self.done += 1
        self._worked += not skipped
        text = f"{self._bar()} {name}" + (f": {note}" if note else "") + self._left()
        if self._terminal:
            self._stream.write(f"\r\x1b[K{text}")
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Leave the terminal on a fresh line."""
        if self._terminal and self.done:
            self._stream.write("\n")

    def _bar(self) -> str:
        if self.total is None:
            return f"{self.what} {self.done}"
        filled = round(20 * self.done / max(1, self.total))
        return f"[{'#' * filled}{'.' * (20 - filled)}] {self.done}/{self.total}"

    def _left(self) -> str:
        if not self._worked:
            return ""
        seconds = (time.monotonic() - self._started) / self._worked
        text = f"  {seconds:.2f} s/{self.what}"
        if self.total is not None and self.done < self.total:
            text += f", {clock(seconds * (self.total - self.done))} left"
        return text


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
