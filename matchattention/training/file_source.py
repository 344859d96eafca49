"""Datasets on disk as a source: decoded and augmented by threads, ahead of the training."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from matchattention.data.augmentation import AugmentationConfig, Pair, augment
from matchattention.data.batch import Batch
from matchattention.errors import InputError
from matchattention.training.lanes import Lane

LEAST_AHEAD = 4  # samples


def shards_address(text: str) -> str | None:
    """Where the shards of ``shards:URL`` or ``NAME/shards:URL`` lie; None when a text names no shards."""
    name, _, path = text.partition(":")
    return path if name == "shards" or name.endswith("/shards") else None


def open_samples(text: str, layout: Mapping[str, Any] | None = None) -> Sequence[Any]:
    """The samples of ``NAME:PATH`` or ``NAME/SPLIT:PATH``, the datasets' names as in `evaluate`, or of shards.

    Args:
        text: Which dataset, and where it lies.
        layout: File names of ``folder`` and ``folder-flow``, by the names of `FolderPatterns`.
    """
    name, separator, path = text.partition(":")
    if not separator or not path:
        raise InputError(f"--data takes NAME:PATH, such as folder:{text}")
    if shards_address(text) is not None:
        from matchattention.data.shards import ShardedSamples

        return ShardedSamples(path)
    name, _, split = name.partition("/")
    from matchattention.data import datasets

    patterns = None
    if layout:
        defaults = datasets.FLOW_PATTERNS if name == "folder-flow" else datasets.FolderPatterns()
        patterns = replace(defaults, **layout)
    return datasets.open(name, Path(path), split or None, patterns)


class Chosen(Sequence[Any]):
    """Some samples of a dataset, by their numbers."""

    def __init__(self, samples: Sequence[Any], numbers: Sequence[int]) -> None:
        self.samples, self.numbers = samples, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.samples[self.numbers[index]]


def to_pair(sample: Any) -> Pair:
    """A dataset's sample as a pair of fields.

    Stereo samples without the right view's ground truth, and flow samples, leave view 1 unsupervised.
    """
    if hasattr(sample, "flow"):
        flow = _required(sample.flow, sample.name)
        valid = np.isfinite(flow).all(-1)
        field0 = np.where(valid[..., None], flow, 0).astype(np.float32)
        nothing = np.zeros_like(valid)
        return Pair(sample.frame1, sample.frame2, field0, valid, np.zeros_like(field0), nothing)
    disparity = _required(sample.disparity, sample.name)
    field0, valid0 = _horizontal(disparity, -1)
    right = sample.disparity_right
    if right is None:
        field1, valid1 = np.zeros_like(field0), np.zeros_like(valid0)
    else:
        field1, valid1 = _horizontal(right, 1)
    return Pair(sample.left, sample.right, field0, valid0, field1, valid1)


def _required(truth: Any, name: str) -> Any:
    if truth is None:
        raise InputError(f"{name} has no ground truth: train on a split that has it")
    return truth


def _horizontal(disparity: np.ndarray, sign: int) -> tuple[np.ndarray, np.ndarray]:
    valid = np.isfinite(disparity) & (disparity >= 0)
    x = np.where(valid, sign * disparity, 0).astype(np.float32)
    return np.stack((x, np.zeros_like(x)), -1), valid


class DecodedAhead(ABC):
    """A source whose samples threads decode and augment, those of this process's next request among them.

    Args:
        device: Where batches go.
        augmentation: Strengths; None for RAFT-Stereo's.
        lane: This process's way through the requests.
        workers: Decoding threads; image libraries release the interpreter while they decode.
    """

    def __init__(
        self,
        device: torch.device | str,
        augmentation: AugmentationConfig | None = None,
        lane: Lane | None = None,
        workers: int | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.augmentation = augmentation or AugmentationConfig()
        self.lane = lane or Lane()
        self._pool = ThreadPoolExecutor(workers or min(16, os.cpu_count() or 4))
        self._ahead: dict[tuple[int, int, int], Future[Pair]] = {}

    @abstractmethod
    def numbers(self, first: int, count: int) -> range:
        """Under which numbers `load` knows the samples of a request."""

    @abstractmethod
    def load(self, number: int, height: int, width: int) -> Pair:
        """One sample, decoded and augmented."""

    def batch(self, first: int, count: int, height: int, width: int) -> Batch:
        """See `Source.batch`; also starts decoding what this process will ask for next."""
        wanted = self.numbers(first, count)
        begin = self.lane.own(first // count) + 1
        # Mixtures ask for one sample at a time, and may soon ask again.
        requests = [self.lane.slot(own) * count for own in range(begin, begin + -(-LEAST_AHEAD // count))]
        upcoming = {number for request in requests for number in self.numbers(request, count)}
        for number in (*wanted, *sorted(upcoming)):
            key = (number, height, width)
            if key not in self._ahead:
                self._ahead[key] = self._pool.submit(self.load, *key)
        pairs = [self._ahead.pop((number, height, width)).result() for number in wanted]
        # What nobody will ask for again must not pile up: a new crop size, another start.
        for key in [key for key in self._ahead if key[0] not in upcoming or key[1:] != (height, width)]:
            self._ahead.pop(key).cancel()
        return collate(pairs, self.device)


class FileSource(DecodedAhead):
    """Random augmented crops of a dataset, every sample once per epoch in an order of the seed's own.

    Args:
        samples: A sequence of stereo or of flow samples.
        seed: Decides order and augmentation.
        device: Where batches go.
        augmentation: Strengths.
        lane: This process's way through the requests.
        workers: Decoding threads.
    """

    def __init__(
        self,
        samples: Sequence[Any],
        seed: int,
        device: torch.device | str,
        augmentation: AugmentationConfig | None = None,
        lane: Lane | None = None,
        workers: int | None = None,
    ) -> None:
        if not len(samples):
            raise InputError("The dataset holds no samples")
        super().__init__(device, augmentation, lane, workers)
        self.samples = samples
        self.seed = seed
        self._orders: dict[int, np.ndarray] = {}

    def numbers(self, first: int, count: int) -> range:
        """The samples' own, counted over all processes."""
        return range(first, first + count)

    def load(self, number: int, height: int, width: int) -> Pair:
        """Sample ``number`` of the training."""
        epoch, place = divmod(number, len(self.samples))
        sample = self.samples[int(self._order(epoch)[place])]
        random = np.random.default_rng((self.seed, 1, number))
        stereo = not hasattr(sample, "flow")
        return augment(to_pair(sample), random, height, width, stereo=stereo, config=self.augmentation)

    def _order(self, epoch: int) -> np.ndarray:
        order = self._orders.get(epoch)
        if order is None:  # other threads may be in other epochs
            order = np.random.default_rng((self.seed, epoch)).permutation(len(self.samples))
            self._orders = {**{e: o for e, o in self._orders.items() if e >= epoch - 1}, epoch: order}
        return order


def collate(pairs: Sequence[Pair], device: torch.device) -> Batch:
    """Pairs of one size as a batch on the device."""

    def stacked(name: str) -> torch.Tensor:
        return torch.from_numpy(np.stack([getattr(pair, name) for pair in pairs])).to(device, non_blocking=True)

    return Batch(
        stacked("image0").permute(0, 3, 1, 2).float(),
        stacked("image1").permute(0, 3, 1, 2).float(),
        stacked("field0"),
        stacked("field1"),
        stacked("valid0"),
        stacked("valid1"),
    )
