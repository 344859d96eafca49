"""Drawn scenes as one run of bytes: sent from process to process and to the device in one copy."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from matchattention.synth.world.config import SceneConfig
from matchattention.synth.world.scene import Scene, convert, draw_scenes

ALIGNMENT = 512  # bytes: where the device's own allocations begin, so kernels find what they expect


class DrawRequest(NamedTuple):
    """Samples ``first`` … ``last - 1`` of a stream.

    Attributes:
        config: distributions.
        seed: of the stream.
        first: number of the first sample.
        last: number after the last sample.
        size: height and width of the images, px.
        photos: images in the photo bank.
    """

    config: SceneConfig
    seed: int
    first: int
    last: int
    size: tuple[int, int]
    photos: int


class _Place(NamedTuple):
    """Where a tensor lies in the bytes."""

    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype


class Block(NamedTuple):
    """Scenes and the bytes they lie in.

    Attributes:
        plan: a `Scene` with a `_Place` for every tensor.
        data: (bytes,) uint8.
    """

    plan: Any
    data: Tensor

    def scenes(self) -> Scene:
        """The scenes, as views of the bytes."""
        return _materialise(self.plan, self.data)

    def upload(self, device: torch.device) -> Block:
        """The same block on a device; on a GPU the host does not wait for the copy."""
        data = self.data.pin_memory() if device.type == "cuda" else self.data
        return self._replace(data=data.to(device, non_blocking=True))


def draw_block(request: DrawRequest) -> Block:
    """Draw the samples asked for in this process."""
    with torch.no_grad():
        indices = range(request.first, request.last)
        return pack(draw_scenes(request.config, request.seed, indices, request.size, request.photos))


def pack(scenes: Scene) -> Block:
    """Copy every tensor of the scenes into one."""
    tensors: list[Tensor] = []
    offsets = [0]

    def place(tensor: Tensor) -> Any:
        tensors.append(tensor)
        begin = offsets[-1]
        offsets.append(-(-(begin + tensor.numel() * tensor.element_size()) // ALIGNMENT) * ALIGNMENT)
        return _Place(begin, tuple(tensor.shape), tensor.dtype)

    plan = convert(scenes, place)
    data = torch.empty(offsets[-1], dtype=torch.uint8)
    for tensor, begin in zip(tensors, offsets):
        _view(data, _Place(begin, tuple(tensor.shape), tensor.dtype)).copy_(tensor)
    return Block(plan, data)


def _view(data: Tensor, place: _Place) -> Tensor:
    length = math.prod(place.shape) * place.dtype.itemsize
    return data[place.offset : place.offset + length].view(place.dtype).view(place.shape)


def _materialise(plan: Any, data: Tensor) -> Any:
    if isinstance(plan, _Place):
        return _view(data, plan)
    if hasattr(plan, "_fields"):
        return type(plan)(*(_materialise(field, data) for field in plan))
    return plan
