"""Everything a function launches, as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

WARM_UPS = 3  # kernels are built, workspaces allocated and algorithms chosen before the capture

Result = TypeVar("Result")


def capture(function: Callable[[], Result], repeats: int = 1) -> tuple[torch.cuda.CUDAGraph, Result]:
    """A graph of the function run `repeats` times, and what it returned last: replaying fills the same tensors."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            result = function()
    return graph, result
