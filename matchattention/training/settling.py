"""Takes constants out of the features that leave a scale, without changing what the network computes.

No norm follows the last block of a scale, and the layers that read it have biases: no loss holds the features' means.
They wander. Hidden units of the last feed-forward layers grow into constants of thousands, and then every update of
their weights moves all tokens together, which silences the ReLUs behind them and costs bf16 its digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from matchattention.layers.feedforward import ConvGLU
from matchattention.models.network import MatchNetwork
from matchattention.training.inside import Inside, Moments, feedforward_layers

STRONG = 50.0  # a unit, beside the median one
CONSTANT = 3.0  # a mean, beside the deviation


class Settled(NamedTuple):
    """What has changed.

    Attributes:
        folded: by feed-forward layer of the blocks: how many units were folded, of how many.
        scales: where means were handed over, coarsest first.
    """

    folded: dict[str, tuple[int, int]]
    scales: list[int]

    @property
    def changed(self) -> bool:
        """Whether the network is another one now."""
        return bool(self.scales) or any(count for count, _ in self.folded.values())


@torch.no_grad()
def settle(model: MatchNetwork, inside: Inside) -> Settled:
    """Fold constant hidden units into biases, and hand large means of features to the biases behind them.

    The fold leaves out how little the units vary. Means are handed over exactly but for two things: a transposed
    convolution has one bias for its four taps, and a padded convolution sees zeros beyond the border.

    Args:
        model: changes in place.
        inside: what typical pairs bring about in it (`inside.observed`).
    """
    folded = {name: _fold(layer, inside.hidden[name]) for name, layer in feedforward_layers(model).items()}
    scales = [
        index
        for index, scale in enumerate(inside.features)
        if scale.mean.square().mean() > CONSTANT**2 * scale.deviation.square().mean()
    ]
    for index in scales:
        _hand_over_mean(model, index, inside.features[index].mean)
    return Settled(folded, scales)


@torch.no_grad()
def merge_biases(weights: Mapping[str, Tensor]) -> None:
    """Move the biases of transposed convolutions into those of the layers that join their results, exactly.

    No ReLU lies between the two, so one bias is enough; the first one would carry means of hundreds into the second
    layer, whose weights could then not change without shifting every unit.

    Args:
        weights: of a network or of its average, by name; change in place.
    """
    for name, bias in weights.items():
        if name.endswith(".up.bias"):
            lift = name.removesuffix("up.bias")
            brought = weights[f"{lift}join.weight"][:, -len(bias) :, 0, 0]
            weights[f"{lift}join.bias"].add_(brought @ bias)
            bias.zero_()


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
        lift = model.feature_upsamplings[index]
        brought = mean @ lift.up.weight.mean((2, 3))  # type: ignore[union-attr, operator]
        lift.join.bias.add_(lift.join.weight[:, -len(brought) :, 0, 0] @ brought)  # type: ignore[union-attr, index, operator]
