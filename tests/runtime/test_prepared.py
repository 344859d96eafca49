"""A prepared network gives what the network gives."""

import pytest
import torch

from matchattention.layers.tokens import LayerNorm, Projection
from matchattention.models.config import NetworkConfig
from matchattention.models.network import MatchNetwork
from matchattention.ops import kernels
from matchattention.runtime.prepared import KernelNorm, PaddedProjection, prepare
from matchattention.runtime.runtime import Runtime

SMALL = NetworkConfig(channels=(16, 16, 32, 32), encoder_depths=(1, 1, 1, 1), decoder_depths=(1, 1, 1, 1))


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return MatchNetwork(SMALL).eval()


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, 256, (1, 3, 64, 96), generator=generator, dtype=torch.uint8) for _ in range(2)]


def expected(network, images):
    with torch.no_grad():
        return network(*(image.float() for image in images)).field


def test_equals_the_network(network, images):
    match = Runtime(network, "cpu")
    torch.testing.assert_close(match(*images), expected(network, images), rtol=1e-4, atol=1e-3)
    assert match.ran == "eager"


def test_floats_are_taken_too(network, images):
    match = Runtime(network, "cpu")
    assert torch.equal(match(*(image.float() for image in images)), match(*images))


def test_half_precision_keeps_positions_and_their_scales_in_fp32(network, images):
    frozen = prepare(network, torch.device("cpu"), torch.bfloat16)
    assert {block.beta.dtype for stage in frozen.stages for block in stage} == {torch.float32}
    assert frozen.stages[0][0].cross.out.weight.dtype == torch.bfloat16
    with torch.no_grad():
        field = frozen(*(image.float() for image in images)).field
    assert field.dtype == torch.float32
    assert (field - expected(network, images)).abs().mean() < 1.0


def test_the_model_itself_is_left_alone(network):
    before = {name: value.clone() for name, value in network.state_dict().items()}
    prepare(network, torch.device("cpu"), torch.bfloat16)
    for name, value in network.state_dict().items():
        assert value.dtype == before[name].dtype
        assert torch.equal(value, before[name])


def test_padded_projection_is_the_projection():
    projection = Projection(10, 13, bias=True)
    tokens = torch.randn(2, 3, 10)
    torch.testing.assert_close(PaddedProjection(projection)(tokens), projection(tokens))


@torch.no_grad()
def test_kernel_norm_is_the_norm(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setattr(kernels, "has_kernel", lambda tokens: True)
    for width, rows in ((34, (2, 5, 7)), (16, (3,)), (1538, (3, 1)), (8, (0,))):
        norm = LayerNorm(width).to(torch.float16)
        norm.weight += 0.1 * torch.randn_like(norm.weight)
        frozen = KernelNorm(width, norm.eps)
        frozen.weight = norm.weight
        tokens = (3 * torch.randn(*rows, width) + 1).to(torch.float16)
        found = frozen(tokens)
        assert found.dtype == torch.float16
        torch.testing.assert_close(found, norm(tokens), rtol=1e-3, atol=1e-3)
