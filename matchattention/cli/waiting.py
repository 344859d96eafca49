"""A sign of life on standard error while one long piece of work is under way."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TextIO

from matchattention.cli.progress import clock

_PATIENCE = 2.0  # seconds in which nothing need be said
_REDRAW = 0.5  # seconds, in a terminal
_LOG_EVERY = 15.0  # seconds between lines where nothing can be redrawn


class Waiting:
    """Says what is going on and for how long; quick work stays silent.

    ```python
    with Waiting("matching") as waiting:
        waiting.at("block 3 of 26")
    ```

    Args:
        what: the work, in words.
        stream: where to write; standard error when None.
        patience: seconds before the first word.
    """

    def __init__(self, what: str, stream: TextIO | None = None, patience: float | None = None) -> None:
        self.what = what
        self._step = ""
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._patience = _PATIENCE if patience is None else patience
        self._started = time.monotonic()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._drawn = False
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def at(self, step: str) -> None:
        """Say what is being done now."""
        self._step = step

    def say(self, line: str) -> None:
        """Print a line on standard output without mixing it with the redrawn one."""
        with self._lock:
            self._clear()
            print(line, flush=True)

    def __enter__(self) -> Waiting:
        self._started = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        with self._lock:
            self._clear()

    def _tell(self) -> None:
        pause = self._patience
        while not self._over.wait(pause):
            with self._lock:
                words = f"{self.what}: {self._step}" if self._step else self.what
                text = f"{words}, {clock(time.monotonic() - self._started)}"
                self._stream.write(f"\r\x1b[K{text}" if self._terminal else text + "\n")
                self._stream.flush()
                self._drawn = self._terminal
            pause = _REDRAW if self._terminal else _LOG_EVERY

    def _clear(self) -> None:
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = False
