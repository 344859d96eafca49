"""Upkeep wakes units of the trained network and of its average, and measures means."""

from __future__ import annotations

import torch

from matchattention.models import create_model
from matchattention.training.batch import Batch
from matchattention.training.between_scales import inputs_by_layer, watched
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.presets import TINY
from matchattention.training.upkeep import Upkeep


def make():
    torch.manual_seed(0)
    model = create_model(TINY).train()
    images = [255 * torch.rand(2, 3, 64, 96) for _ in range(2)]
    field, known = torch.zeros(2, 64, 96, 2), torch.ones(2, 64, 96, dtype=torch.bool)
    updater = Updater(model, OptimizerConfig(kind="muon"))
    return model, updater, Upkeep(model, updater, [Batch(*images, field, field, known, known)], False, 1)


def test_weights_and_their_average_get_the_same_new_units():
    model, updater, upkeep = make()
    upkeep.run(0)
    lift = model.feature_upsamplings[0]
    with torch.no_grad():
        for average in updater.average:
            average.mul_(1.01)  # an average is not the weights
        lift.join.bias.fill_(-1e4)
    index = updater.names.index("feature_upsamplings.0.join.weight")
    untouched = updater.names.index("encoder.stem.first.weight")
    before = updater.average[untouched].clone()
    pointers = [p.data_ptr() for p in updater.parameters]
    found = upkeep.run(2000)
    units = lift.join.out_channels
    assert found["feature_upsamplings.0"] == (units, units)
    assert torch.equal(updater.average[index], lift.join.weight)
    assert torch.equal(updater.average[untouched], before)
    assert pointers == [p.data_ptr() for p in updater.parameters], "captured steps need the weights where they are"
    assert upkeep.run(4000)["feature_upsamplings.0"][0] == 0


def test_means_are_measured_once_at_the_beginning_unless_a_state_has_them():
    _, _, upkeep = make()
    assert upkeep.is_due_at_once
    upkeep.run(0)
    assert not upkeep.is_due_at_once
    assert all((value != 0).any() for value in upkeep.measured)


def test_biases_of_weights_and_average_are_merged_each_by_its_own_matrix():
    model, updater, upkeep = make()
    averages = dict(zip(updater.names, updater.average))
    lift = "feature_upsamplings.1"
    with torch.no_grad():
        averages[f"{lift}.join.weight"].mul_(2)
        for weights in (dict(model.named_parameters()), averages):
            weights[f"{lift}.up.bias"].fill_(3.0)
            weights[f"{lift}.join.bias"].fill_(1e3)  # every unit fires: none is woken
    expected = []
    for weights in (dict(model.named_parameters()), averages):
        matrix = weights[f"{lift}.join.weight"].detach().flatten(1)
        expected.append(1e3 + 3 * matrix[:, matrix.shape[1] // 2 :].sum(1))
    upkeep.run(0)
    for weights, bias in zip((dict(model.named_parameters()), averages), expected):
        assert not weights[f"{lift}.up.bias"].any()
        torch.testing.assert_close(weights[f"{lift}.join.bias"].detach(), bias)


def test_upkeep_does_not_depend_on_a_compiled_network():
    model, _, upkeep = make()
    for block in (*model.feature_upsamplings, *model.field_upsamplings):
        block.compile(backend="eager")
    handles = sum(len(module._forward_pre_hooks) for module in model.modules())
    upkeep.run(0)
    assert handles == sum(len(module._forward_pre_hooks) for module in model.modules()) == 0


def test_a_unit_that_some_pairs_wake_is_left_alone():
    torch.manual_seed(0)
    model = create_model(TINY).train()
    pairs = [[255 * torch.rand(1, 3, 64, 96) for _ in range(2)], [torch.zeros(1, 3, 64, 96) for _ in range(2)]]
    field, known = torch.zeros(1, 64, 96, 2), torch.ones(1, 64, 96, dtype=torch.bool)
    batches = [Batch(*images, field, field, known, known) for images in pairs]

    def silent(chosen):
        updater = Updater(model, OptimizerConfig(kind="muon"))
        upkeep = Upkeep(model, updater, chosen, False, 1)
        seen = watched(upkeep._twin, upkeep._pass)
        return {p.name: inputs_by_layer(p)["smooth"].amax((0, 2, 3)) <= 0 for p in seen if "feature" in p.name}

    first, second, both = (silent(chosen) for chosen in ([batches[0]], [batches[1]], batches))
    assert any((first[name] != second[name]).any() for name in both)
    for name, units in both.items():
        assert torch.equal(units, first[name] & second[name])
