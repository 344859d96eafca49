"""New weights for what no gradient reaches any more between a network's scales.

Features between scales are not normed and grow while a network trains; a spike or a high learning rate can push all
inputs of a ReLU below zero, where no gradient brings them back. A unit that no token of a batch wakes gets new weights
in, centred and scaled by the batch, and zero weights out: it starts as silent as it was, but it can learn again.

A convex upsampling can be stuck likewise: logits so far apart that its softmax takes one and the same neighbour
of every token, whatever it shows, and passes no gradient on. Such a one begins anew as a bilinear one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from matchattention.layers.upsampling import ConvexUpsampling, FeatureUpsampling
from matchattention.training.between_scales import Passage, inputs_by_layer

STUCK = 0.99  # of a token's weight goes to one neighbour, on average
FEW = 8  # images that are enough to see it
FAR = 0.02  # share of neighbours that bilinear interpolation leaves out, so that a gradient reaches them


@torch.no_grad()
def revive(passages: Sequence[Passage], seed: int = 0) -> dict[str, tuple[int, int]]:
    """Wake the silent units between the scales of a network.

    Args:
        passages: What typical pairs brought into its modules (`between_scales.watched`); these change in place.
        seed: Of the new weights.

    Returns:
        By module: how many units were woken, of how many.
    """
    generator = torch.Generator().manual_seed(seed)
    return {passage.name: _revive_one(passage, generator) for passage in passages}


def _revive_one(passage: Passage, generator: torch.Generator) -> tuple[int, int]:
    module, inputs = passage.module, inputs_by_layer(passage)
    if isinstance(module, ConvexUpsampling):
        silent = inputs["weights"].amax((0, 2, 3)) <= 0
        if _is_stuck(module, passage.inputs[0]):
            silent.fill_(True)
            assert module.weights.bias is not None
            module.weights.bias.copy_(bilinear_logits(module.factor))
        return _wake(module.head, module.weights, inputs["head"], silent, generator)
    silent = inputs["smooth"].amax((0, 2, 3)) <= 0
    if silent.all():
        _standardise(module, inputs["join"])
        inputs = inputs_by_layer(passage)
    return _wake(module.join, module.smooth, inputs["join"], silent, generator)


def _is_stuck(module: ConvexUpsampling, features: Tensor) -> bool:
    """Whether one neighbour gets all, on a few of the images: at full resolution their weights take much memory."""
    few = features[:: -(-len(features) // FEW)].float()
    return bool(module.neighbour_weights(few).amax(-2).mean() > STUCK)


def bilinear_logits(factor: int) -> Tensor:
    """(9 * factor * factor,) biases that make an untaught convex upsampling a bilinear one, nearly."""
    offsets = (torch.arange(factor) + 0.5) / factor - 0.5  # of a fine pixel from its coarse one, in coarse ones
    shares = (1 - (torch.arange(-1, 2)[:, None] - offsets).abs()).clamp(min=0)  # (3 neighbours, factor)
    weights = shares[:, None, :, None] * shares[None, :, None, :]  # (3, 3, factor, factor)
    return (weights + FAR).log().flatten()


def _standardise(module: FeatureUpsampling, joined: Tensor) -> None:
    """Centre and scale what the transposed convolution gives, to the encoder's deviation; for when nothing uses it."""
    encoded, brought = joined.transpose(0, 1).flatten(1).chunk(2)
    factor = encoded.std(1).median() / brought.std(1).clamp(min=1e-6)
    assert module.up.bias is not None
    module.up.weight.mul_(factor[:, None, None])
    module.up.bias.copy_((module.up.bias - brought.mean(1)) * factor)


def _wake(
    before: nn.Conv2d, after: nn.Conv2d, inputs: Tensor, silent: Tensor, generator: torch.Generator
) -> tuple[int, int]:
    """Give new weights to the `silent` units between two convolutions, the first of which takes (B, C, H, W)."""
    count = int(silent.sum())
    if count:
        assert before.bias is not None
        mean, deviation = inputs.mean((0, 2, 3)), inputs.std((0, 2, 3)).clamp(min=1e-6)
        fresh = torch.randn(count, *before.weight.shape[1:], generator=generator).to(inputs.device)
        fresh = fresh / before.weight[0].numel() ** 0.5 * (deviation.median() / deviation)[:, None, None]
        before.weight[silent] = fresh
        before.bias[silent] = -fresh.sum((2, 3)) @ mean
        after.weight[:, silent] = 0.0
    return count, before.out_channels
