"""The layers between a network's scales, whose inputs no norm keeps in bounds, and what comes into them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.tokens import as_image
from matchattention.layers.upsampling import ConvexUpsampling, FeatureUpsampling


class Passage(NamedTuple):
    """One upsampling module and the tensors of its calls, put together on the batch axis."""

    name: str
    module: ConvexUpsampling | FeatureUpsampling
    inputs: tuple[Tensor, ...]


def passages(model: nn.Module) -> list[tuple[str, ConvexUpsampling | FeatureUpsampling]]:
    """The upsampling modules of a network by name."""
    kinds = (ConvexUpsampling, FeatureUpsampling)
    return [(name, module) for name, module in model.named_modules() if isinstance(module, kinds)]


@torch.no_grad()
def watched(model: nn.Module, run: Callable[[], object]) -> list[Passage]:
    """What came into each upsampling module while ``run`` called the model, once or several times."""
    seen: dict[str, list[tuple[Tensor, ...]]] = defaultdict(list)

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda module, inputs: seen[name].append(inputs)

    handles = [module.register_forward_pre_hook(watch(name)) for name, module in passages(model)]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return [
        Passage(name, module, tuple(torch.cat(calls) for calls in zip(*seen[name])))
        for name, module in passages(model)
        if name in seen
    ]


@torch.no_grad()
def inputs_by_layer(passage: Passage) -> dict[str, Tensor]:
    """Name of each convolution of a passage and its input, (B, C, H, W) fp32."""
    module = passage.module
    if isinstance(module, ConvexUpsampling):
        features = as_image(passage.inputs[0]).float()
        return {"head": features, "weights": F.relu(module.head(features))}
    coarse, encoded = (tokens.float() for tokens in passage.inputs)
    joined = as_image(module.joined(coarse, encoded))
    return {"up": as_image(coarse), "join": joined, "smooth": F.relu(module.join(joined))}
