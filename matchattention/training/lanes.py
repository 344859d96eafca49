"""Which requests of a training are one process's own: all others are made by the other processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Lane:
    """One process's way through the requests of a training.

    Request ``slot`` asks for samples ``slot * count`` to ``(slot + 1) * count - 1``. A step takes ``processes * parts``
    of them, neighbours: first those of the first process, then those of the second one.

    Attributes:
        rank: This process.
        processes: How many there are.
        parts: Micro-batches a step.
    """

    rank: int = 0
    processes: int = 1
    parts: int = 1

    def slot(self, own: int) -> int:
        """The request that is this process's ``own``-th, counted from zero."""
        step, part = divmod(own, self.parts)
        return (step * self.processes + self.rank) * self.parts + part

    def own(self, slot: int) -> int:
        """How many of its own requests this process has made before ``slot``: the inverse of `slot`."""
        step, place = divmod(slot, self.processes * self.parts)
        return step * self.parts + (place - self.rank * self.parts) % self.parts
