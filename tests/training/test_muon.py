"""Orthogonalised momentum: the directions, the padding, the lengths, and what must not change."""

import pytest
import torch
from torch import nn

from matchattention.training.muon import LENGTH, Muon, is_matrix, orthogonalise
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.state import Counters, load_state, state_content, write_state


class Net(nn.Module):
    """One weight of each kind."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 40)
        self.convolution = nn.Conv2d(16, 8, 3)
        self.depthwise = nn.Conv2d(16, 16, 3, groups=16)
        self.norm = nn.LayerNorm(8)


def with_gradients(seed=0, channels_last=False):
    torch.manual_seed(seed)
    net = Net()
    if channels_last:
        net = net.to(memory_format=torch.channels_last)
    updater = Updater(net, OptimizerConfig(kind="muon", weight_decay=0.0))
    torch.manual_seed(seed + 1)
    for parameter in net.parameters():
        parameter.grad = torch.randn(parameter.shape)
    return net, updater


def test_singular_values_end_near_one():
    torch.manual_seed(0)
    matrices = torch.randn(3, 20, 50) * torch.logspace(-2, 0, 50)
    values = torch.linalg.svdvals(orthogonalise(matrices))
    assert values.min() > 0.3
    assert values.max() < 1.3


def test_padding_changes_nothing():
    torch.manual_seed(0)
    matrix = torch.randn(1, 20, 30)
    padded = torch.zeros(1, 32, 64)
    padded[:, :20, :30] = matrix
    found = orthogonalise(padded)
    torch.testing.assert_close(found[:, :20, :30], orthogonalise(matrix), atol=1e-5, rtol=1e-4)
    assert not found[:, 20:].any()
    assert not found[:, :, 30:].any()


def test_only_matrices_that_mix_channels_are_orthogonalised():
    net = Net()
    chosen = {name for name, p in net.named_parameters() if is_matrix(p)}
    assert chosen == {"linear.weight", "convolution.weight"}


@pytest.mark.parametrize("name", ["linear.weight", "convolution.weight"])
def test_first_update_is_the_gradient_orthogonalised(name):
    net, updater = with_gradients()
    parameter = dict(net.named_parameters())[name]
    before = parameter.detach().flatten(1).clone()
    gradient = parameter.grad.flatten(1)
    updater.set_rates(0.1, 0)
    updater.update()
    change = (parameter.detach().flatten(1) - before) / -0.1
    left, _, right = torch.linalg.svd(gradient, full_matrices=False)
    direction = left @ right
    cosine = (change * direction).sum() / (change.norm() * direction.norm())
    assert cosine > 0.95
    rms = change.square().mean().sqrt() / LENGTH
    assert 0.6 < rms < 1.3


def test_memory_order_of_weights_and_gradients_does_not_matter():
    nets = []
    for channels_last in (False, True):
        net, updater = with_gradients(channels_last=channels_last)
        if channels_last:
            assert not net.convolution.weight.is_contiguous()
        updater.set_rates(0.1, 0)
        updater.update()
        nets.append(net)
    torch.testing.assert_close(nets[0].convolution.weight, nets[1].convolution.weight, atol=1e-3, rtol=1e-2)


def test_a_gradient_that_is_not_finite_changes_no_weight_and_no_momentum():
    net, updater = with_gradients()
    updater.set_rates(0.1, 0)
    updater.update()
    kept = [p.detach().clone() for p in net.parameters()]
    momentum = [v.clone() for moments in updater.moments().values() for v in moments.values()]
    net.linear.weight.grad[0, 0] = float("nan")
    updater.update()
    for before, after in zip(kept, net.parameters()):
        torch.testing.assert_close(before, after.detach(), rtol=0, atol=0)
    for before, after in zip(momentum, (v for moments in updater.moments().values() for v in moments.values())):
        torch.testing.assert_close(before, after, rtol=0, atol=0)


def test_a_saved_training_continues_exactly(tmp_path):
    net, updater = with_gradients()
    updater.set_rates(0.1, 0)
    updater.update()
    write_state(tmp_path, state_content(net, updater, Counters(steps=1), {}))
    gradients = [p.grad.clone() for p in net.parameters()]  # the update clips them in place
    updater.update()
    other, restored = with_gradients(seed=5)
    assert load_state(tmp_path, other, restored).restarted_at == 0
    for parameter, gradient in zip(other.parameters(), gradients):
        parameter.grad = gradient
    restored.set_rates(0.1, 0)
    restored.update()
    for mine, theirs in zip(net.parameters(), other.parameters()):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_another_optimizer_may_go_on_with_the_weights(tmp_path):
    net, updater = with_gradients()
    write_state(tmp_path, state_content(net, updater, Counters(steps=7), {}))
    adam = Updater(net, OptimizerConfig())
    assert load_state(tmp_path, net, adam).restarted_at == 7


def test_weight_decay_shrinks():
    weight = nn.Parameter(torch.randn(16, 24))
    before = weight.detach().clone()
    weight.grad = torch.zeros_like(weight)
    Muon([weight], 0.9, 0.5).step(torch.tensor(0.1), torch.tensor(1.0), torch.tensor(True))
    torch.testing.assert_close(weight.detach(), before * 0.95)


def test_two_steps_by_hand_with_momentum_clipping_and_nesterovs_look_ahead():
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(16, 24))
    expected = weight.detach().clone()
    muon, momentum = Muon([weight], 0.9, 0.0), torch.zeros(16, 24)
    for divisor in (1.0, 5.0):  # the second gradient is clipped to a fifth
        gradient = torch.randn(16, 24)
        weight.grad = gradient.clone()
        muon.step(torch.tensor(0.1), torch.tensor(divisor), torch.tensor(True))
        clipped = gradient / divisor
        momentum = 0.9 * momentum + 0.1 * clipped
        ahead = 0.9 * momentum + 0.1 * clipped
        expected -= 0.1 * LENGTH * 24**0.5 * orthogonalise(ahead[None])[0]
        torch.testing.assert_close(weight.detach(), expected, atol=1e-4, rtol=1e-4)
