"""A stream of batches made from a photo bank: what its kinds share."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Generic, Self, TypeVar

import torch
from torch import Tensor

from matchattention.data.batch import Batch
from matchattention.errors import InputError
from matchattention.synth.photos import photo_bank

CAST_AT_ONCE = 16  # pairs; bounds the memory

Config = TypeVar("Config")


class PhotoStream(ABC, Generic[Config]):
    """Makes batches of pairs from a photo bank; the interface is `SceneStream`'s.

    Sample i of a seed is the same in every batch size up to the rounding of sums.

    Args:
        bank: (T, 3, S, S) uint8 tiles, a bank's path, or None for the bank of this source tree.
        size: height and width of the images, px.
        batch_size: pairs per batch.
        seed: of the stream.
        device: where pairs are made and handed out.
        index: number of the first sample, from `state` of an interrupted stream.
        config: distributions; None for the defaults.
    """

    def __init__(
        self,
        bank: Tensor | str | os.PathLike[str] | None,
        size: tuple[int, int],
        batch_size: int,
        seed: int,
        device: torch.device | str,
        index: int = 0,
        config: Config | None = None,
    ) -> None:
        if min(size) < 32 or batch_size < 1:
            raise InputError(f"Cannot make {batch_size} pairs of {size[0]}x{size[1]}; use at least one of 32x32 px")
        tiles = bank if isinstance(bank, Tensor) else photo_bank.load(bank, device)
        if tiles is None:
            raise InputError("There is no photo bank; build one with scripts/build_photo_bank.py")
        self.size, self.batch_size, self.seed = size, batch_size, seed
        self.device = torch.device(device)
        self.config = self._default_config() if config is None else config
        self.state = index
        self._tiles = tiles.to(self.device)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        return self.next()

    @torch.no_grad()
    def next(self) -> Batch:
        """The next batch; advances `state` by the batch size."""
        last = self.state + self.batch_size
        parts = [
            self._make(list(range(first, min(first + CAST_AT_ONCE, last))))
            for first in range(self.state, last, CAST_AT_ONCE)
        ]
        self.state = last
        return parts[0] if len(parts) == 1 else Batch(*(torch.cat(column) for column in zip(*parts)))

    @abstractmethod
    def _make(self, indices: list[int]) -> Batch:
        """The samples of these numbers."""

    @staticmethod
    @abstractmethod
    def _default_config() -> Config: ...
