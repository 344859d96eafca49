"""Batch norm between scales: put in without a change, folded away exactly, invisible in what is written."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from matchattention.models import checkpoint, create_model
from matchattention.training.batch_norms import BatchNorms, folded, insert, insert_into_trained, measure, upsamplings
from matchattention.training.compilation import compile_blocks, undo_compilation
from matchattention.training.loop import Trainer
from matchattention.training.presets import TINY
from matchattention.training.sources import ShiftedCards
from tests.training.test_loop import PRESET, _trainer

BATCH = ShiftedCards(3).batch(0, 2, 64, 96)
BATCH = BATCH._replace(image0=BATCH.image0.round(), image1=BATCH.image1.round())  # as they are kept
IMAGES = BATCH.image0, BATCH.image1


def _network() -> torch.nn.Module:
    """With features far from zero, as trained ones have them, and random position rows."""
    torch.manual_seed(0)
    network = create_model(TINY)
    with torch.no_grad():
        for _, parameter in network.named_parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return network.double().eval()


def _fields(network: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return network(*(view.double() for view in IMAGES)).field


def test_every_upsampling_gets_a_norm_and_the_same_function():
    network = _network()
    before = _fields(network)
    names = set(network.state_dict())
    insert_into_trained(network, lambda: _fields(network))
    assert all(module.norm is not None for _, module in upsamplings(network))
    assert len(list(upsamplings(network))) == 7
    torch.testing.assert_close(_fields(network), before, rtol=0, atol=1e-9)
    # What the batch's own statistics do to the very batch that was measured is the same once more.
    torch.testing.assert_close(_fields(network.train()), before, rtol=0, atol=1e-6)
    assert set(folded(network)) == names


@pytest.mark.parametrize("border", ["replicate", "zero"])
def test_folding_is_exact(border):
    torch.manual_seed(1)
    network = create_model(replace(TINY, upsampling_border=border)).double()
    insert(network)
    with torch.no_grad():
        for _, module in upsamplings(network):
            module.norm.weight.uniform_(0.5, 2)
            module.norm.bias.uniform_(-1, 1)
    measure(network, lambda: _fields(network.train()))
    network.eval()
    plain = create_model(network.config).double().eval()
    checkpoint.load_weights(plain, folded(network), "the folded network")
    torch.testing.assert_close(_fields(plain), _fields(network), rtol=0, atol=1e-9)
    untouched = create_model(network.config).double().eval()
    weights = {
        name: value for name, value in network.state_dict().items() if not ("upsampling" in name and ".norm." in name)
    }
    untouched.load_state_dict(weights)
    assert (_fields(untouched) - _fields(network)).abs().max() > 1e-3, "the norms would not matter"


def test_statistics_belong_to_the_weights_that_are_written():
    """Averaged weights have other features than the weights they average: theirs must be measured."""
    network = _network().float()
    norms = BatchNorms(network, [BATCH], mixed_precision=False, trained=True)
    stale = copy.deepcopy(network).eval()
    measure(stale, lambda: stale(*IMAGES))  # of the present weights
    averaged = {n: v * 0.7 if n.endswith("contract.weight") else v for n, v in network.state_dict().items()}
    plain = create_model(network.config)
    plain.load_state_dict(norms.folded(averaged))
    stale.load_state_dict(averaged)
    old = create_model(network.config)
    old.load_state_dict(folded(stale))

    def offset(candidate: torch.nn.Module) -> float:
        """How far what the first ReLU sees is from what the norm's shift and scale promise, in deviations."""
        seen = []
        head = candidate.field_upsamplings[0].head
        handle = head.register_forward_hook(lambda module, inputs, output: seen.append(output))
        with torch.no_grad():
            candidate(*IMAGES)
        handle.remove()
        norm = network.field_upsamplings[0].norm
        return ((seen[0].mean((0, 2, 3)) - norm.bias) / norm.weight).abs().max().item()

    assert offset(plain.eval()) < 1e-3
    assert offset(old.eval()) > 0.05


def test_a_run_writes_the_plain_network_that_computes_what_was_trained(tmp_path):
    trainer = _trainer(tmp_path / "run", steps=3)
    trainer.run()
    assert any("upsampling" in name and ".norm." in name for name in trainer.model.state_dict())
    written = checkpoint.load(tmp_path / "run" / "model.safetensors")
    assert set(written.state_dict()) == set(create_model(TINY).state_dict())
    twin = trainer.norms._twin.eval()
    with torch.no_grad():
        expected, found = (network(*IMAGES).field for network in (twin, written))
    assert (found - expected).abs().mean() < 0.02  # the file is fp16
    scales = [module.norm.weight for _, module in upsamplings(trainer.model)]
    assert any((scale != 1).any() for scale in scales), "norms are trained too"


def test_a_run_continues_and_a_checkpoint_starts_another(tmp_path):
    _trainer(tmp_path / "run", steps=2).run()
    again = _trainer(tmp_path / "run", steps=4, resume=tmp_path / "run")
    again.run()
    file = tmp_path / "run" / "model.safetensors"
    preset = replace(PRESET, start=str(file), steps=1, minutes=None)
    start = checkpoint.load(file)
    before = start.train()(*IMAGES).field.detach()
    trainer = Trainer(preset, replace(again.options, resume=None), start, start.config, ShiftedCards(1))
    trainer.model.eval()
    with torch.no_grad():
        torch.testing.assert_close(trainer.model(*IMAGES).field, before, rtol=0, atol=1e-3)


def test_networks_without_upsamplings_and_trainings_without_norms_work(tmp_path):
    trainer = _trainer(tmp_path / "run", replace(PRESET, batch_norm=False), steps=1)
    trainer.run()
    assert trainer.norms is None
    assert not any("upsampling" in name and ".norm." in name for name in trainer.model.state_dict())


def test_norms_compile_without_graph_breaks():
    network = create_model(TINY).train()
    insert(network)
    network(*IMAGES).field.sum().backward()
    expected = [p.grad.clone() for p in network.parameters() if p.grad is not None]
    network.zero_grad()
    compile_blocks(network, backend="aot_eager")  # fullgraph: a break would be an error
    network(*IMAGES).field.sum().backward()
    undo_compilation(network)
    found = [p.grad for p in network.parameters() if p.grad is not None]
    scale = max(gradient.abs().max() for gradient in expected)
    for gradient, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-3, atol=float(1e-4 * scale))
