"""Constants leave the features, and the network computes what it computed."""

from __future__ import annotations

import copy

import pytest
import torch

from matchattention.models import create_model
from matchattention.training.inside import Moments, observed
from matchattention.training.presets import TINY
from matchattention.training.settling import merge_biases, settle


@pytest.fixture
def network():
    torch.manual_seed(0)
    model = create_model(TINY).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("out.weight"):
                parameter += 0.02 * torch.randn_like(parameter)
    return model


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(1)
    return [255 * torch.rand(2, 3, 96, 128, generator=generator) for _ in range(2)]


def settled(network, images):
    return settle(network, observed(network, lambda: network(*images)))


def make_constant(layer, unit, factor=1e4):
    """One hidden unit that says the same, loudly, to every token."""
    with torch.no_grad():
        hidden = layer.contract.in_features
        for row in (unit, hidden + unit):
            layer.expand.weight[row] *= 1e-2
        layer.depthwise.weight[unit] = 0.0
        layer.depthwise.bias[unit] = 2.0
        layer.expand.bias[hidden + unit] = factor
        layer.expand.weight[hidden + unit] *= 1e-2


@torch.no_grad()
def test_constant_units_become_biases(network, images):
    layer = network.stages[0][-1].feedforward
    make_constant(layer, 3)
    before = network(*images)
    found = settled(network, images).folded
    count = len(network.stages[0]) - 1
    assert found[f"stages.0.{count}.feedforward"] == (1, layer.contract.in_features)
    assert sum(folded for folded, _ in found.values()) == 1
    assert not layer.contract.weight[:, 3].any()
    assert settled(network, images).folded[f"stages.0.{count}.feedforward"][0] == 0, "the unit is weak now"
    after = network(*images)
    for step, former in zip(after.steps, before.steps):
        if step.scale == 32:
            torch.testing.assert_close(step.position, former.position, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_features_leave_every_scale_without_a_mean(network, images):
    for stage in network.stages:
        stage[-1].feedforward.contract.bias += 30 * torch.randn_like(stage[-1].feedforward.contract.bias)
    assert settled(network, images).scales == [0, 1, 2, 3]
    means = []
    for stage in network.stages:
        stage[-1].register_forward_hook(lambda module, inputs, output: means.append(output.features.mean((0, 1, 2))))
    network(*images)
    assert len(means) == 4
    assert means[0].abs().max() < 1e-3
    for mean in means[1:]:  # taps and borders of the coarser scales have changed these features a little
        assert mean.square().mean().sqrt() < 3


@torch.no_grad()
def test_means_are_handed_over_exactly_where_taps_agree_and_no_border_is_seen(network, images):
    for up in network.feature_upsamplings:
        up.up.weight.copy_(up.up.weight.mean((2, 3), keepdim=True).expand_as(up.up.weight))
    for convex in (*network.field_upsamplings, network.final_upsampling):
        centre = convex.head.weight[:, :, 1:2, 1:2].clone()
        convex.head.weight.zero_()
        convex.head.weight[:, :, 1:2, 1:2] = centre
    for stage in network.stages:
        stage[-1].feedforward.contract.bias += 30 * torch.randn_like(stage[-1].feedforward.contract.bias)
    changed = copy.deepcopy(network)
    assert settled(changed, images).changed
    biases = [net.stages[0][-1].feedforward.contract.bias for net in (changed, network)]
    assert not torch.equal(*biases)
    torch.testing.assert_close(changed(*images).field, network(*images).field, rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_one_bias_of_two_linear_layers_is_enough(network, images):
    for lift in network.feature_upsamplings:
        lift.up.bias += 30 * torch.randn_like(lift.up.bias)
    before = network(*images)
    merge_biases(dict(network.named_parameters()))
    assert not any(lift.up.bias.any() for lift in network.feature_upsamplings)
    after = network(*images)
    torch.testing.assert_close(after.field, before.field, rtol=1e-4, atol=1e-3)


@torch.no_grad()
def test_healthy_networks_are_left_alone(network, images):
    before = {name: value.clone() for name, value in network.state_dict().items()}
    assert not settled(network, images).changed
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@torch.no_grad()
def test_hooks_are_gone_afterwards(network, images):
    settled(network, images)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


def test_moments_of_several_calls_are_those_of_one():
    calls = [5 + torch.randn(2, 3, 4, 6), 1 + torch.randn(1, 7, 4, 6)]
    moments = Moments()
    for tokens in calls:
        moments.add(tokens)
    tokens = torch.cat([part.flatten(0, -2) for part in calls])
    torch.testing.assert_close(moments.mean, tokens.mean(0))
    torch.testing.assert_close(moments.deviation, tokens.std(0, correction=0))
    torch.testing.assert_close(moments.strength, tokens.square().mean(0).sqrt())
