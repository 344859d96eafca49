"""Takes constants out of the features that leave a scale, without changing what the network computes.

No norm follows the last block of a scale, and the layers that read it have biases: no loss holds the features' means.
They wander. Hidden units of the last feed-forward layers grow into constants of thousands, and then every update of
their weights moves all tokens together, which silences the ReLUs behind them and costs bf16 its digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from matchattention.layers.feedforward import ConvGLU
from matchattention.models.network import MatchNetwork

STRONG = 50.0  # a unit, beside the median one
CONSTANT = 3.0  # a mean, beside the deviation


@torch.no_grad()
def settle(model: MatchNetwork, run: Callable[[], object]) -> dict[str, tuple[int, int]]:
    """Fold constant hidden units into biases, and hand large means of features to the biases behind them.

    The fold leaves out how little the units vary. Means are handed over exactly but for two things: a transposed
    convolution has one bias for its four taps, and a padded convolution sees zeros beyond the border.

    Args:
        model: changes in place.
        run: calls it with typical pairs.

    Returns:
        By feed-forward layer of the blocks: how many units were folded, of how many.
    """
    inside = observed(model, run)
    folded = {name: _fold(layer, inside.hidden[name]) for name, layer in feedforward_layers(model).items()}
    for index, scale in enumerate(inside.features):
        if scale.mean.square().mean() > CONSTANT**2 * scale.deviation.square().mean():
            _hand_over_mean(model, index, scale.mean)
    return folded


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
        layer.contract.register_forward_pre_hook(keep_hidden(name))
        for name, layer in feedforward_layers(model).items()
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


def _fold(layer: ConvGLU, hidden: Moments) -> tuple[int, int]:
    """Strong and constant units become a part of the bias; they go on as weak ones that nothing reads yet."""
    mean, strength = hidden.mean, hidden.strength
    usual = strength.median().clamp(min=1e-6)
    units = (strength > STRONG * usual) & (mean.abs() > CONSTANT * hidden.deviation)
    count = int(units.sum())
    if count:
        layer.contract.bias.add_(layer.contract.weight[:, units] @ mean[units])
        layer.contract.weight[:, units] = 0.0
        weaker = torch.where(units, usual / strength, 1.0)
        layer.expand.weight[len(units) :].mul_(weaker[:, None])  # values; gates come first
        layer.expand.bias[len(units) :].mul_(weaker)
    return count, len(units)


def _hand_over_mean(model: MatchNetwork, index: int, mean: Tensor) -> None:
    """Take the mean out of the features at the end of a scale and into the biases of the layers that read them."""
    model.stages[index][-1].feedforward.contract.bias.sub_(mean)  # type: ignore[index]
    last = index == len(model.field_upsamplings)
    head = model.final_upsampling.head if last else model.field_upsamplings[index].head
    head.bias.add_(head.weight.sum((2, 3)) @ mean)  # type: ignore[union-attr, operator]
    if not last:
        up = model.feature_upsamplings[index].up
        up.bias.add_(mean @ up.weight.mean((2, 3)))  # type: ignore[union-attr, operator]
