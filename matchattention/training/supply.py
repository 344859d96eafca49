"""From the names in a preset to sources of pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from matchattention.data.batch import Batch
from matchattention.errors import InputError
from matchattention.training.lanes import Lane
from matchattention.training.mirrored import MirroredAgain
from matchattention.training.real_pairs import RealPair, as_real_pair, hold_out
from matchattention.training.recipe import SourceConfig
from matchattention.training.sources import FinitePool, MixedSource, ShiftedCards, Source


def make_source(
    configs: Sequence[SourceConfig],
    seed: int,
    device: torch.device,
    held_out: list[RealPair] | None = None,
    lane: Lane | None = None,
) -> Source:
    """One source of all that are configured, mixed by their weights.

    Args:
        configs: At least one.
        seed: Sample i of a seed is always the same pair.
        device: Where batches are to lie; file datasets are decoded on the host and copied there.
        held_out: Takes the pairs of datasets that are kept for measuring.
        lane: This process's way through the requests, of which every source makes its own only.
    """
    if not configs:
        raise InputError("This preset needs pairs to train on: name them with --data folder:PATH")
    sources = []
    for config in configs:
        if config.kind == "data":
            source, pairs = open_data(config, seed, device, lane)
            if held_out is not None:
                held_out += pairs
        else:
            source = _make_one(config, seed, device)
        sources.append(source)
    sources = [FinitePool(s, config.pool) if config.pool else s for s, config in zip(sources, configs)]
    sources = [MirroredAgain(s, lane) if config.mirror else s for s, config in zip(sources, configs)]
    if len(sources) == 1:
        return sources[0]
    renders = any(config.kind != "data" for config in configs)
    return MixedSource(sources, [config.weight for config in configs], lane, renders)


def require_paths(configs: Sequence[SourceConfig]) -> None:
    """Refuse a preset whose datasets nobody has located, naming all of them at once."""
    missing = [config.preset for config in configs if config.kind == "data" and ":" not in config.preset]
    if missing:
        raise InputError(
            f"This preset trains on {', '.join(missing)}: give --data-root DIR with a folder of each name, "
            f"or --data {missing[0].partition('/')[0]}:PATH for each"
        )


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
            raise InputError(f"Unknown scenes '{name}': choose one of {', '.join(PRESETS)}")
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
    raise InputError(f"Unknown source '{config.kind}'")


def open_data(
    config: SourceConfig,
    seed: int,
    device: torch.device,
    lane: Lane | None = None,
) -> tuple[Source, list[RealPair]]:
    """A dataset on disk as a source, and those of its pairs that are held out to measure with."""
    from matchattention.training.file_source import Chosen, FileSource, open_samples, shards_address

    url = shards_address(config.preset)
    if url is not None and not config.held_out:
        from matchattention.training.shard_source import ShardSource

        return ShardSource(url, seed, device, config.augmentation, lane), []
    samples = open_samples(config.preset, config.layout)
    train, kept = hold_out(len(samples), config.held_out)
    pairs = [as_real_pair(f"held-out {config.dataset}", samples[index]) for index in kept]
    source = FileSource(Chosen(samples, train) if kept else samples, seed, device, config.augmentation, lane)
    return source, [pair for pair in pairs if pair is not None]
