"""An endless stream of training batches."""

from __future__ import annotations

from concurrent.futures import Future

import torch
from torch import Tensor

from matchattention.data.batch import Batch
from matchattention.errors import InputError
from matchattention.synth.dice import scalar_uniform
from matchattention.synth.photos import photo_bank
from matchattention.synth.rays.tables import photo_pyramid
from matchattention.synth.sensor import pipeline
from matchattention.synth.sensor.config import SensorConfig
from matchattention.synth.stream.blocks import Block, DrawRequest, draw_block
from matchattention.synth.stream.drawing import DrawingPool, default_workers, shared_pool
from matchattention.synth.stream.render import FRAMES, Rendered, render
from matchattention.synth.world.config import SceneConfig
from matchattention.synth.world.scene import Scene, convert

RENDER_AT_ONCE = 32  # scenes; bounds the memory of rays in flight
DRAW_AT_ONCE = 128  # scenes; a multiple of the above. Drawing costs operations, not numbers, so it is done for many


class SceneStream:
    """Renders batches of stereo or flow pairs; sample i of a seed is the same scene in every stream and batch size.

    The sensor draws once for each aligned run of `RENDER_AT_ONCE` samples: noise is repeated exactly where batches
    start at multiples of it.

    Args:
        config: what to render.
        size: height and width of the images, px.
        batch_size: pairs per batch.
        seed: of the stream.
        device: where scenes are rendered and handed out.
        index: number of the first sample, from `state` of an interrupted stream.
        bank: (T, 3, S, S) uint8 photos; by default what `photo_bank.load` finds, if anything.
        workers: processes that draw scenes ahead, shared by all streams; 0 draws when asked. By default as many as
            a GPU may need, none on a CPU.
    """

    def __init__(
        self,
        config: SceneConfig,
        size: tuple[int, int],
        batch_size: int,
        seed: int,
        device: torch.device | str,
        index: int = 0,
        bank: Tensor | None = None,
        workers: int | None = None,
    ) -> None:
        if min(size) < 8 or batch_size < 1:
            raise InputError(
                f"Cannot render {batch_size} pairs of {size[0]}x{size[1]}; ask for at least one of 8x8 px."
            )
        if config.task not in ("stereo", "flow"):
            raise InputError(f"Unknown task {config.task!r}; choose stereo or flow.")
        if config.samples & (config.samples - 1):
            raise InputError(f"{config.samples} samples per pixel cannot be cast; use a power of two.")
        self.config, self.size, self.batch_size, self.seed = config, size, batch_size, seed
        self.device = torch.device(device)
        self.state = index
        if bank is None and config.photos > 0:
            bank = photo_bank.load(device=self.device)
        self._photos = photo_pyramid(bank, self.device)
        self._sensor = SensorConfig.preset(config.sensor)
        self.workers = default_workers(self.device) if workers is None else workers
        self._pool: DrawingPool | None = None
        self._blocks: dict[int, Future[Block]] = {}
        self._resident: tuple[int, Scene] | None = None

    def __iter__(self) -> SceneStream:
        return self

    def __next__(self) -> Batch:
        return self.next()

    @property
    def has_photos(self) -> bool:
        """Whether a photo bank was found or given."""
        return self._photos.amount > 0

    @torch.no_grad()
    def next(self) -> Batch:
        """The next batch; advances `state` by the batch size."""
        end = self.state + self.batch_size
        parts = []
        while self.state < end:
            stop = min((self.state // RENDER_AT_ONCE + 1) * RENDER_AT_ONCE, end)
            indices = range(self.state, stop)
            parts.append(
                self._photograph(render(self._scenes(indices), self.config, self.size, self._photos), self.state)
            )
            self.state = stop
        return parts[0] if len(parts) == 1 else Batch(*(torch.cat(column) for column in zip(*parts)))

    @torch.no_grad()
    def rendered(self, indices: range, moments: tuple[float, float] = FRAMES) -> Rendered:
        """Linear images and all labels of the given samples, without the sensor; flow at any two moments."""
        return render(self._draw(indices), self.config, self.size, self._photos, moments)

    def _request(self, indices: range) -> DrawRequest:
        return DrawRequest(self.config, self.seed, indices.start, indices.stop, self.size, self._photos.amount)

    def _draw(self, indices: range) -> Scene:
        """Scenes of consecutive samples on the device, drawn now."""
        return draw_block(self._request(indices)).upload(self.device).scenes()

    def _scenes(self, indices: range) -> Scene:
        """Scenes of consecutive samples of one run on the device, drawn ahead if there are workers."""
        if self.workers == 0:
            return self._draw(indices)
        number = indices.start // DRAW_AT_ONCE
        if self._resident is None or self._resident[0] != number:
            self._resident = (number, self._await_block(number).upload(self.device).scenes())
        first = indices.start - number * DRAW_AT_ONCE
        return convert(self._resident[1], lambda tensor: tensor[first : first + len(indices)])

    def _await_block(self, number: int) -> Block:
        """A block of samples; keeps every worker busy with those that follow."""
        if self._pool is None:
            self._pool = shared_pool(self.workers)
        wanted = range(number, number + 1 + self.workers)
        for stale in self._blocks.keys() - set(wanted):
            self._blocks.pop(stale).cancel()
        for block in wanted:
            if block not in self._blocks:
                indices = range(block * DRAW_AT_ONCE, (block + 1) * DRAW_AT_ONCE)
                self._blocks[block] = self._pool.submit(self._request(indices))
        return self._blocks.pop(number).result()

    def _photograph(self, rendered: Rendered, first: int) -> Batch:
        """The batch behind the sensor."""
        seed = int(scalar_uniform(self.seed, first, purpose=2) * 2**62)
        image0, image1 = pipeline.apply(rendered.image[:, 0], rendered.image[:, 1], self._sensor, seed)
        return Batch(image0, image1, *rendered.field.unbind(1), *rendered.valid.unbind(1), *rendered.occluded.unbind(1))
