"""Updates of the layers between scales as if their inputs had no mean.

Inputs that are far from zero couple a layer's weights with its bias: a small change of the weights shifts all outputs
at once, and a ReLU behind them dies. With the inputs' mean m, W x + b is W (x - m) + b' for b' = b + W m. Descending in
(W, b') instead of (W, b) needs no other network: the weights' gradient loses the bias' gradient times m, and whatever
changes W afterwards is taken back from b times m (Schraudolph 1998, "Centering neural network gradient factors").
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from matchattention.training.between_scales import Passage, inputs_by_layer, passages


class Centring:
    """Centres the updates of a network's layers between scales; means are zero, and nothing changes, until measured.

    Attributes:
        means: by the weight's name, (channels) fp32 on the weight's device; live tensors.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layers: dict[str, nn.Conv2d | nn.ConvTranspose2d] = {
            f"{name}.{part}.weight": layer
            for name, module in passages(model)
            for part, layer in module.named_children()
            if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d))
        }
        self.means = {
            name: torch.zeros(layer.in_channels, device=layer.weight.device) for name, layer in self._layers.items()
        }
        self._former = {name: torch.empty_like(layer.weight) for name, layer in self._layers.items()}

    def measure(self, seen: Sequence[Passage]) -> None:
        """Take the means from what typical pairs brought into the layers (`between_scales.watched`)."""
        for passage in seen:
            for part, inputs in inputs_by_layer(passage).items():
                self.means[f"{passage.name}.{part}.weight"].copy_(inputs.mean((0, 2, 3)))

    @torch.no_grad()
    def before_update(self) -> None:
        """Centre the gradients."""
        for name, layer in self._layers.items():
            self._former[name].copy_(layer.weight)
            assert layer.bias is not None
            if layer.weight.grad is not None and layer.bias.grad is not None:
                mean, slope = self.means[name][:, None, None], layer.bias.grad[:, None, None]
                if isinstance(layer, nn.ConvTranspose2d):  # one bias serves all taps: they share its part
                    layer.weight.grad.sub_(mean[:, None] * slope / _taps(layer))
                else:
                    layer.weight.grad.sub_(slope[:, None] * mean)

    @torch.no_grad()
    def after_update(self) -> None:
        """Let the biases follow the weights."""
        for name, layer in self._layers.items():
            assert layer.bias is not None
            change = (layer.weight - self._former[name]).sum((2, 3))
            if isinstance(layer, nn.ConvTranspose2d):
                layer.bias.sub_(self.means[name] @ change / _taps(layer))
            else:
                layer.bias.sub_(change @ self.means[name])


def _taps(layer: nn.ConvTranspose2d) -> int:
    return layer.kernel_size[0] * layer.kernel_size[1]
