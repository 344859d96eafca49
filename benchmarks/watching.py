"""What goes through a network's blocks and its layers between scales, for `look_inside.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.feedforward import ConvGLU
from matchattention.layers.tokens import as_image
from matchattention.layers.upsampling import ConvexUpsampling, FeatureUpsampling
from matchattention.models.network import MatchNetwork


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


class Moments:
    """Mean and deviation of every channel of tokens that come in several calls."""

    def __init__(self) -> None:
        self._count = 0
        self._sum: Tensor | float = 0.0
        self._squares: Tensor | float = 0.0

    def add(self, tokens: Tensor) -> None:
        """Take (…, C) tokens in."""
        tokens = tokens.flatten(0, -2).double()
        self._count += len(tokens)
        self._sum = self._sum + tokens.sum(0)
        self._squares = self._squares + tokens.square().sum(0)

    @property
    def mean(self) -> Tensor:
        """(C,) fp32."""
        return torch.as_tensor(self._sum / self._count).float()

    @property
    def strength(self) -> Tensor:
        """(C,) fp32 root mean squares."""
        return torch.as_tensor(self._squares / self._count).sqrt().float()

    @property
    def deviation(self) -> Tensor:
        """(C,) fp32."""
        variance = torch.as_tensor(self._squares / self._count - (self._sum / self._count) ** 2)
        return variance.clamp(min=0).sqrt().float()


class Inside(NamedTuple):
    """What went through a network.

    Attributes:
        hidden: hidden units by feed-forward layer of the blocks.
        features: what leaves each scale, coarsest first.
    """

    hidden: dict[str, Moments]
    features: list[Moments]


def feedforward_layers(model: MatchNetwork) -> dict[str, ConvGLU]:
    """Those of the blocks, by name."""
    return {f"stages.{name}": part for name, part in model.stages.named_modules() if isinstance(part, ConvGLU)}


@torch.no_grad()
def observed(model: MatchNetwork, run: Callable[[], object]) -> Inside:
    """What goes through a network while ``run`` calls it, once or several times."""
    hidden = {name: Moments() for name in feedforward_layers(model)}
    features = [Moments() for _ in model.stages]

    def keep_hidden(name: str) -> Callable[..., None]:
        return lambda module, inputs: hidden[name].add(inputs[0])

    def keep_features(scale: Moments) -> Callable[..., None]:
        return lambda module, inputs, output: scale.add(output.features)

    handles = [
        layer.contract.register_forward_pre_hook(keep_hidden(name)) for name, layer in feedforward_layers(model).items()
    ]
    handles += [
        stage[-1].register_forward_hook(keep_features(scale))  # type: ignore[index]
        for stage, scale in zip(model.stages, features)
    ]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return Inside(hidden, features)
