"""An endless stream of training batches."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.errors import InputError
from matchattention.synth.config import SceneConfig
from matchattention.synth.render import Rendered, render
from matchattention.synth.scene import draw_scenes
from matchattention.training.batch import Batch

RENDER_AT_ONCE = 16  # scenes; bounds the memory of a batch's rays


class SceneStream:
    """Renders batches of stereo pairs; sample i of a seed is the same in every stream and batch size.

    Args:
        config: what to render.
        size: height and width of the images, px.
        batch_size: pairs per batch.
        seed: of the stream.
        device: where scenes are drawn, rendered and handed out.
        index: number of the first sample, from `state` of an interrupted stream.
    """

    def __init__(self, config: SceneConfig, size: tuple[int, int], batch_size: int, seed: int,
                 device: torch.device | str, index: int = 0) -> None:
        if min(size) < 8 or batch_size < 1:
            raise InputError(f"cannot render {batch_size} pairs of {size[0]}x{size[1]}; use at least one pair of 8x8 px.")
        if config.samples & (config.samples - 1):
            raise InputError(f"samples = {config.samples} must be a power of two.")
        self.config, self.size, self.batch_size, self.seed = config, size, batch_size, seed
        self.device = torch.device(device)
        self.state = index

    def __iter__(self) -> SceneStream:
        return self

    def __next__(self) -> Batch:
        return self.next()

    def next(self) -> Batch:
        """The next batch; advances `state` by the batch size."""
        parts = []
        for first in range(self.state, self.state + self.batch_size, RENDER_AT_ONCE):
            indices = range(first, min(first + RENDER_AT_ONCE, self.state + self.batch_size))
            parts.append(to_batch(self.rendered(list(indices)), self.config, self.seed, list(indices)))
        self.state += self.batch_size
        return parts[0] if len(parts) == 1 else Batch(*(torch.cat(column) for column in zip(*parts)))

    @torch.no_grad()
    def rendered(self, indices: list[int]) -> Rendered:
        """Linear images and all labels of the given samples."""
        scene = draw_scenes(self.config, self.seed, indices, self.size, self.device)
        return render(scene, self.config, self.size)


def to_batch(rendered: Rendered, config: SceneConfig, seed: int, indices: list[int]) -> Batch:
    """Through the sensor, and labels as fields."""
    image0, image1 = _sensor(rendered.image[:, 0], rendered.image[:, 1], config, seed, indices)
    left, right = rendered.disparity.unbind(1)
    zero = torch.zeros_like(left)
    return Batch(image0, image1, torch.stack((-left, zero), -1), torch.stack((right, zero), -1),
                 rendered.valid[:, 0], rendered.valid[:, 1], rendered.occluded[:, 0], rendered.occluded[:, 1])


def _sensor(image0: Tensor, image1: Tensor, config: SceneConfig, seed: int, indices: list[int]) -> tuple[Tensor, Tensor]:
    return _gamma(image0), _gamma(image1)


def _gamma(image: Tensor) -> Tensor:
    """Linear light to display values in [0, 255]."""
    return 255.0 * image.clamp(0.0, 1.0) ** (1.0 / 2.2)
