"""One pair after another, beside the page: the browser stays alive while the network works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, TypeVar

from torch import nn

from matchattention.layers.block import MATBlock

T = TypeVar("T")


class Progress:
    """What a job is doing, written by the worker and read by the page.

    Attributes:
        stage: in words.
        fraction: of the whole job, in [0, 1].
    """

    def __init__(self) -> None:
        self.stage = "Waiting for the pair before this one"
        self.fraction = 0.0

    def at(self, stage: str, fraction: float) -> None:
        self.stage, self.fraction = stage, fraction

    @contextmanager
    def of_blocks(self, network: nn.Module, start: float, end: float) -> Iterator[None]:
        """Move from `start` to `end` as the network's blocks finish.

        Images that are matched in strips or at two resolutions run through the blocks several times; the count
        then begins anew.
        """
        blocks = [module for module in network.modules() if isinstance(module, MATBlock)]
        finished = 0

        def count(*_: object) -> None:
            nonlocal finished
            block = finished % len(blocks) + 1
            finished += 1
            self.at(f"Matching: block {block} of {len(blocks)}", start + (end - start) * block / len(blocks))

        handles = [block.register_forward_hook(count) for block in blocks]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


class Job(Generic[T]):
    """A task under way.

    Attributes:
        progress: how far it is.
        future: its result.
    """

    def __init__(self, progress: Progress, future: Future[T]) -> None:
        self.progress = progress
        self.future = future


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
