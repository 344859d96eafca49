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
from matchattention.training.batch_norms import Moments, upsamplings


class Passage(NamedTuple):
    """One upsampling module and the tensors of its calls, put together on the batch axis."""

    name: str
    module: ConvexUpsampling | FeatureUpsampling
    inputs: tuple[Tensor, ...]


@torch.no_grad()
def watched(model: nn.Module, run: Callable[[], object]) -> list[Passage]:
    """What came into each upsampling module while ``run`` called the model, once or several times."""
    seen: dict[str, list[tuple[Tensor, ...]]] = defaultdict(list)

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda module, inputs: seen[name].append(inputs)

    handles = [module.register_forward_pre_hook(watch(name)) for name, module in upsamplings(model)]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return [
        Passage(name, module, tuple(torch.cat(calls) for calls in zip(*seen[name])))
        for name, module in upsamplings(model)
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


class Strengths(Moments):
    """Mean, deviation and root mean square of every channel of tokens that come in several calls."""

    @property
    def mean(self) -> Tensor:
        """(C,) fp32."""
        return self.mean_and_variance()[0].float()

    @property
    def strength(self) -> Tensor:
        """(C,) fp32 root mean squares."""
        mean, variance = self.mean_and_variance()
        return (variance + mean.square()).sqrt().float()

    @property
    def deviation(self) -> Tensor:
        """(C,) fp32."""
        return self.mean_and_variance()[1].sqrt().float()


class Inside(NamedTuple):
    """What went through a network.

    Attributes:
        hidden: hidden units by feed-forward layer of the blocks.
        features: what leaves each scale, coarsest first.
    """

    hidden: dict[str, Strengths]
    features: list[Strengths]


def feedforward_layers(model: MatchNetwork) -> dict[str, ConvGLU]:
    """Those of the blocks, by name."""
    return {f"stages.{name}": part for name, part in model.stages.named_modules() if isinstance(part, ConvGLU)}


@torch.no_grad()
def observed(model: MatchNetwork, run: Callable[[], object]) -> Inside:
    """What goes through a network while ``run`` calls it, once or several times."""
    hidden = {name: Strengths() for name in feedforward_layers(model)}
    features = [Strengths() for _ in model.stages]

    def keep_hidden(name: str) -> Callable[..., None]:
        return lambda module, inputs: hidden[name].add(inputs[0])

    def keep_features(scale: Strengths) -> Callable[..., None]:
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
