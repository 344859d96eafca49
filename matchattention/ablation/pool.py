"""Rendered pairs that are made once and serve every training: the same pairs in the same order for every row."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from matchattention.data.atomic import replacing
from matchattention.data.batch import Batch
from matchattention.errors import InputError
from matchattention.synth.photos import photo_bank
from matchattention.synth.stream.scene_stream import RENDER_AT_ONCE, SceneStream
from matchattention.synth.world.config import SceneConfig
from matchattention.training.mirrored import mirrored
from matchattention.training.sources import concatenate
from matchattention.training.validity import silence_bad_samples

_AT_ONCE = {"cuda": RENDER_AT_ONCE, "cpu": 4}  # pairs; a CPU's memory holds fewer rays
_FILE_PAIRS = {"cuda": 16 * RENDER_AT_ONCE, "cpu": 4}  # in one file of a pool's folder


class PairPool:
    """A finite set of stereo pairs in memory: bytes for images, fp32 disparities, one byte a mask.

    Args:
        tensors: "images" (N, 2, 3, H, W) uint8, "disparity" (N, 2, H, W) fp32 px (horizontal offset to the match),
            "known" and "occluded" (N, 2, H, W) bool.
    """

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors
        self.pairs = tensors["images"].shape[0]
        self.size = tuple(tensors["images"].shape[-2:])

    def take(self, index: Tensor) -> Batch:
        """The pairs of these numbers."""
        images, x, known, occluded = (
            self.tensors[name][index] for name in ("images", "disparity", "known", "occluded")
        )
        field = torch.stack((x, torch.zeros_like(x)), -1)
        return Batch(*images.float().unbind(1), *field.unbind(1), *known.unbind(1), *occluded.unbind(1))

    def batches(self, count: int) -> Iterator[Batch]:
        """All pairs in order."""
        for first in range(0, self.pairs, count):
            yield self.take(torch.arange(first, min(first + count, self.pairs), device=self.tensors["images"].device))


class ShuffledPool:
    """A pool as a source of training pairs: every pair and its mirror image once, in an order of the seed, then again.

    The order depends on the seed alone, so every row of a table sees the same pairs at the same step.
    """

    def __init__(self, pool: PairPool, seed: int) -> None:
        self.pool = pool
        self.seed = seed
        self._orders: dict[int, Tensor] = {}

    def batch(self, first: int, count: int, height: int, width: int) -> Batch:
        """See `training.sources.Source`."""
        if (height, width) != self.pool.size:
            raise InputError(f"This pool holds pairs of {self.pool.size[0]}x{self.pool.size[1]}, not {height}x{width}.")
        chosen = torch.cat([self._numbers(place) for place in range(first, first + count)])
        device = self.pool.tensors["images"].device
        plain = chosen[chosen < self.pool.pairs].to(device)
        flipped = (chosen[chosen >= self.pool.pairs] - self.pool.pairs).to(device)
        parts = [self.pool.take(plain)] if len(plain) else []
        parts += [mirrored(self.pool.take(flipped))] if len(flipped) else []
        return concatenate(parts)

    def _numbers(self, place: int) -> Tensor:
        """(1,) number of the sample at a place; from ``pairs`` on they are mirror images."""
        round_, within = divmod(place, 2 * self.pool.pairs)
        if round_ not in self._orders:
            generator = torch.Generator().manual_seed(1000 * self.seed + round_)
            self._orders = {round_: torch.randperm(2 * self.pool.pairs, generator=generator)}
        return self._orders[round_][within : within + 1]


def render_pool(
    scenes: SceneConfig, size: tuple[int, int], pairs: int, seed: int, device: torch.device, folder: Path | None = None
) -> PairPool:
    """Render a pool, or read it where ``folder`` has it from an earlier run; a folder keeps what is rendered.

    Args:
        scenes: What to render; stereo.
        size: Height and width, px.
        pairs: How many.
        seed: Of the scenes; the same pairs come again for the same arguments.
        device: Where it is rendered and kept.
        folder: For the files; None for memory alone.
    """
    if scenes.task != "stereo":
        raise InputError("Ablations train on stereo pairs: choose scenes whose task is stereo.")
    bank = _photos(device) if scenes.photos > 0 else None
    stream = SceneStream(scenes, size, 1, seed, device, bank=bank)
    place = None if folder is None else folder / _fingerprint(scenes, size, seed, stream.has_photos)
    parts = []
    for first in range(0, pairs, _FILE_PAIRS[device.type]):
        count = min(_FILE_PAIRS[device.type], pairs - first)
        path = None if place is None else place / f"{first:06d}-{count}.safetensors"
        if path is not None and path.is_file():
            parts.append({name: value.to(device) for name, value in load_file(path).items()})
            continue
        parts.append(_render(stream, first, count))
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                save_file({name: value.cpu().contiguous() for name, value in parts[-1].items()}, temporary)
    pool = PairPool({name: torch.cat([part[name] for part in parts]) for name in parts[0]})
    if device.type == "cuda":
        torch.cuda.synchronize()  # trainings draw from it on streams of their own
    return pool


@functools.cache
def _photos(device: torch.device) -> Tensor | None:
    """The photo bank, decoded once for all pools."""
    return photo_bank.load(device=device)


def _render(stream: SceneStream, first: int, count: int) -> dict[str, Tensor]:
    rendered = []
    at_once = _AT_ONCE[stream.device.type]
    for start in range(first, first + count, at_once):  # aligned: the sensor's noise comes again, too
        stream.state = start
        stream.batch_size = min(at_once, first + count - start)
        rendered.append(_packed(stream.next()))
    return {name: torch.cat([part[name] for part in rendered]) for name in rendered[0]}


def _packed(batch: Batch) -> dict[str, Tensor]:
    batch, _ = silence_bad_samples(batch)
    assert batch.occluded0 is not None
    assert batch.occluded1 is not None
    fields = torch.stack((batch.field0, batch.field1), 1)
    if fields[..., 1].abs().max() > 0:
        raise InputError("These scenes have vertical offsets, which a pool of stereo pairs cannot hold.")
    return {
        "images": torch.stack((batch.image0, batch.image1), 1).clamp(0, 255).round().to(torch.uint8),
        "disparity": fields[..., 0].contiguous(),
        "known": torch.stack((batch.valid0, batch.valid1), 1),
        "occluded": torch.stack((batch.occluded0, batch.occluded1), 1),
    }


def _fingerprint(scenes: SceneConfig, size: tuple[int, int], seed: int, photos: bool) -> str:
    text = json.dumps([asdict(scenes), size, seed, photos], sort_keys=True)
    return f"{size[0]}x{size[1]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
