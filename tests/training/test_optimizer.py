"""The update equals PyTorch's, skips what is not finite and averages the weights; its moments survive eight bits."""

from __future__ import annotations

import pytest
import torch

from matchattention.training.optimizer import OptimizerConfig, Updater
from tests.training.networks import TinyNetwork


class TestUpdater:
    def _with_gradients(self, factor: float):
        torch.manual_seed(0)
        model = TinyNetwork()
        updater = Updater(model, OptimizerConfig(average_decay=0.5))
        for parameter in updater.parameters:
            parameter.grad = factor * torch.randn_like(parameter)
        return model, updater

    @pytest.mark.parametrize("factor", [1e-4, 10.0])
    def test_equals_pytorchs_clipping_and_adamw(self, factor):
        model, updater = self._with_gradients(factor)
        expected = TinyNetwork()
        expected.load_state_dict(model.state_dict())
        for ours, theirs in zip(updater.parameters, expected.parameters()):
            theirs.grad = ours.grad.clone()
        groups = [
            {"params": [p for p in expected.parameters() if p.dim() >= 2], "weight_decay": 0.05},
            {"params": [p for p in expected.parameters() if p.dim() < 2], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
        norm = torch.nn.utils.clip_grad_norm_(expected.parameters(), 1.0)
        optimizer.step()
        updater.set_rates(1e-3, 0)
        updater.update()
        for ours, theirs in zip(updater.parameters, expected.parameters()):
            assert torch.allclose(ours, theirs, atol=1e-7)
        assert updater.read_statistics()["gradient"] == pytest.approx(norm.item(), rel=1e-5)

    def test_gradient_that_is_not_finite_changes_nothing_and_is_counted(self):
        model, updater = self._with_gradients(1.0)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        updater.parameters[1].grad[0] = float("inf")
        updater.set_rates(1e-2, 0)
        updater.update()
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert all(state["step"].item() == 0 for state in updater.optimizer.state.values())
        assert updater.read_statistics()["skipped"] == 1

    def test_statistics_are_the_mean_and_the_largest_norm(self):
        _, updater = self._with_gradients(1.0)
        gradients = [p.grad.clone() for p in updater.parameters]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))).item()
        for factor in (1.0, 3.0, 2.0):
            for parameter, gradient in zip(updater.parameters, gradients):
                parameter.grad = factor * gradient
            updater.set_rates(0.0, 0)
            updater.update()
        found = updater.read_statistics()
        assert found["gradient"] == pytest.approx(2 * norm)
        assert found["gradient_max"] == pytest.approx(3 * norm)

    def test_rehearsal_changes_nothing(self):
        model, updater = self._with_gradients(1.0)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        updater.rehearse()
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert all(torch.equal(a, before[n]) for n, a in updater.averaged().items())
        assert updater.statistics.tolist() == [0, 0, 0, 0]

    def test_average_warms_up_to_its_decay(self):
        _, updater = self._with_gradients(1.0)
        start = updater.average[0].clone()
        updater.set_rates(1e-2, 0)
        updater.update()
        expected = start + 0.9 * (updater.parameters[0] - start)  # decay (1 + 0) / (10 + 0)
        assert torch.allclose(updater.average[0], expected, atol=1e-7)
        updater.set_rates(0.0, 1000)
        assert updater._average_weight.item() == pytest.approx(0.5)

    def test_second_step_has_no_decay_on_vectors(self):
        _, updater = self._with_gradients(0.0)
        vectors = [p.detach().clone() for p in updater.parameters if p.dim() < 2]
        matrices = [p.detach().clone() for p in updater.parameters if p.dim() >= 2]
        updater.set_rates(0.1, 0)
        updater.update()
        after = [p for p in updater.parameters if p.dim() < 2]
        assert all(torch.equal(a, b) for a, b in zip(vectors, after))
        shrunk = [p for p in updater.parameters if p.dim() >= 2]
        assert all(torch.allclose(a * (1 - 0.1 * 0.05), b) for a, b in zip(matrices, shrunk))
