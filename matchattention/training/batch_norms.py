"""Batch norm between scales: put in for a training, measured and folded away when a checkpoint is written.

Features go from one scale to the next without a norm. Single channels grow into large constants, every update of a
layer behind them shifts all inputs of its ReLU together, and its units die. A batch norm between the layer and the ReLU
shows the ReLU standardised inputs, whatever comes in. Being affine per channel, it folds exactly into the layer's
weight and bias, so that the file, its parameter count and all kernels are those of the network without it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from matchattention.data.batch import Batch
from matchattention.layers.batch_norm import BatchNorm
from matchattention.layers.upsampling import ConvexUpsampling, FeatureUpsampling

# That statistics are measured on; a training's own batches are an eighth of that, so it tolerates the noise.
BATCHES = 8


def upsamplings(model: nn.Module) -> Iterator[tuple[str, ConvexUpsampling | FeatureUpsampling]]:
    """The modules between the scales of a network and behind the last one, by name."""
    for name, module in model.named_modules():
        if isinstance(module, ConvexUpsampling | FeatureUpsampling):
            yield name, module


class Moments:
    """Mean and variance of every channel of tokens that come in several calls."""

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

    def mean_and_variance(self) -> tuple[Tensor, Tensor]:
        """(C,) fp64 each."""
        mean = torch.as_tensor(self._sum / self._count)
        return mean, (torch.as_tensor(self._squares / self._count) - mean.square()).clamp(min=0)


@torch.no_grad()
def measure(model: nn.Module, run: Callable[[], object]) -> None:
    """Give every norm of a network the statistics of what comes in while ``run`` calls the network."""
    found: list[tuple[BatchNorm, Moments]] = []
    handles = []
    for _, module in upsamplings(model):
        if module.norm is not None:
            moments = Moments()
            found.append((module.norm, moments))
            handles.append(
                module.norm.register_forward_pre_hook(lambda _, inputs, moments=moments: moments.add(inputs[0]))
            )
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    for norm, moments in found:
        mean, variance = moments.mean_and_variance()
        norm.mean.copy_(mean)
        norm.variance.copy_(variance)


def insert(model: nn.Module) -> None:
    """Put a norm into every upsampling; in eval mode the network computes what it did.

    The bias of the layer in front has no effect any more and stays as it is.
    """
    for _, module in upsamplings(model):
        layer = module.normed
        assert layer.bias is not None
        layer.bias.requires_grad_(False)
        module.norm = BatchNorm(layer.out_channels).to(layer.weight.device, layer.weight.dtype).train(module.training)


@torch.no_grad()
def insert_into_trained(model: nn.Module, run: Callable[[], object]) -> None:
    """Put norms into a trained network whose scales and shifts undo what they do to the inputs of ``run``.

    The network computes what it did, in training mode as far as a batch is like those of ``run``.
    """
    insert(model)
    training = model.training
    model.eval()  # new norms leave their inputs as they are
    measure(model, run)
    model.train(training)
    for _, module in upsamplings(model):
        norm = module.norm
        assert norm is not None
        norm.weight.copy_((norm.variance + norm.eps).sqrt())
        norm.bias.copy_(norm.mean)


@torch.no_grad()
def folded(model: nn.Module) -> dict[str, Tensor]:
    """A network's weights with its norms, as measured, folded into the layers in front of them."""
    weights = dict(model.state_dict())
    for name, module in upsamplings(model):
        norm, layer = module.norm, module.normed
        if norm is None:
            continue
        scale = norm.weight.double() / (norm.variance.double() + norm.eps).sqrt()
        prefix = next(f"{name}.{child}" for child, part in module.named_children() if part is layer)
        weights[f"{prefix}.weight"] = (layer.weight.double() * scale.view(-1, 1, 1, 1)).to(layer.weight.dtype)
        bias = (layer.bias.double() - norm.mean) * scale + norm.bias  # type: ignore[union-attr]
        weights[f"{prefix}.bias"] = bias.to(layer.weight.dtype)
        for part in norm.state_dict():
            del weights[f"{name}.norm.{part}"]
    return weights


class BatchNorms:
    """The norms of one training: puts them in, and writes weights without them.

    Make it before the optimizer, which learns their scales and shifts, and before the network is compiled.

    Args:
        model: The network that is trained.
        batches: Typical pairs.
        mixed_precision: Whether the training computes in bf16.
        trained: Whether the weights must go on computing what they do.
        writes: Whether this process writes checkpoints.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Sequence[Batch],
        mixed_precision: bool,
        trained: bool,
        writes: bool = True,
    ) -> None:
        self._images = [tuple(_as_bytes(view) for view in (batch.image0, batch.image1)) for batch in batches]
        self._mixed_precision = mixed_precision
        if trained:
            insert_into_trained(model, lambda: self._run(model))
        else:
            insert(model)
        self._twin = copy.deepcopy(model).requires_grad_(False).train() if writes else None

    def folded(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The plain network's weights, from any weights of the network with norms (their average, say).

        The statistics are measured for these very weights: averaged weights have other features than those they
        are the average of.
        """
        twin = self._twin
        assert twin is not None
        twin.load_state_dict(weights)
        measure(twin, lambda: self._run(twin))
        return folded(twin)

    @torch.no_grad()
    def _run(self, network: nn.Module) -> None:
        device = next(network.parameters()).device
        with torch.autocast(device.type, torch.bfloat16, enabled=self._mixed_precision):
            for images in self._images:
                network(*(view.to(device).float() for view in images))


def _as_bytes(images: Tensor) -> Tensor:
    return images.nan_to_num(0.0).clamp(0, 255).round().to(torch.uint8)
