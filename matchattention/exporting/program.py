"""From a network to a traced program: the one source of every exported file."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule
from torch.fx.experimental import _config as tracing

from matchattention.exporting.network import ExportedNetwork
from matchattention.models.network import COARSEST, MatchNetwork

PRECISIONS = ("fp32", "fp16", "int8")
DTYPES = {"fp32": torch.float32, "fp16": torch.float16}
NAMES = {
    "stereo": (("left", "right"), ("disparity", "disparity_right")),
    "flow": (("first", "second"), ("flow", "flow_backward")),
}
_TRACED = (3, 5)  # tokens of 1/32: unequal, so that no two sizes are taken for one


class _WithoutStart(nn.Module):
    """The same network for files that take two images and nothing else."""

    def __init__(self, network: ExportedNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.network(first, second)


def trace(
    model: MatchNetwork, size: tuple[int, int] | None = None, precision: str = "fp32", start: bool = True
) -> ExportedProgram:
    """Trace a network with torch.export.

    Args:
        model: what to trace.
        size: (H, W) px fixes the size and a batch of one; None leaves the batch, and H and W in steps of 32, open.
        precision: "fp32" or "fp16" (weights and features; positions stay fp32).
        start: whether the program has a third input `initial`, see `ExportedNetwork`.
    """
    network = ExportedNetwork(model, DTYPES[precision]).eval()
    rows, columns = _TRACED if size is None else (size[0] // COARSEST, size[1] // COARSEST)
    batch = 2 if size is None else 1
    image = torch.zeros(batch, 3, rows * COARSEST, columns * COARSEST)
    arguments: tuple[torch.Tensor, ...] = (image, image.clone())
    shapes: tuple[dict[int, Any], ...] | None = None
    if size is None:
        least = 1 if start else 2
        n, h, w = Dim("batch", min=1), Dim("rows", min=least), Dim("columns", min=least)
        shapes = ({0: n, 2: COARSEST * h, 3: COARSEST * w},) * 2 + ({0: 2 * n, 1: h, 2: w},)
    if start:
        arguments += (torch.full((2 * batch, rows, columns, 2), float("nan")),)
    elif shapes is not None:
        shapes = shapes[:2]
    # Without `initial` the tracer must not ask whether a size is 1, else the program refuses a batch of one.
    oblivious = tracing.patch(backed_size_oblivious=not start)  # type: ignore[attr-defined]
    with torch.no_grad(), warnings.catch_warnings(), oblivious:
        warnings.simplefilter("ignore")
        program = torch.export.export(network if start else _WithoutStart(network), arguments, dynamic_shapes=shapes)
    # The lines of code that each operator comes from: megabytes, with the paths of the machine that exported.
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, GraphModule) else ():
            node.meta.pop("stack_trace", None)
    return program
