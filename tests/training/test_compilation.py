"""Compiled blocks give the same gradients; caches are packed and unpacked."""

from __future__ import annotations

import json
import os
from collections import Counter

import torch

from matchattention.models import create_model
from matchattention.training.compilation import (
    compile_blocks,
    load_caches,
    repeated_blocks,
    save_caches,
    undo_compilation,
    use_cache_folder,
)
from matchattention.training.losses import LossConfig, total_loss
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.presets import TINY
from matchattention.training.sources import ShiftedCards
from matchattention.training.step import TrainingStep
from tests.training.networks import TinyNetwork


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


def test_the_loss_traces_whole_and_gives_the_same_gradients():
    torch.manual_seed(0)
    model = create_model(TINY)
    batch = ShiftedCards(0).batch(0, 1, 32, 64)
    matches = model(batch.image0, batch.image1)
    leaves = [*(step.position for step in matches.steps), matches.field, matches.initial.log_matching]

    def gradients(objective):
        terms = objective(matches, batch, LossConfig())
        return torch.autograd.grad(terms["loss"], leaves, retain_graph=True)

    compiled = torch.compile(total_loss, backend="aot_eager", fullgraph=True, dynamic=False)
    torch.testing.assert_close(gradients(compiled), gradients(total_loss), rtol=1e-4, atol=1e-6)
    torch._dynamo.reset()


def test_tiny_network_compiles_without_graph_breaks():
    model = create_model(TINY).train()
    compile_blocks(model, backend="eager")  # fullgraph: a break would be an error
    batch = ShiftedCards(0).batch(0, 1, 32, 64)
    model(batch.image0, batch.image1).field.sum().backward()
    undo_compilation(model)


def test_caches_travel(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.setenv("TRITON_CACHE_DIR", "")
    first, second, export = tmp_path / "first", tmp_path / "second", tmp_path / "export"
    use_cache_folder(first)
    assert os.environ["TRITON_CACHE_DIR"] == str(first / "triton")
    kernel = first / "triton" / "ABC" / "kernel.cubin"
    kernel.parent.mkdir()
    kernel.write_bytes(b"binary")
    kernel.with_suffix(".ptx").write_bytes(b"not needed")
    group = {"child_paths": {"kernel.cubin": str(kernel)}}
    (kernel.parent / "__grp__kernel.json").write_text(json.dumps(group))
    assert save_caches(first, export, part_bytes=1 << 20, most_bytes=1 << 20)
    use_cache_folder(second)
    assert load_caches(export, second)
    assert (second / "triton" / "ABC" / "kernel.cubin").read_bytes() == b"binary"
    assert not (second / "triton" / "ABC" / "kernel.ptx").exists()
    group = json.loads((second / "triton" / "ABC" / "__grp__kernel.json").read_text())
    assert group == {"child_paths": {"kernel.cubin": str(second / "triton" / "ABC" / "kernel.cubin")}}
    assert not load_caches(tmp_path, second)
    assert save_caches(first, export, part_bytes=1 << 20, most_bytes=10) == []
