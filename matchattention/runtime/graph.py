"""Everything a function launches on a GPU, recorded once as a CUDA graph and replayed as one launch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

WARM_UPS = 3  # kernels are built, workspaces allocated and algorithms chosen before the capture

Result = TypeVar("Result")
# (image0, image1, initial) -> fields and what is computed from them
Pass = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, ...]]


def capture(function: Callable[[], Result], repeats: int = 1) -> tuple[torch.cuda.CUDAGraph, Result]:
    """A graph of the function run `repeats` times, and what it returned last: replaying fills the same tensors."""
    current = torch.cuda.current_stream()
    warming, recording = _streams(torch.cuda.current_device())
    warming.wait_stream(current)
    with torch.cuda.stream(warming):
        for _ in range(WARM_UPS):
            function()
    current.wait_stream(warming)
    graph = torch.cuda.CUDAGraph()
    # Other threads may upload the next images meanwhile. The outer block leads back to the caller's stream where a
    # capture fails: PyTorch stays on its own then.
    with torch.cuda.stream(current), torch.cuda.graph(graph, stream=recording, capture_error_mode="thread_local"):
        for _ in range(repeats):
            result = function()
    return graph, result


@functools.cache
def _streams(device: int) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Where a GPU's captures are warmed up and recorded.

    Of each GPU its own: by itself PyTorch records on a stream of the one that captured first. And always the same two:
    cuBLAS keeps a workspace for every stream it has seen.
    """
    return torch.cuda.Stream(), torch.cuda.Stream()


class PassGraph:
    """One pass of a network, for images of one shape.

    Args:
        run: the pass.
        shape: (B, 3, H, W) of each image.
        device: a GPU.
        starts: whether calls bring a field to start from; a graph has one or has none.

    Attributes:
        images: the two uint8 buffers that a replay reads.
        initial: the (2B, H, W, 2) fp32 buffer of the field to start from, or None.
        results: what a replay fills.
    """

    def __init__(self, run: Pass, shape: tuple[int, ...], device: torch.device, starts: bool) -> None:
        pairs, _, height, width = shape
        self.images = tuple(torch.zeros(shape, dtype=torch.uint8, device=device) for _ in range(2))
        self.initial = torch.zeros(2 * pairs, height, width, 2, device=device) if starts else None
        image0, image1 = self.images
        self._graph, self.results = capture(lambda: run(image0, image1, self.initial))

    def __call__(self, image0: Tensor, image1: Tensor, initial: Tensor | None) -> tuple[Tensor, ...]:
        """Replay on these; the results are overwritten by the next call."""
        for buffer, image in zip(self.images, (image0, image1)):
            buffer.copy_(image, non_blocking=True)
        if self.initial is not None and initial is not None:
            self.initial.copy_(initial, non_blocking=True)
        self._graph.replay()
        return self.results
