"""From the names in a preset to sources of pairs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from matchattention.errors import InputError
from matchattention.training.presets import SourceConfig
from matchattention.training.sources import MixedSource, ShiftedCards, Source


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
    if len(sources) == 1:
        return sources[0]
    return MixedSource(sources, [config.weight for config in configs])


def _make_one(config: SourceConfig, seed: int, device: torch.device) -> Source:
    if config.kind == "cards":
        return ShiftedCards(seed, device)
    if config.kind == "scenes":
        from matchattention.synth.stream import SceneStream

        return SceneStream(config.preset, seed=seed, device=device)
    if config.kind == "photos":
        from matchattention.synth.layered_photos import LayeredPhotoStream

        return LayeredPhotoStream(config.preset, seed=seed, device=device)
    from matchattention.training.file_source import FileSource

    return FileSource.open(config.preset, seed, device)
