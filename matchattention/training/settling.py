"""Takes constants out of the features that leave a scale, without changing what the network computes.

No norm follows the last block of a scale, and the layers that read it have biases: no loss holds the features' means.
They wander. Hidden units of the last feed-forward layers grow into constants of thousands, and then every update of
their weights moves all tokens together, which silences the ReLUs behind them and costs bf16 its digits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

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
    layers = {name: module for name, module in model.stages.named_modules() if isinstance(module, ConvGLU)}
    ends: list[nn.Module] = [stage[-1] for stage in model.stages]  # type: ignore[index]
    hidden: dict[nn.Module, Tensor] = {}
    features: dict[nn.Module, Tensor] = {}
    handles = [layer.contract.register_forward_pre_hook(_keep_input(layer, hidden)) for layer in layers.values()]
    handles += [end.register_forward_hook(_keep_features(end, features)) for end in ends]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    folded = {f"stages.{name}": _fold(layer, hidden[layer]) for name, layer in layers.items()}
    for index, end in enumerate(ends):
        tokens = features[end].float().flatten(0, -2)
        mean = tokens.mean(0)
        if mean.square().mean() > CONSTANT**2 * tokens.var(0).mean():
            _hand_over_mean(model, index, end, mean)
    return folded


def _keep_input(layer: nn.Module, kept: dict[nn.Module, Tensor]) -> Callable[..., None]:
    return lambda module, inputs: kept.update({layer: inputs[0]})


def _keep_features(end: nn.Module, kept: dict[nn.Module, Tensor]) -> Callable[..., None]:
    return lambda module, inputs, output: kept.update({end: output.features})


def _fold(layer: ConvGLU, hidden: Tensor) -> tuple[int, int]:
    """Strong and constant units become a part of the bias; they go on as weak ones that nothing reads yet."""
    tokens = hidden.float().flatten(0, -2)
    mean, deviation = tokens.mean(0), tokens.std(0)
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


def _hand_over_mean(model: MatchNetwork, index: int, end: nn.Module, mean: Tensor) -> None:
    """Take the mean out of the features at the end of a scale and into the biases of the layers that read them."""
    end.feedforward.contract.bias.sub_(mean)  # type: ignore[union-attr, operator]
    last = index == len(model.field_upsamplings)
    head = model.final_upsampling.head if last else model.field_upsamplings[index].head
    head.bias.add_(head.weight.sum((2, 3)) @ mean)  # type: ignore[union-attr, operator]
    if not last:
        up = model.feature_upsamplings[index].up
        up.bias.add_(mean @ up.weight.mean((2, 3)))  # type: ignore[union-attr, operator]
