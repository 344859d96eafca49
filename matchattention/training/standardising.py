"""Updates of the layers between scales as if their inputs had no mean and a deviation of one.

Inputs that are far from zero couple a layer's weights with its bias: a small change of the weights shifts all outputs
at once, and a ReLU behind them dies. With the inputs' mean m, W x + b is W (x - m) + b' for b' = b + W m. Descending in
(W, b') instead of (W, b) needs no other network: the weights' gradient loses the bias' gradient times m, and whatever
changes W afterwards is taken back from b times m (Schraudolph 1998, "Centering neural network gradient factors").

Updates have a length of their own, whatever the gradient's, so inputs ten times as large make outputs change ten times
as fast: too fast for the softmax of a convex upsampling, which may end up with one neighbour and no gradient. Elsewhere
a norm comes first. Where inputs deviate by s > 1, what changes W is divided by s: the update of W s behind x / s.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from matchattention.training.between_scales import Passage, inputs_by_layer, passages


class Standardising:
    """Standardises the updates of a network's layers between scales; nothing changes until their inputs are measured.

    Attributes:
        means: by the weight's name, (channels) fp32 on the weight's device; live tensors.
        scales: by the weight's name, () fp32: root mean square of the channels' deviations, at least 1; live tensors.
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
        self.scales = {name: torch.ones((), device=layer.weight.device) for name, layer in self._layers.items()}
        self._former = {name: torch.empty_like(layer.weight) for name, layer in self._layers.items()}

    def measure(self, seen: Sequence[Passage]) -> None:
        """Take means and deviations from what typical pairs brought into the layers (`between_scales.watched`)."""
        for passage in seen:
            for part, inputs in inputs_by_layer(passage).items():
                variance, mean = torch.var_mean(inputs, (0, 2, 3), correction=0)
                self.means[f"{passage.name}.{part}.weight"].copy_(mean)
                self.scales[f"{passage.name}.{part}.weight"].copy_(variance.mean().sqrt().clamp(min=1.0))

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
        """Shorten what changed the weights, and let the biases follow."""
        for name, layer in self._layers.items():
            assert layer.bias is not None
            change = (layer.weight - self._former[name]) / self.scales[name]
            layer.weight.copy_(self._former[name] + change)
            shift = change.sum((2, 3))
            if isinstance(layer, nn.ConvTranspose2d):
                layer.bias.sub_(self.means[name] @ shift / _taps(layer))
            else:
                layer.bias.sub_(shift @ self.means[name])


def _taps(layer: nn.ConvTranspose2d) -> int:
    return layer.kernel_size[0] * layer.kernel_size[1]
