"""The deployment path gives what the network gives."""

import pytest
import torch

from matchattention import InputError
from matchattention.layers.tokens import LayerNorm, Projection
from matchattention.models.config import NetworkConfig
from matchattention.models.network import MatchNetwork
from matchattention.ops import kernels
from matchattention.runtime.deploy import InferencePlan, compile_for_inference
from matchattention.runtime.frozen import FrozenNorm, PaddedProjection, freeze

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
    plan = compile_for_inference(network, (64, 96), "cpu")
    assert plan.mode == "eager"
    torch.testing.assert_close(plan(*images), expected(network, images), rtol=1e-4, atol=1e-3)


def test_floats_are_taken_too(network, images):
    plan = compile_for_inference(network, (64, 96), "cpu")
    assert torch.equal(plan(*(image.float() for image in images)), plan(*images))


def test_half_precision_keeps_positions_and_their_scales_in_fp32(network, images):
    frozen = freeze(network, torch.device("cpu"), torch.bfloat16)
    assert {block.beta.dtype for stage in frozen.stages for block in stage} == {torch.float32}
    assert frozen.stages[0][0].cross.out.weight.dtype == torch.bfloat16
    with torch.no_grad():
        field = frozen(*(image.float() for image in images)).field
    assert field.dtype == torch.float32
    assert (field - expected(network, images)).abs().mean() < 1.0


def test_the_model_itself_is_left_alone(network):
    before = {name: value.clone() for name, value in network.state_dict().items()}
    freeze(network, torch.device("cpu"), torch.bfloat16)
    for name, value in network.state_dict().items():
        assert value.dtype == before[name].dtype
        assert torch.equal(value, before[name])


def test_padded_projection_is_the_projection():
    projection = Projection(10, 13, bias=True)
    tokens = torch.randn(2, 3, 10)
    torch.testing.assert_close(PaddedProjection(projection)(tokens), projection(tokens))


@torch.no_grad()
def test_frozen_norm_is_the_norm(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setattr(kernels, "has_kernel", lambda tokens: True)
    for width, rows in ((34, (2, 5, 7)), (16, (3,)), (1538, (3, 1)), (8, (0,))):
        norm = LayerNorm(width).to(torch.float16)
        norm.weight += 0.1 * torch.randn_like(norm.weight)
        frozen = FrozenNorm(width, norm.eps)
        frozen.weight = norm.weight
        tokens = (3 * torch.randn(*rows, width) + 1).to(torch.float16)
        found = frozen(tokens)
        assert found.dtype == torch.float16
        torch.testing.assert_close(found, norm(tokens), rtol=1e-3, atol=1e-3)


def test_wrong_size_is_refused(network, images):
    plan = compile_for_inference(network, (64, 128), "cpu")
    with pytest.raises(InputError, match="is for images"):
        plan(*images)


def test_graphs_need_a_gpu(network):
    with pytest.raises(InputError, match="needs a GPU"):
        InferencePlan(freeze(network, torch.device("cpu"), torch.float32), (64, 96), mode="graph")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_captured_graph_equals_the_network(network, images):
    plan = compile_for_inference(network, (64, 96), "cuda", "fp32", "capture")
    found = plan(*images).cpu()
    torch.testing.assert_close(found, expected(network, images), rtol=1e-2, atol=1e-2)
