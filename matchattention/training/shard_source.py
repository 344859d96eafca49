"""Shards as a source: each process reads shards of its own, shuffled, and continues where it stopped."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from matchattention.data.augmentation import AugmentationConfig, Pair, augment
from matchattention.data.batch import Batch
from matchattention.data.shards import ShardCache, read_shard_list
from matchattention.training.distributed import Replicas
from matchattention.training.file_source import collate, to_pair

WINDOW = 4  # shards whose samples are mixed with one another


class ShardSource:
    """Random augmented crops of a sharded dataset.

    In every epoch the shards are dealt to the processes in an order of the epoch's own, and the samples of a few shards
    at a time are mixed. Where there are fewer shards than processes, processes share them and take different samples.
    Sample i of a process depends on the seed, i and the number of processes alone, so that resuming needs no more.

    Args:
        url: See `read_shard_list`.
        seed: Decides order and augmentation.
        device: Where batches go.
        augmentation: Strengths; None for RAFT-Stereo's.
        replicas: This process among others.
        accumulate: Micro-batches a step, which stand between two requests of one process.
        workers: Decoding threads.
    """

    def __init__(
        self,
        url: str,
        seed: int,
        device: torch.device | str,
        augmentation: AugmentationConfig | None = None,
        replicas: Replicas | None = None,
        accumulate: int = 1,
        workers: int | None = None,
    ) -> None:
        self.shards = read_shard_list(url)
        self.seed, self.device = seed, torch.device(device)
        self.augmentation = augmentation or AugmentationConfig()
        self.replicas = replicas or Replicas()
        self.accumulate = accumulate
        self._cache = ShardCache(self.shards)
        self._pool = ThreadPoolExecutor(workers or min(16, os.cpu_count() or 4))
        self._ahead: dict[tuple[int, int, int], Future[Pair]] = {}
        self._orders: dict[int, list[tuple[int, int]]] = {}

    def order(self, epoch: int) -> list[tuple[int, int]]:
        """Shard and number of every sample of this process in an epoch, in order."""
        if epoch not in self._orders:
            rank, count = self.replicas.rank, self.replicas.count
            dice = np.random.default_rng((self.seed, epoch))
            numbers = dice.permutation(len(self.shards.names)).tolist()
            shared = len(numbers) < count
            own = numbers if shared else numbers[rank::count]
            found: list[tuple[int, int]] = []
            for first in range(0, len(own), WINDOW):
                window = [(s, i) for s in own[first : first + WINDOW] for i in range(self.shards.samples[s])]
                found += [window[place] for place in dice.permutation(len(window))]
            # Shared shards have one order for all, of which each process takes every n-th sample.
            found = found[rank::count] if shared else found
            self._orders = {**{e: o for e, o in self._orders.items() if e >= epoch - 1}, epoch: found}
        return self._orders[epoch]

    def batch(self, first: int, count: int, height: int, width: int) -> Batch:
        """See `Source.batch`; also starts decoding the batch after it."""
        begin = self._local(first, count)
        for index in range(begin, begin + 2 * count):
            key = (index, height, width)
            if key not in self._ahead:
                self._ahead[key] = self._pool.submit(self._load, *key)
        pairs = [self._ahead.pop((index, height, width)).result() for index in range(begin, begin + count)]
        upcoming = range(begin + count, begin + 2 * count)
        for key in [key for key in self._ahead if key[0] not in upcoming or key[1:] != (height, width)]:
            self._ahead.pop(key).cancel()
        return collate(pairs, self.device)

    def _local(self, first: int, count: int) -> int:
        """This process's own count of samples before ``first``: the other processes' requests lie in between."""
        slot = first // count
        parts, processes = self.accumulate, self.replicas.count
        step, place = divmod(slot, parts * processes)
        return (step * parts + (place - self.replicas.rank * parts) % parts) * count

    def _load(self, index: int, height: int, width: int) -> Pair:
        epoch = 0
        place = index
        # Epochs of one process differ by a few samples where shards do.
        while place >= len(self.order(epoch)):
            place -= len(self.order(epoch))
            epoch += 1
        shard, number = self.order(epoch)[place]
        sample = self._cache.get(shard)[number]
        dice = np.random.default_rng((self.seed, 1, self.replicas.rank, index))
        stereo = not hasattr(sample, "flow")
        return augment(to_pair(sample), dice, height, width, stereo=stereo, config=self.augmentation)
