"""Silent units wake, and the network computes what it did."""

from __future__ import annotations

import torch

from matchattention.models import create_model
from matchattention.training.between_scales import watched
from matchattention.training.presets import TINY
from matchattention.training.revival import revive


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
