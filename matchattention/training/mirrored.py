"""Every rendered pair twice: as it is, and later seen in a mirror, which costs nothing and is a pair as good."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.data.batch import Batch
from matchattention.training.lanes import Lane
from matchattention.training.sources import Source

BATCHES = 8  # rendered one after the other before their mirror images come, mixed among themselves


def mirrored(batch: Batch) -> Batch:
    """Flip the images; the right view of a mirrored pair is the mirror image of the left one, so views swap."""

    def flip(image: Tensor) -> Tensor:
        return image.flip(-1)

    def flip_field(field: Tensor) -> Tensor:
        x, y = field.flip(-2).unbind(-1)
        return torch.stack((-x, y), -1)

    return Batch(
        flip(batch.image1),
        flip(batch.image0),
        flip_field(batch.field1),
        flip_field(batch.field0),
        flip(batch.valid1),
        flip(batch.valid0),
        None if batch.occluded1 is None else flip(batch.occluded1),
        None if batch.occluded0 is None else flip(batch.occluded0),
    )


class MirroredAgain:
    """A source at half its cost: after `BATCHES` new batches come as many of their mirror images.

    A mirrored batch takes its samples from all of those before it, so that no step repeats another one. Every process
    mirrors what it has rendered itself.
    """

    def __init__(self, source: Source, lane: Lane | None = None) -> None:
        self.source = source
        self.lane = lane or Lane()
        self._kept: dict[int, Batch] = {}
        self._shape = (0, 0, 0)

    def batch(self, first: int, count: int, height: int, width: int) -> Batch:
        """See `Source.batch`; no pair comes twice the same way as long as ``count`` stays the same."""
        if self._shape != (count, height, width):
            self._kept.clear()
            self._shape = (count, height, width)
        round_, place = divmod(self.lane.own(first // count), 2 * BATCHES)
        if place < BATCHES:
            return self._new(round_ * BATCHES + place)
        sources = range(round_ * BATCHES, (round_ + 1) * BATCHES)
        pieces = [self._piece(number, index + place, count) for index, number in enumerate(sources)]
        joined = Batch(*(None if parts[0] is None else torch.cat(parts) for parts in zip(*pieces)))  # type: ignore[arg-type]
        return mirrored(joined)

    def _piece(self, number: int, place: int, count: int) -> Batch:
        """One of `BATCHES` nearly equal pieces of a batch."""
        place %= BATCHES
        part = slice(place * count // BATCHES, (place + 1) * count // BATCHES)
        return Batch(*(None if value is None else value[part] for value in self._new(number)))  # type: ignore[arg-type]

    def _new(self, number: int) -> Batch:
        """This process's batch ``number`` of the source, kept until its mirror images are through."""
        count, height, width = self._shape
        if number not in self._kept:
            for old in [n for n in self._kept if n // BATCHES != number // BATCHES]:
                del self._kept[old]
            self._kept[number] = self.source.batch(self.lane.slot(number) * count, count, height, width)
        return self._kept[number]
