"""Where training pairs come from: one interface, several sources, mixed within every batch.

A source has no state: sample i of a seed is always the same pair. A training that continues asks for the
next index, and several processes ask for different ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from matchattention.data.batch import Batch
from matchattention.errors import InputError
from matchattention.training.lanes import Lane


class Source(Protocol):
    """An endless, indexable supply of pairs."""

    def batch(self, first: int, count: int, height: int, width: int) -> Batch:
        """Samples ``first`` … ``first + count - 1`` at one size, on the source's device."""
        ...


def shares(weights: Sequence[float], count: int) -> list[int]:
    """How many of ``count`` samples each source gives: by weight, at least one each.

    Fixed counts keep every batch of a training at the same shapes.
    """
    if len(weights) > count:
        raise InputError(f"A batch of {count} cannot hold samples of {len(weights)} sources: enlarge the batch")
    _check_weights(weights)
    exact = [weight / sum(weights) * count for weight in weights]
    given = [max(1, int(value)) for value in exact]
    while sum(given) > count:
        largest = max(range(len(given)), key=lambda i: (given[i] - exact[i], given[i]) if given[i] > 1 else (-1e9, 0))
        given[largest] -= 1
    while sum(given) < count:
        neediest = max(range(len(given)), key=lambda i: exact[i] - given[i])
        given[neediest] += 1
    return given


def _check_weights(weights: Sequence[float]) -> None:
    if any(weight <= 0 for weight in weights):
        raise InputError("Every source needs a weight above zero")


class TakingTurns:
    """Which source a sample comes from when a batch cannot hold all of them by weight: each as often as its weight.

    The sources' turns repeat after `ROUND` samples, in which each has at least one.
    """

    ROUND = 64

    def __init__(self, weights: Sequence[float]) -> None:
        counts = shares(weights, max(self.ROUND, len(weights)))
        # Turn k of n of a source comes (k + 1/2) / n of the way through the round: all are spread evenly.
        places = [((k + 0.5) / n, source) for source, n in enumerate(counts) for k in range(n)]
        self.order = [source for _, source in sorted(places)]
        self.counts = counts

    def before(self, index: int, source: int) -> int:
        """How many of the samples before ``index`` come from ``source``."""
        rounds, turn = divmod(index, len(self.order))
        return rounds * self.counts[source] + self.order[:turn].count(source)


def concatenate(batches: Sequence[Batch]) -> Batch:
    """One batch of several; occlusion is kept only where all of them know it."""
    if len(batches) == 1:
        return batches[0]

    def joined(name: str) -> torch.Tensor | None:
        parts = [getattr(batch, name) for batch in batches]
        return None if any(part is None for part in parts) else torch.cat(parts)

    return Batch(*(joined(name) for name in Batch._fields))  # type: ignore[arg-type]


class MixedSource:
    """Several sources in every batch, by weight.

    Each source counts its own samples: after n batches it has given n times its share. Where a process's part of a
    batch does not divide by the weights, the sources take turns, so that a mixture is the same however many processes
    make it. Renderers give the same number of samples every time, which is what they are built for, unless there are
    fewer samples than sources.

    Args:
        sources: Of samples.
        weights: Of the sources, relative to one another.
        lane: This process's way through the requests.
        renders: Whether some of the sources are renderers.
    """

    def __init__(
        self, sources: Sequence[Source], weights: Sequence[float], lane: Lane | None = None, renders: bool = True
    ) -> None:
        _check_weights(weights)
        self.sources = list(sources)
        self.weights = list(weights)
        self.lane = lane or Lane()
        self.renders = renders
        self._turns = TakingTurns(weights)

    def batch(self, first: int, count: int, height: int, width: int) -> Batch:
        """See `Source.batch`; no sample repeats as long as ``count`` stays the same."""
        slot = first // count
        if count >= len(self.sources) and (self.renders or self._divides(count)):
            given = zip(self.sources, shares(self.weights, count))
            return concatenate([source.batch(slot * share, share, height, width) for source, share in given])
        # The processes begin one behind the other in the round, so that together a step's samples are a mixture too.
        begin = (self.lane.own(slot) + self.lane.rank * self.lane.parts) * count
        parts = [
            source.batch(self.lane.slot(own), 1, height, width)
            for number, source in enumerate(self.sources)
            for own in range(self._turns.before(begin, number), self._turns.before(begin + count, number))
        ]
        return concatenate(parts)

    def _divides(self, count: int) -> bool:
        exact = [weight / sum(self.weights) * count for weight in self.weights]
        return all(value >= 1 and abs(value - round(value)) < 1e-6 for value in exact)


class ShiftedCards:
    """The simplest pairs with exact ground truth: a textured card in front of a textured wall.

    Both are parallel to the image and move by whole pixels, so that either view is exact without
    interpolation. For tests, and for checking a machine before the renderer is trusted.
    """

    def __init__(self, seed: int, device: torch.device | str = "cpu", largest: float = 0.3) -> None:
        self.seed = seed
        self.device = torch.device(device)
        self.largest = largest

    def batch(self, first: int, count: int, height: int, width: int) -> Batch:
        """See `Source.batch`."""
        pairs = [self._pair(first + index, height, width) for index in range(count)]
        return Batch(*(torch.stack(parts).to(self.device) for parts in zip(*pairs)))

    def _pair(self, index: int, height: int, width: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + index) % (1 << 62))

        def integer(low: int, high: int) -> int:
            return int(torch.randint(low, max(high, low + 1), (), generator=generator))

        def texture(columns: int) -> torch.Tensor:
            canvas = torch.zeros(3, height, columns)
            for octave in (4, 2, 1):
                small = torch.rand(3, -(-height // octave), -(-columns // octave), generator=generator)
                grown = small.repeat_interleave(octave, 1).repeat_interleave(octave, 2)
                canvas += grown[:, :height, :columns] * (85 * octave / 2.5)
            return canvas.clamp(0, 255)

        most = max(int(self.largest * width), 2)
        far, near = sorted((integer(0, most), integer(0, most)))
        card_width, card_height = integer(width // 4, width // 2), integer(height // 4, height // 2)
        left, top = integer(near, width - card_width), integer(0, height - card_height)
        wall, card = texture(width + far), texture(card_width)[:, :card_height]
        # Wall texture column c is pixel c of the left view and c - far of the right one.
        rows, columns = slice(top, top + card_height), slice(left, left + card_width)
        shifted = slice(max(left - near, 0), left - near + card_width)
        image0, image1 = wall[:, :, :width].clone(), wall[:, :, far : far + width].clone()
        image0[:, rows, columns] = card
        image1[:, rows, shifted] = card
        disparity0, disparity1 = torch.full((height, width), float(far)), torch.full((height, width), float(far))
        disparity0[rows, columns] = near
        disparity1[rows, shifted] = near
        x = torch.arange(width).expand(height, width)
        match0, match1 = x - disparity0.long(), x + disparity1.long()
        seen0 = disparity1.gather(1, match0.clamp(0)) == disparity0
        seen1 = disparity0.gather(1, match1.clamp(max=width - 1)) == disparity1
        zeros = torch.zeros_like(disparity0)
        known = torch.ones(height, width, dtype=torch.bool)
        return (
            image0,
            image1,
            torch.stack((-disparity0, zeros), -1),
            torch.stack((disparity1, zeros), -1),
            known,
            known,
            (match0 < 0) | ~seen0,
            (match1 >= width) | ~seen1,
        )


class FinitePool:
    """The first samples of a source again and again, kept in memory: for small sets and slow renderers."""

    def __init__(self, source: Source, samples: int) -> None:
        self.source = source
        self.samples = samples
        self._kept: dict[tuple[int, int], Batch] = {}

    def batch(self, first: int, count: int, height: int, width: int) -> Batch:
        """See `Source.batch`; sample i is sample ``i % samples`` of the source."""
        if (height, width) not in self._kept:
            self._kept[height, width] = self.source.batch(0, self.samples, height, width)
        kept = self._kept[height, width]
        index = torch.arange(first, first + count, device=kept.image0.device) % self.samples
        return Batch(*(None if value is None else value[index] for value in kept))  # type: ignore[arg-type]
