"""Compiled blocks give the same gradients, recomputed ones too."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from matchattention.models import create_model
from matchattention.training.batch_norms import insert
from matchattention.training.compilation import (
    compile_blocks,
    repeated_blocks,
    undo_compilation,
)
from matchattention.training.losses import LossConfig, total_loss
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.presets import TINY
from matchattention.training.recomputation import recompute_blocks
from matchattention.training.sources import ShiftedCards
from matchattention.training.step import TrainingStep
from tests.training.networks import TinyNetwork

TINY_FLOW = replace(TINY, task="flow", windows=((4, 4),) * 4)
kinds = pytest.mark.parametrize("config", [TINY, TINY_FLOW], ids=["stereo", "flow"])


def test_blocks_of_the_network_are_found_once_each():
    model = create_model("rt")
    blocks = list(repeated_blocks(model))
    assert len({id(block) for block in blocks}) == len(blocks)
    kinds = Counter(type(block).__name__ for block in blocks)
    assert kinds["MATBlock"] == sum(model.config.decoder_depths)
    assert kinds["EncoderBlock"] == sum(model.config.encoder_depths)
    inside = {id(inner) for block in blocks for inner in block.modules() if inner is not block}
    assert not any(id(block) in inside for block in blocks)


def test_compiled_blocks_give_the_same_gradients():
    torch.manual_seed(0)
    model = TinyNetwork()
    step = TrainingStep(model, Updater(model, OptimizerConfig()), LossConfig(), mixed_precision=False)
    batch = ShiftedCards(0).batch(0, 2, 32, 64)
    step.gradients(batch)
    expected = [p.grad.clone() for p in model.parameters()]
    assert compile_blocks(model, backend="aot_eager") == 2
    assert all(block._compiled_call_impl is not None for block in repeated_blocks(model))
    step.gradients(batch)
    for parameter, gradient in zip(model.parameters(), expected):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-4, atol=1e-5)
    undo_compilation(model)
    assert all(block._compiled_call_impl is None for block in model.modules())
    step.gradients(batch)
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected))


@kinds
def test_the_loss_traces_whole_and_gives_the_same_gradients(config):
    torch.manual_seed(0)
    model = create_model(config)
    batch = ShiftedCards(0).batch(0, 1, 32, 64)
    matches = model(batch.image0, batch.image1)
    leaves = [*(step.position for step in matches.steps), matches.field, matches.initial.log_matching]

    def gradients(objective):
        terms = objective(matches, batch, LossConfig())
        return torch.autograd.grad(terms["loss"], leaves, retain_graph=True)

    compiled = torch.compile(total_loss, backend="aot_eager", fullgraph=True, dynamic=False)
    torch.testing.assert_close(gradients(compiled), gradients(total_loss), rtol=1e-4, atol=1e-6)
    torch._dynamo.reset()


@kinds
def test_a_network_with_norms_compiles_without_graph_breaks(config):
    model = create_model(config).train()
    insert(model)
    compile_blocks(model, backend="eager")  # fullgraph: a break would be an error
    batch = ShiftedCards(0).batch(0, 1, 32, 64)
    model(batch.image0, batch.image1).field.sum().backward()
    undo_compilation(model)


def test_recomputed_blocks_compile_inside(monkeypatch):
    torch.manual_seed(0)
    model = TinyNetwork()
    step = TrainingStep(model, Updater(model, OptimizerConfig()), LossConfig(), mixed_precision=False)
    batch = ShiftedCards(0).batch(0, 2, 32, 64)
    step.gradients(batch)
    expected = [p.grad.clone() for p in model.parameters()]
    assert recompute_blocks(model) == 2
    step.gradients(batch)
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected))
    compile_blocks(model, backend="aot_eager")
    step.gradients(batch)
    for parameter, gradient in zip(model.parameters(), expected):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-4, atol=1e-5)
    undo_compilation(model)
    step.gradients(batch)
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected))
