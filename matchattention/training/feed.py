"""The next batch is made while the present one is trained on."""

from __future__ import annotations

import logging
import time
from collections import deque

import torch

from matchattention.data.batch import Batch
from matchattention.errors import InputError
from matchattention.training.sources import Source
from matchattention.training.step import TrainingStep

# Steps the host may be ahead of the GPU: enough to keep it busy, few enough for an honest clock.
STEPS_AHEAD = 2
SUBSTITUTES = 2
FAR_AWAY = 1_000_000  # batches: beyond what a training sees

logger = logging.getLogger(__name__)


class Feed:
    """Draws batches from a source and runs steps on them; on a GPU both overlap.

    The source works on a stream of its own. Its memory is reused only after the step has consumed it, and
    the host waits when it is more than two steps ahead.

    Attributes:
        idle: Seconds the host has waited so: none of it means that drawing or launching sets the pace, not the GPU.
    """

    def __init__(self, source: Source, step: TrainingStep) -> None:
        self.source = source
        self.step = step
        on_gpu = step.device.type == "cuda"
        self._stream = torch.cuda.Stream(priority=-1) if on_gpu else None
        self._ready: tuple[tuple[int, int, int, int], Batch] | None = None
        self._finished: deque[torch.cuda.Event] = deque()
        self.idle = 0.0

    def draw(self, first: int, count: int, height: int, width: int) -> Batch:
        """The samples asked for, made ahead if they were the expected ones."""
        request = (first, count, height, width)
        if self._ready is not None and self._ready[0] == request:
            batch = self._ready[1]
            self._ready = None
            return batch
        self._ready = None
        return self._make(request)

    def _draw_from_source(self, first: int, count: int, height: int, width: int) -> Batch:
        """A batch that cannot be made costs its samples, not the training: others take its place."""
        for substitute in range(SUBSTITUTES):
            try:
                return self.source.batch(first + substitute * FAR_AWAY * count, count, height, width)
            except InputError:
                raise
            except Exception as error:
                logger.warning("samples %d to %d could not be made: %s", first, first + count - 1, error)
        return self.source.batch(first + SUBSTITUTES * FAR_AWAY * count, count, height, width)

    def _make(self, request: tuple[int, int, int, int]) -> Batch:
        if self._stream is None:
            return self._draw_from_source(*request)
        with torch.cuda.stream(self._stream):
            batch = self._draw_from_source(*request)
            return Batch(*(v if v is None else v.to(self.step.device, non_blocking=True) for v in batch))  # type: ignore[arg-type]

    def example(self, first: int, count: int, height: int, width: int) -> Batch:
        """A batch that is ready on the device, for preparing a step."""
        batch = self.draw(first, count, height, width)
        self.wait()
        return batch

    def train(
        self,
        request: tuple[int, int, int, int],
        upcoming: int,
        learning_rate: float,
        average_steps: int,
        *,
        first: bool = True,
        last: bool = True,
    ) -> None:
        """Train on the requested samples; ``upcoming`` is the first sample of the next request.

        ``first`` and ``last`` say where in a step of several micro-batches this one stands, see `TrainingStep`.
        """
        batch = self.draw(*request)
        if self._stream is None:
            self.step(batch, learning_rate, average_steps, first=first, last=last)
            return
        with torch.cuda.stream(self._stream):
            self.step(batch, learning_rate, average_steps, first=first, last=last)
        assert self.step.consumed is not None
        assert self.step.finished is not None
        self._stream.wait_event(self.step.consumed)
        del batch
        self._finished.append(self.step.finished)
        following = (upcoming, *request[1:])
        self._ready = (following, self._make(following))
        if len(self._finished) > STEPS_AHEAD:
            began = time.monotonic()
            self._finished.popleft().synchronize()
            self.idle += time.monotonic() - began

    def wait(self) -> None:
        """Until everything asked of the GPU is done."""
        self._finished.clear()
        if self._stream is not None:
            torch.cuda.synchronize()
