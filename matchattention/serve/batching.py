"""Pairs of equal size that arrive together go through the network together."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from matchattention.inference.images import Image
from matchattention.inference.prediction import Prediction

Pair = tuple[Image, Image]
Matcher = Callable[[Sequence[Pair]], Sequence[Prediction]]


@dataclass
class _Job:
    pair: Pair
    future: Future[Prediction] = field(default_factory=Future)
    arrival: float = field(default_factory=time.monotonic)


class Batcher:
    """A queue with one thread in front of the network.

    While the network works, requests gather; the next batch is the oldest one and those of its size. A job whose
    future was cancelled (its client timed out) is dropped before it costs anything.

    Args:
        match: predictions of pairs of one size.
        largest_batch: pairs at once.
        wait_s: how long the oldest job waits for others of its size when the network is idle.
        largest_batch_pixels: pixels of all left images of a batch; larger images go through one by one.
        observe: told the size and the seconds of every batch.
    """

    def __init__(
        self,
        match: Matcher,
        *,
        largest_batch: int = 4,
        wait_s: float = 0.002,
        largest_batch_pixels: int = 4_200_000,
        observe: Callable[[int, float], None] = lambda pairs, seconds: None,
    ) -> None:
        self._match = match
        self._largest_batch = largest_batch
        self._wait = wait_s
        self._largest_batch_pixels = largest_batch_pixels
        self._observe = observe
        self._waiting: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="match", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Pairs that wait."""
        return len(self._waiting)

    @property
    def alive(self) -> bool:
        """Whether new jobs are taken and worked on."""
        return self._thread.is_alive() and not self._closing

    def submit(self, pairs: Sequence[Pair]) -> list[Future[Prediction]]:
        """Queue pairs; each future ends with its prediction or its error."""
        jobs = [_Job(pair) for pair in pairs]
        with self._changed:
            if self._closing:
                raise RuntimeError("the batcher is closed")
            self._waiting.extend(jobs)
            self._changed.notify()
        return [job.future for job in jobs]

    def close(self) -> None:
        """Finish what was queued, then end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            started = time.perf_counter()
            self._run(batch)
            self._observe(len(batch), time.perf_counter() - started)
            del batch  # while nothing comes, nothing is kept

    def _run(self, batch: list[_Job]) -> None:
        try:
            predictions = self._match([job.pair for job in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0].future.set_exception(error)
                return
            for job in batch:  # one pair must not fail the others
                self._run([job])
            return
        for job, prediction in zip(batch, predictions, strict=True):
            job.future.set_result(prediction)

    def _next_batch(self) -> list[_Job]:
        """The oldest job and those of its size; empty at the end."""
        with self._changed:
            while True:
                self._drop_cancelled()
                if self._waiting:
                    batch = self._of_oldest_size()
                    ready_at = self._waiting[0].arrival + self._wait
                    left = ready_at - time.monotonic()
                    if self._closing or left <= 0 or len(batch) == self._most(batch[0]):
                        break
                    self._changed.wait(left)
                elif self._closing:
                    return []
                else:
                    self._changed.wait()
            chosen = {id(job) for job in batch}
            self._waiting = deque(job for job in self._waiting if id(job) not in chosen)
        return [job for job in batch if job.future.set_running_or_notify_cancel()] or self._next_batch()

    def _drop_cancelled(self) -> None:
        self._waiting = deque(job for job in self._waiting if not job.future.cancelled())

    def _of_oldest_size(self) -> list[_Job]:
        oldest = self._waiting[0]
        size = oldest.pair[0].shape
        return [job for job in self._waiting if job.pair[0].shape == size][: self._most(oldest)]

    def _most(self, job: _Job) -> int:
        height, width = job.pair[0].shape[:2]
        return max(1, min(self._largest_batch, self._largest_batch_pixels // (height * width)))
