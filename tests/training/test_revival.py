"""Silent units wake, and the network computes what it did."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from matchattention.layers.upsampling import ConvexUpsampling
from matchattention.models import create_model
from matchattention.training.between_scales import watched
from matchattention.training.presets import TINY
from matchattention.training.revival import FAR, bilinear_logits, revive


def network_and_pair():
    torch.manual_seed(0)
    model = create_model(TINY).train()
    pair = [255 * torch.rand(2, 3, 64, 96) for _ in range(2)]
    return model, pair


@torch.no_grad()
def silence(model, lift, units):
    """Push a lift's units far below zero, as large features do."""
    model.feature_upsamplings[lift].join.bias[:units] = -1e4


def woken(model, pair):
    return {name: count for name, (count, _) in revive(watched(model, lambda: model(*pair))).items() if count}


def test_nothing_is_changed_where_every_unit_fires():
    model, pair = network_and_pair()
    woken(model, pair)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    assert woken(model, pair) == {}
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, weights[name]), name


def test_silent_units_wake_and_the_field_stays():
    model, pair = network_and_pair()
    woken(model, pair)
    everything = model.feature_upsamplings[0].join.out_channels
    silence(model, 0, everything)
    silence(model, 1, 3)
    with torch.no_grad():
        before = model(*pair).field
    found = woken(model, pair)
    assert found["feature_upsamplings.0"] == everything
    assert found["feature_upsamplings.1"] == 3
    with torch.no_grad():
        torch.testing.assert_close(model(*pair).field, before, rtol=0, atol=1e-4)
    assert woken(model, pair) == {}


def test_woken_units_learn():
    model, pair = network_and_pair()
    lift = model.feature_upsamplings[0]
    silence(model, 0, lift.join.out_channels)
    model(*pair).field.square().mean().backward()
    assert lift.smooth.weight.grad.abs().max() == 0
    woken(model, pair)
    model.zero_grad()
    model(*pair).field.square().mean().backward()
    assert lift.smooth.weight.grad.abs().amax((0, 2, 3)).min() > 0


def test_new_units_fire_on_about_half_of_the_tokens():
    model, pair = network_and_pair()
    lift = model.feature_upsamplings[0]
    silence(model, 0, lift.join.out_channels)
    woken(model, pair)
    shares = []
    lift.register_forward_pre_hook(
        lambda module, inputs: shares.append((module._join(module.joined(*inputs)) > 0).float().mean().item())
    )
    with torch.no_grad():
        model(*pair)
    assert 0.3 < shares[0] < 0.7


@pytest.mark.parametrize("factor", [2, 4])
def test_bilinear_logits_interpolate(factor):
    upsample = ConvexUpsampling(8, 8, factor)
    field = torch.rand(1, 5, 7, 2)
    with torch.no_grad():
        upsample.weights.weight.zero_()
        upsample.weights.bias.copy_(bilinear_logits(factor))
        (found,) = upsample(torch.zeros(1, 5, 7, 8), field)
    images = F.pad(field.permute(0, 3, 1, 2), (1, 1, 1, 1), mode="replicate")
    smooth = F.interpolate(images, scale_factor=factor, mode="bilinear")[..., factor:-factor, factor:-factor]
    smooth = (smooth + 9 * FAR * F.interpolate(F.avg_pool2d(images, 3, 1), scale_factor=factor)) / (1 + 9 * FAR)
    torch.testing.assert_close(found / factor, smooth.permute(0, 2, 3, 1))


def test_an_upsampling_that_always_takes_one_neighbour_begins_anew():
    model, pair = network_and_pair()
    woken(model, pair)
    upsample, other = model.field_upsamplings[1], model.field_upsamplings[0]
    kept = [p.detach().clone() for p in other.parameters()]
    with torch.no_grad():
        upsample.weights.bias.view(9, 4)[6] = 1e3
    model(*pair).field.square().mean().backward()
    assert upsample.head.weight.grad.abs().max() == 0
    units = upsample.head.out_channels
    assert woken(model, pair) == {"field_upsamplings.1": units}
    assert all(torch.equal(p, before) for p, before in zip(other.parameters(), kept))
    assert woken(model, pair) == {}
    model.zero_grad()
    model(*pair).field.square().mean().backward()
    assert upsample.weights.weight.grad.abs().amax((0, 2, 3)).min() > 0
