"""From the names in a preset to sources of pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from matchattention.data.batch import Batch
from matchattention.errors import InputError
from matchattention.training.mirrored import MirroredAgain
from matchattention.training.recipe import SourceConfig
from matchattention.training.sources import FinitePool, MixedSource, ShiftedCards, Source


def make_source(configs: Sequence[SourceConfig], seed: int, device: torch.device) -> Source:
    """One source of all that are configured, mixed by their weights.

    Args:
        configs: At least one.
        seed: Sample i of a seed is always the same pair.
        device: Where batches are to lie; file datasets are decoded on the host and copied there.
    """
    if not configs:
        raise InputError("this preset needs pairs to train on: name them with --data folder:PATH")
    sources = [_make_one(config, seed, device) for config in configs]
    sources = [FinitePool(s, config.pool) if config.pool else s for s, config in zip(sources, configs)]
    sources = [MirroredAgain(s) if config.mirror else s for s, config in zip(sources, configs)]
    if len(sources) == 1:
        return sources[0]
    return MixedSource(sources, [config.weight for config in configs])


class Stream(Protocol):
    """A renderer that counts its samples itself."""

    state: int

    def next(self) -> Batch:
        """The batch that begins with sample ``state``."""
        ...


class StreamSource:
    """A renderer's streams as a source: one stream per batch shape, sent to the index asked for."""

    def __init__(self, make: Callable[[tuple[int, int], int], Stream]) -> None:
        self._make = make
        self._streams: dict[tuple[int, int, int], Stream] = {}

    def batch(self, first: int, count: int, height: int, width: int) -> Batch:
        """See `Source.batch`."""
        shape = (count, height, width)
        if shape not in self._streams:
            self._streams[shape] = self._make((height, width), count)
        stream = self._streams[shape]
        stream.state = first
        return stream.next()


def _make_one(config: SourceConfig, seed: int, device: torch.device) -> Source:
    if config.kind == "cards":
        return ShiftedCards(seed, device)
    if config.kind == "scenes":
        from matchattention.synth.stream.scene_stream import SceneStream
        from matchattention.synth.world.config import PRESETS

        name = config.preset or "mixed"
        if name not in PRESETS:
            raise InputError(f"unknown scenes '{name}': choose one of {', '.join(PRESETS)}")
        scenes = PRESETS[name]
        return StreamSource(lambda size, count: SceneStream(scenes, size, count, seed, device))
    if config.kind == "photos":
        from matchattention.synth.photos.layered_photos import LayeredPhotoStream

        bank = config.preset or None
        return StreamSource(lambda size, count: LayeredPhotoStream(bank, size, count, seed, device))
    if config.kind == "moving-photos":
        from matchattention.synth.photos.moving_photos import MovingPhotoStream

        photos = config.preset or None
        return StreamSource(lambda size, count: MovingPhotoStream(photos, size, count, seed, device))
    from matchattention.training.file_source import FileSource

    return FileSource.open(config.preset, seed, device)
