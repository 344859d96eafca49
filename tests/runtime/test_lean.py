"""Lean modules compute what the plain ones compute, in Triton's interpreter or on a GPU."""

import copy
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from matchattention.models.config import NetworkConfig
from matchattention.models.registry import NETWORKS
from matchattention.ops import kernels
from matchattention.runtime.kernels.between import gate_and_join, step_and_norm
from matchattention.runtime.lean.blocks import Lean, LeanBlock
from matchattention.runtime.lean.network import make_lean
from matchattention.runtime.prepared import prepare, replace_layers
from tests.runtime.networks import DEVICE, SMALL, VARIANTS, images, lively

pytestmark = pytest.mark.usefixtures("kernels_on_a_cpu")


@pytest.fixture
def kernels_on_a_cpu(monkeypatch):
    """Kernels run on a CPU too, in the interpreter."""
    monkeypatch.setattr(kernels, "has_kernel", lambda tokens: True)


def lean(network):
    """What `prepare` makes of a network on a GPU, in fp32."""
    made = copy.deepcopy(network)
    replace_layers(made)
    make_lean(made)
    return made


@pytest.mark.parametrize(("change", "size"), VARIANTS.values(), ids=VARIANTS)
@torch.no_grad()
def test_equals_the_network(change, size):
    net = lively(replace(SMALL, **change))
    pair = [image.float() for image in images(*size)]
    expected, found = net(*pair), lean(net)(*pair)
    assert found.field.shape == expected.field.shape
    torch.testing.assert_close(found.field, expected.field, rtol=1e-4, atol=2e-3)
    assert [step[:2] for step in found.steps] == [step[:2] for step in expected.steps]
    for step, plain in zip(found.steps, expected.steps):
        torch.testing.assert_close(step.position, plain.position, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found.self_position, expected.self_position, rtol=1e-4, atol=1e-3)


def test_everything_between_the_products_is_replaced():
    kinds = {type(module).__name__ for module in lean(lively(SMALL)).modules() if isinstance(module, Lean)}
    assert kinds == {"LeanBlock", "LeanEncoderBlock", "LeanStem", "LeanEstimate", "LeanLift", "LeanConvex"}


@torch.no_grad()
def test_half_precision_rounds_no_worse_than_the_plain_network():
    net = lively(SMALL)
    pair = [image.float() for image in images(64, 96)]
    expected = net(*pair).field
    plain = prepare(net, torch.device("cpu"), torch.float16).to(DEVICE)
    quick = lean(plain)
    errors = [(made(*pair).field - expected).abs().mean() for made in (plain, quick)]
    assert errors[1] < 1.5 * errors[0] + 1e-3


@pytest.mark.parametrize("name", ["rt", "rt-flow"])
def test_compilers_see_the_plain_network(name, monkeypatch):
    net = lean(lively(NetworkConfig(**{**NETWORKS[name].config.to_dict(), **SMALL_SHAPE})))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(LeanBlock, "run", None)
    with torch.no_grad():
        assert net(*(image.float() for image in images(32, 40))).field.shape == (2, 32, 40, 2)


SMALL_SHAPE = {
    "channels": (16, 16, 32, 32),
    "encoder_depths": (1, 1, 1, 1),
    "decoder_depths": (1, 1, 1, 1),
    "initial_layers": 1,
}


@torch.no_grad()
def test_a_step_without_rows():
    none = torch.empty(0, 16, device=DEVICE)
    stepped = step_and_norm(
        none,
        none[:, :2],
        torch.empty(0, 4, 2, device=DEVICE),
        torch.ones(2, device=DEVICE),
        torch.ones(18, device=DEVICE),
        1e-5,
        24,
    )
    assert stepped.tokens.shape == (0, 24)
    assert gate_and_join(none, None, None, 16).shape == (0, 16)


@torch.no_grad()
def test_rows_of_padding_are_zero_and_nothing_else_is_touched():
    generator = torch.Generator().manual_seed(0)
    features, update = (torch.randn(5, width, generator=generator).to(DEVICE) for width in (16, 40))
    cross, own = torch.randn(5, 2, generator=generator).to(DEVICE), torch.randn(5, 4, 2, generator=generator).to(DEVICE)
    beta, weight = torch.tensor([0.5, 2.0], device=DEVICE), torch.ones(18, device=DEVICE)
    before = [t.clone() for t in (features, update, cross, own)]
    stepped = step_and_norm(features, cross, own, beta, weight, 1e-5, 32, update, 10)
    assert all(torch.equal(now, then) for now, then in zip((features, update, cross, own), before))
    torch.testing.assert_close(stepped.features, features + update[:, :16])
    torch.testing.assert_close(stepped.cross[:, 0], cross[:, 0] + update[:, 16] / 0.5)
    assert not stepped.cross[:, 1].any()
    torch.testing.assert_close(stepped.own, own + update[:, 18:26].view(5, 4, 2))
    seen = torch.cat((stepped.features, stepped.cross * beta), 1)
    torch.testing.assert_close(stepped.tokens[:, :18], torch.nn.functional.layer_norm(seen, (18,)))
    assert not stepped.tokens[:, 18:].any()


@torch.no_grad()
def test_gate_and_weights_join():
    mixed = torch.randn(2, 3, 4, 40, device=DEVICE)
    attended, weights = torch.randn(2, 3, 4, 12, device=DEVICE), torch.rand(2, 3, 4, 16, device=DEVICE)
    joined = gate_and_join(attended, mixed[..., 20:32], weights, 32)
    expected = torch.cat((attended * torch.nn.functional.silu(mixed[..., 20:32]), weights), -1)
    torch.testing.assert_close(joined[..., :28], expected)
    assert not joined[..., 28:].any()
