"""Takes constants out of the features that leave a scale, without changing what the network computes.

No norm follows the last block of a scale, and the layers that read it have biases: no loss holds the features' means.
They wander. Hidden units of the last feed-forward layers grow into constants of thousands, and then every update of
their weights moves all tokens together, which silences the ReLUs behind them and costs bf16 its digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from matchattention.layers.block import Refined
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
    for index, tokens in enumerate(inside.features):
        mean = tokens.mean(0)
        if mean.square().mean() > CONSTANT**2 * tokens.var(0).mean():
            _hand_over_mean(model, index, mean)
    return folded


class Inside(NamedTuple):
    """What went through a network, flattened to (tokens, channels) fp32.

    Attributes:
        hidden: hidden units by feed-forward layer of the blocks.
        features: what leaves each scale, coarsest first.
    """

    hidden: dict[str, Tensor]
    features: list[Tensor]


def feedforward_layers(model: MatchNetwork) -> dict[str, ConvGLU]:
    """Those of the blocks, by name."""
    return {f"stages.{name}": part for name, part in model.stages.named_modules() if isinstance(part, ConvGLU)}


@torch.no_grad()
def observed(model: MatchNetwork, run: Callable[[], object]) -> Inside:
    """What goes through a network while ``run`` calls it once."""
    hidden: dict[str, Tensor] = {}
    features: list[Tensor] = []

    def keep_hidden(name: str) -> Callable[..., None]:
        return lambda module, inputs: hidden.update({name: inputs[0].float().flatten(0, -2)})

    def keep_features(module: nn.Module, inputs: object, output: Refined) -> None:
        features.append(output.features.float().flatten(0, -2))

    handles = [
        layer.contract.register_forward_pre_hook(keep_hidden(name))
        for name, layer in feedforward_layers(model).items()
    ]
    handles += [stage[-1].register_forward_hook(keep_features) for stage in model.stages]  # type: ignore[index]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return Inside(hidden, features)


def _fold(layer: ConvGLU, hidden: Tensor) -> tuple[int, int]:
    """Strong and constant units become a part of the bias; they go on as weak ones that nothing reads yet."""
    mean, deviation = hidden.mean(0), hidden.std(0)
    strength = (mean**2 + deviation**2).sqrt()
    usual = strength.median().clamp(min=1e-6)
    units = (strength > STRONG * usual) & (mean.abs() > CONSTANT * deviation)
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
