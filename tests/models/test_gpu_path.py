"""What a GPU would run, on the CPU: fused kernels under Triton's interpreter, blocks compiled whole.

On a GPU the kernels are chosen by themselves; here they are forced, so that a call a compiler cannot trace, or a
kernel whose result is laid out otherwise than promised, fails in CI and not in a paid minute.
"""

import pytest
import torch

from matchattention import create_model
from matchattention.layers.encoder import SepConv
from matchattention.layers.feedforward import ConvGLU
from matchattention.models.config import NetworkConfig
from matchattention.ops import kernels
from matchattention.ops.match_attention.triton_backend import interprets

CONFIG = NetworkConfig(channels=(16, 16, 16, 16), encoder_depths=(1, 1, 1, 1), decoder_depths=(1, 1, 1, 1))


@pytest.fixture
def network(monkeypatch):
    if not interprets():
        pytest.skip("needs TRITON_INTERPRET=1 before Triton is imported")
    monkeypatch.setattr(kernels, "has_kernel", lambda tokens: True)
    torch.manual_seed(0)
    yield create_model(CONFIG).use_backend("triton")
    torch._dynamo.reset()


def test_blocks_trace_whole_and_agree(network):
    """The encoder's and the decoder's block, as training compiles and calls them."""
    tokens = torch.rand(2, 2, 6, 16, requires_grad=True)
    encoder, decoder = network.encoder.stages[3][0], network.stages[0][0]
    cross, self_position = torch.zeros(2, 2, 6, 2), torch.zeros(2, 2, 6, 4, 2)

    def run():
        with torch.autocast("cpu", torch.bfloat16):
            refined = decoder(encoder(tokens), cross, self_position)
        loss = refined.features.float().square().mean() + refined.after_cross.sum()
        return torch.autograd.grad(loss, [tokens, *encoder.parameters(), decoder.cross.qkvg.weight])

    plain = run()
    for block in (encoder, decoder):
        block.compile(backend="aot_eager", fullgraph=True, dynamic=False)
    torch.testing.assert_close(run(), plain, rtol=0.05, atol=1e-3)


def test_inductor_takes_the_kernels_results(network):
    """Generated code asserts sizes and strides of what the kernels return, forward and backward."""
    module = torch.nn.Sequential(SepConv(16), ConvGLU(16))
    tokens = torch.rand(2, 4, 8, 16, requires_grad=True)

    def run():
        return torch.autograd.grad(module(tokens).square().mean(), [tokens, *module.parameters()])

    plain = run()
    module.compile(fullgraph=True, dynamic=False)
    torch.testing.assert_close(run(), plain, rtol=1e-3, atol=1e-5)
