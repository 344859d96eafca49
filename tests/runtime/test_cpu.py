"""On a CPU prepared networks compute what the plain ones compute, by other forms of their layers."""

from dataclasses import replace

import pytest
import torch

from matchattention.inference.block_progress import watching_blocks
from matchattention.layers.block import MATBlock
from matchattention.layers.confidence_head import ConfidenceHead, Evidence
from matchattention.runtime.cpu import confidence, products, upsampling
from matchattention.runtime.cpu.layers import OnCpu
from matchattention.runtime.prepared import prepare
from matchattention.runtime.runtime import Runtime
from tests.runtime import networks
from tests.runtime.networks import SMALL, VARIANTS

CPU = torch.device("cpu")
COMPARED = VARIANTS | {"flow": (VARIANTS["flow"][0], (96, 130))}
needs_oneDNN = pytest.mark.skipif(not products.oneDNN_is_here(), reason="this PyTorch has no oneDNN operators")


def lively(config):
    return networks.lively(config, CPU)


def images(height, width, pairs=1):
    return [image.float() for image in networks.images(height, width, pairs, CPU)]


def forms(network):
    return {type(module).__name__ for module in network.modules() if isinstance(module, OnCpu)}


@needs_oneDNN
@pytest.mark.parametrize(("change", "size"), COMPARED.values(), ids=COMPARED)
@torch.no_grad()
def test_equals_the_network(change, size, monkeypatch):
    monkeypatch.setattr(upsampling, "TOKENS_AT_ONCE", 50)  # several bands
    network = lively(replace(SMALL, **change))
    pair = images(*size, pairs=2)
    expected, found = network.use_backend("reference")(*pair), prepare(network, CPU, torch.float32)(*pair)
    torch.testing.assert_close(found.field, expected.field, rtol=1e-4, atol=2e-3)
    assert [step[:2] for step in found.steps] == [step[:2] for step in expected.steps]
    for step, plain in zip(found.steps, expected.steps):
        torch.testing.assert_close(step.position, plain.position, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found.self_position, expected.self_position, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found.features, expected.features, rtol=1e-4, atol=2e-3)


@needs_oneDNN
def test_every_layer_has_another_form():
    whole = {"CpuStem", "CpuEncoderBlock", "CpuContext", "CpuBlock", "CpuLift", "CpuConvex"}
    assert forms(prepare(lively(SMALL), CPU, torch.float32)) == whole
    masked = replace(SMALL, initial="softmax", self_mask=True)
    assert forms(prepare(lively(masked), CPU, torch.float32)) == whole - {"CpuContext", "CpuBlock"}


def test_without_the_operators_and_in_bf16_layers_stay_as_they_are(monkeypatch):
    assert forms(prepare(lively(SMALL), CPU, torch.bfloat16)) == set()
    monkeypatch.setattr(products, "oneDNN_is_here", lambda: False)
    assert forms(prepare(lively(SMALL), CPU, torch.float32)) == set()


def test_operators_that_are_gone_or_wrong_are_not_used(monkeypatch):
    monkeypatch.setattr(products.Product, "plus", lambda self, tokens, other: self(tokens))
    assert not products.oneDNN_is_here.__wrapped__()

    def gone(self, tokens):
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_linear_pointwise'")

    monkeypatch.setattr(products.Product, "forward", gone)
    assert not products.oneDNN_is_here.__wrapped__()


@needs_oneDNN
def test_weights_are_not_kept_twice():
    prepared = prepare(lively(SMALL), CPU, torch.float32)
    block = prepared.stages[0][0]
    assert block.qkv.weight.data_ptr() == block.plain.first.qkv.weight.data_ptr()
    assert _bytes(prepared) < 1.2 * _bytes(lively(SMALL))


def _bytes(network):
    storages = [tensor.untyped_storage() for tensor in (*network.parameters(), *network.buffers())]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


@needs_oneDNN
def test_what_is_compiled_sees_the_plain_layers(monkeypatch):
    prepared = prepare(lively(SMALL), CPU, torch.float32)
    called = []
    prepared.stages[0][0].plain.register_forward_hook(lambda *_: called.append(True))
    with torch.inference_mode():
        prepared(*images(32, 64))
        assert called == []
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        prepared(*images(32, 64))
    assert called == [True]


def test_a_prepared_network_tells_its_blocks():
    match = Runtime(lively(SMALL), "cpu")
    blocks = sum(SMALL.decoder_depths)
    assert sum(isinstance(module, MATBlock) for module in match.network.modules()) == blocks
    seen = []
    with watching_blocks(match.network, lambda block, count: seen.append((block, count))):
        match(*images(32, 64))
    assert seen == [(index + 1, blocks) for index in range(blocks)]


@torch.no_grad()
def test_a_head_in_bands_is_the_head(monkeypatch):
    monkeypatch.setattr(confidence, "PIXELS_AT_ONCE", 1000)
    torch.manual_seed(0)
    head = ConfidenceHead(12, 8, 3)
    for parameter in head.parameters():
        parameter += 0.1 * torch.randn_like(parameter)
    tokens, pixels = (2, 11, 13), (2, 41, 50)  # padded to 44 x 52
    evidence = Evidence(
        torch.randn(*tokens, 12), torch.randn(*tokens, 2), torch.randn(*tokens, 2), torch.randn(*pixels, 2),
        torch.rand(*pixels),
    )  # fmt: skip
    for found, expected in zip(confidence.banded(head)(evidence), head(evidence)):
        torch.testing.assert_close(found, expected)
