"""One pair after another, beside the page: the browser stays alive while the network works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, TypeVar

from torch import nn

from matchattention.inference.block_progress import watching_blocks

T = TypeVar("T")


class Cancelled(Exception):
    """Somebody asked a job to stop, and it did."""


class Progress:
    """What a job is doing, written by the worker and read by the page.

    Attributes:
        stage: in words.
        fraction: of the whole job, in [0, 1].
    """

    def __init__(self) -> None:
        self.stage = "Waiting for the pair before this one"
        self.fraction = 0.0
        self._cancelled = False

    def at(self, stage: str, fraction: float) -> None:
        """Say what comes next.

        Raises:
            Cancelled: it is not wanted any more.
        """
        if self._cancelled:
            raise Cancelled
        self.stage, self.fraction = stage, fraction

    def cancel(self) -> None:
        """Stop at the next step."""
        self._cancelled = True
        self.stage = "Stopping after this step"

    @contextmanager
    def of_blocks(self, network: nn.Module, start: float, end: float) -> Iterator[None]:
        """Move from `start` to `end` as the network's blocks finish."""

        def count(block: int, blocks: int) -> None:
            self.at(f"Matching: block {block} of {blocks}", start + (end - start) * block / blocks)

        with watching_blocks(network, count):
            yield


class Job(Generic[T]):
    """A task under way.

    Attributes:
        progress: how far it is.
        future: its result.
    """

    def __init__(self, progress: Progress, future: Future[T]) -> None:
        self.progress = progress
        self.future = future

    def cancel(self) -> None:
        """Drop the task when it still waits, stop it at its next step when it runs."""
        if not self.future.cancel():
            self.progress.cancel()


class Worker:
    """A queue with one thread: two predictions at once would only slow each other down and double the memory."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="predict")

    def start(self, task: Callable[[Progress], T]) -> Job[T]:
        """Queue a task that reports its progress."""
        progress = Progress()
        return Job(progress, self._executor.submit(task, progress))

    def afterwards(self, task: Callable[[], object]) -> None:
        """Queue a clean-up: once it runs, no earlier task uses the files any more."""
        self._executor.submit(task)

    def stop(self) -> None:
        """Let the running task end and drop the rest."""
        self._executor.shutdown(wait=True, cancel_futures=True)
