"""Standardised updates are those of the same layer behind inputs that were standardised."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from matchattention.layers.upsampling import FeatureUpsampling
from matchattention.models import create_model
from matchattention.training.between_scales import watched
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.presets import TINY


class Behind(nn.Module):
    """A lift whose joining layer standardises its inputs itself."""

    def __init__(self, lift: FeatureUpsampling, mean: torch.Tensor, scale: float) -> None:
        super().__init__()
        self.up, self.join, self.smooth = lift.up, lift.join, lift.smooth
        self.mean, self.scale = mean, scale

    def forward(self, coarse, encoded):
        joined = torch.cat((encoded.permute(0, 3, 1, 2), self.up(coarse.permute(0, 3, 1, 2))), 1)
        joined = (joined - self.mean[:, None, None]) / self.scale
        return self.smooth(torch.relu(self.join(joined))).permute(0, 2, 3, 1)


def make_lift():
    torch.manual_seed(0)
    return FeatureUpsampling(16, 8)


@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_standardised_update_is_that_of_standardised_inputs(kind, scale):
    torch.manual_seed(1)  # AdamW's first steps are signs: rounding would decide about gradients that happen to be zero
    encoded, coarse = 20 + scale * torch.randn(2, 8, 12, 8), 50 + torch.randn(2, 4, 6, 16)
    plain, other = make_lift(), make_lift()
    mean = torch.full((16,), 20.0)
    with torch.no_grad():
        other.join.bias += other.join.weight.sum((2, 3)) @ mean
        other.join.weight *= scale
    explicit = Behind(other, mean, scale)
    config = OptimizerConfig(kind=kind, clip=1e9, weight_decay=0.0)
    updaters = [Updater(nn.ModuleDict({"lift": plain}), config)]
    updaters[0].standardising.means["lift.join.weight"].copy_(mean)
    updaters[0].standardising.scales["lift.join.weight"].fill_(scale)
    updaters.append(Updater(explicit, replace(config, standardised=False)))
    for step in range(3):
        for model, updater in zip((plain, explicit), updaters):
            updater.set_rates(1e-2, step)
            for parameter in updater.parameters:
                parameter.grad = None
            model(coarse, encoded).sin().mean().backward()
            updater.update()
    torch.testing.assert_close(plain(coarse, encoded), explicit(coarse, encoded), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(plain.join.weight * scale, other.join.weight, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
def test_outputs_of_average_inputs_stay_where_the_bias_puts_them(transposed):
    """Whatever happens to the weights, the mean output moves with the bias' own update only."""
    lift = make_lift()
    name = "up" if transposed else "join"
    layer = getattr(lift, name)
    updater = Updater(nn.ModuleDict({"lift": lift}), OptimizerConfig(kind="muon"))
    mean = 30 + torch.randn(16)
    updater.standardising.means[f"lift.{name}.weight"].copy_(mean)

    def output():
        return layer(mean[None, :, None, None].expand(1, 16, 2, 2)).mean((0, 2, 3))

    before = output().detach()
    for parameter in updater.parameters:
        parameter.grad = torch.randn_like(parameter)
    layer.bias.grad = torch.zeros_like(layer.bias)
    updater.set_rates(1e-2, 0)
    weight = layer.weight.detach().clone()
    updater.update()
    assert (layer.weight - weight).abs().max() > 1e-4
    torch.testing.assert_close(output(), before, rtol=1e-4, atol=1e-3)


def test_nothing_changes_before_means_are_measured_and_after_bad_gradients():
    torch.manual_seed(0)
    model = create_model(TINY).train()
    updater = Updater(model, OptimizerConfig(kind="muon"))
    assert all((mean == 0).all() for mean in updater.standardising.means.values())
    assert all(scale == 1 for scale in updater.standardising.scales.values())
    pair = [255 * torch.rand(1, 3, 64, 96) for _ in range(2)]
    updater.standardising.measure(watched(model, lambda: model(*pair)))
    assert all((mean != 0).any() for mean in updater.standardising.means.values())
    assert all(scale >= 1 for scale in updater.standardising.scales.values())
    weights = [p.detach().clone() for p in updater.parameters]
    for parameter in updater.parameters:
        parameter.grad = torch.full_like(parameter, float("nan"))
    updater.set_rates(1e-2, 0)
    updater.update()
    for parameter, weight in zip(updater.parameters, weights):
        assert torch.equal(parameter, weight)
