"""The depthwise convolution and the gate's mix: kernels against plain PyTorch, in the interpreter or on a GPU."""

import pytest
import torch
import torch.nn.functional as F

from matchattention.ops.depthwise import convglu_mix, convglu_mix_plain, depthwise3x3, depthwise3x3_plain
from matchattention.ops.kernels import TRITON_IS_INSTALLED

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KERNELS = {"convolution": torch.ops.matchattention.depthwise3x3, "gate": torch.ops.matchattention.convglu_mix}
PLAIN = {"convolution": depthwise3x3_plain, "gate": convglu_mix_plain}

needs_triton = pytest.mark.skipif(not TRITON_IS_INSTALLED, reason="Triton is not installed")


def inputs(kind, size, channels, dtype=torch.float32, bias=True):
    generator = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.randn(*shape, generator=generator).to(DEVICE)

    x = draw(*size, channels * (2 if kind == "gate" else 1)).to(dtype)
    return [x, draw(channels, 1, 3, 3), draw(channels) if bias else None]


def run(function, tensors):
    leaves = [None if t is None else t.detach().clone().requires_grad_() for t in tensors]
    out = function(*leaves)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out)
    return out.detach(), *torch.autograd.grad(out, [t for t in leaves if t is not None], cotangent)


def assert_as_good_as_plain(kind, tensors):
    exact = run(PLAIN[kind], [None if t is None else t.double() for t in tensors])
    plain = run(PLAIN[kind], tensors)
    for name, e, p, f in zip(("out", "x", "weight", "bias"), exact, plain, run(KERNELS[kind], tensors)):
        dtype = tensors[0].dtype
        allowed = 2 * (p.double() - e).abs().max() + torch.finfo(dtype).eps * max(1.0, e.abs().max().item())
        error = (f.double() - e).abs().max()
        assert error <= allowed, f"{name}: {error:.2e} > {allowed:.2e}"


@needs_triton
@pytest.mark.parametrize("kind", ["convolution", "gate"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["fp32", "fp16", "bf16"])
def test_parity(kind, dtype):
    assert_as_good_as_plain(kind, inputs(kind, (2, 5, 7), 6, dtype))


@needs_triton
@pytest.mark.parametrize("kind", ["convolution", "gate"])
@pytest.mark.parametrize(("size", "channels"), [((1, 1, 1), 1), ((1, 3, 35), 64), ((3, 6, 2), 70), ((1, 1, 9), 2)])
def test_sizes(kind, size, channels):
    assert_as_good_as_plain(kind, inputs(kind, size, channels, bias=channels > 2))


@needs_triton
@pytest.mark.parametrize("kind", ["convolution", "gate"])
def test_writes_every_element(kind, monkeypatch):
    original = torch.Tensor.new_empty

    def poisoned(self, *args, **kwargs):
        return original(self, *args, **kwargs).fill_(float("nan"))

    tensors = inputs(kind, (2, 5, 9), 3)
    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned)
    found = run(KERNELS[kind], tensors)
    assert all(torch.isfinite(f).all() for f in found)


@needs_triton
def test_reads_a_slice_in_place():
    wide = torch.randn(1, 4, 6, 20, device=DEVICE)
    part = wide[..., 8:16]
    _, weight, bias = inputs("convolution", (1, 4, 6), 8)
    found = torch.ops.matchattention.depthwise3x3(part, weight, bias)
    torch.testing.assert_close(found, depthwise3x3_plain(part, weight, bias), rtol=1e-5, atol=1e-5)


@needs_triton
@pytest.mark.parametrize("kind", ["convolution", "gate"])
@pytest.mark.parametrize("bias", [True, False])
def test_opcheck(kind, bias):
    tensors = [None if t is None else t.requires_grad_() for t in inputs(kind, (1, 2, 3), 2, bias=bias)]
    torch.library.opcheck(KERNELS[kind].default, tuple(tensors))


@needs_triton
def test_reads_weights_with_channels_inner():
    """The layout that deployment gives them, for wide loads."""
    x, weight, bias = inputs("convolution", (1, 4, 6), 8)
    inner = weight.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2)
    assert inner.stride(0) == 1
    found, expected = (torch.ops.matchattention.depthwise3x3(x, w, bias) for w in (inner, weight))
    assert torch.equal(found, expected)


def test_plain_is_the_textbook_convolution():
    x, weight, bias = (t.to("cpu") for t in inputs("convolution", (2, 4, 5), 3))
    padded = F.pad(x, (0, 0, 1, 1, 1, 1))
    expected = torch.zeros_like(x) + bias
    for dy in range(3):
        for dx in range(3):
            expected += padded[:, dy : dy + 4, dx : dx + 5] * weight[:, 0, dy, dx]
    torch.testing.assert_close(depthwise3x3(x, weight, bias), expected, rtol=1e-5, atol=1e-5)


def test_mix_gates_the_value():
    h, weight, bias = (t.to("cpu") for t in inputs("gate", (1, 3, 4), 2))
    expected = F.gelu(depthwise3x3(h[..., :2], weight, bias)) * h[..., 2:]
    torch.testing.assert_close(convglu_mix(h, weight, bias), expected)
