"""Shards as a source: each process reads shards of its own, shuffled, and continues where it stopped."""

from __future__ import annotations

import threading
from bisect import bisect_right

import numpy as np
import torch

from matchattention.data.augmentation import AugmentationConfig, Pair, augment
from matchattention.data.shards import ShardCache, read_shard_list
from matchattention.training.file_source import DecodedAhead, to_pair
from matchattention.training.lanes import Lane

WINDOW = 4  # shards whose samples are mixed with one another


class ShardSource(DecodedAhead):
    """Random augmented crops of a sharded dataset.

    In every epoch the shards are dealt to the processes in an order of the epoch's own, and the samples of a few shards
    at a time are mixed. Where there are fewer shards than processes, processes share them and take different samples.
    Sample i of a process depends on the seed, i and the number of processes alone, so that resuming needs no more.

    Args:
        url: See `read_shard_list`.
        seed: Decides order and augmentation.
        device: Where batches go.
        augmentation: Strengths; None for RAFT-Stereo's.
        lane: This process's way through the requests.
        workers: Decoding threads.
    """

    def __init__(
        self,
        url: str,
        seed: int,
        device: torch.device | str,
        augmentation: AugmentationConfig | None = None,
        lane: Lane | None = None,
        workers: int | None = None,
    ) -> None:
        super().__init__(device, augmentation, lane, workers)
        self.shards = read_shard_list(url)
        self.seed = seed
        self._cache = ShardCache(self.shards)
        self._share_shards = len(self.shards.names) < self.lane.processes
        self._orders: dict[int, list[tuple[int, int]]] = {}
        self._ends = [0]  # of the epochs, counted in this process's samples
        self._lock = threading.Lock()

    def order(self, epoch: int) -> list[tuple[int, int]]:
        """Shard and number of every sample of this process in an epoch, in order."""
        known = self._orders.get(epoch)
        if known is not None:
            return known
        own, dice = self._deal(epoch)
        found: list[tuple[int, int]] = []
        for first in range(0, len(own), WINDOW):
            window = [(s, i) for s in own[first : first + WINDOW] for i in range(self.shards.samples[s])]
            found += [window[place] for place in dice.permutation(len(window))]
        # Shared shards have one order for all, of which each process takes every n-th sample.
        found = found[self.lane.rank :: self.lane.processes] if self._share_shards else found
        self._orders = {**{e: o for e, o in self._orders.items() if e >= epoch - 1}, epoch: found}
        return found

    def _deal(self, epoch: int) -> tuple[list[int], np.random.Generator]:
        """This process's shards of an epoch, and the dice that mix their samples."""
        dice = np.random.default_rng((self.seed, epoch))
        numbers = dice.permutation(len(self.shards.names)).tolist()
        return numbers if self._share_shards else numbers[self.lane.rank :: self.lane.processes], dice

    def _length(self, epoch: int) -> int:
        if self._share_shards:
            return len(range(self.lane.rank, self.shards.total, self.lane.processes))
        return sum(self.shards.samples[shard] for shard in self._deal(epoch)[0])

    def place(self, number: int) -> tuple[int, int]:
        """Epoch of this process's sample ``number``, and its place there: epochs differ in length where shards do."""
        with self._lock:
            while number >= self._ends[-1]:
                self._ends.append(self._ends[-1] + self._length(len(self._ends) - 1))
        epoch = bisect_right(self._ends, number) - 1
        return epoch, number - self._ends[epoch]

    def numbers(self, first: int, count: int) -> range:
        """Counted by this process alone: the other processes' requests lie in between."""
        begin = self.lane.own(first // count) * count
        return range(begin, begin + count)

    def load(self, number: int, height: int, width: int) -> Pair:
        """This process's sample ``number``."""
        epoch, place = self.place(number)
        shard, place = self.order(epoch)[place]
        sample = self._cache.get(shard)[place]
        dice = np.random.default_rng((self.seed, 1, self.lane.rank, number))
        stereo = not hasattr(sample, "flow")
        return augment(to_pair(sample), dice, height, width, stereo=stereo, config=self.augmentation)
