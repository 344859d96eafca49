"""The doctor's rows: a kernel that is right passes, one that is wrong does not; in Triton's interpreter or on a GPU."""

import pytest
import torch

pytest.importorskip("triton")

from matchattention.bench import parity
from matchattention.ops import kernels

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
FP16 = torch.float16

SMALL = {
    "depthwise": lambda: parity.convolution(DEVICE, FP16, 8, False, (5, 9)),
    "convglu": lambda: parity.convolution(DEVICE, FP16, 8, True, (5, 9)),
    "norm": lambda: parity.norm(DEVICE, FP16, 42),
    "lean": lambda: parity.lean_block(DEVICE, FP16, 32, (4, 8)),
    "fused": lambda: parity.fused_block(DEVICE, FP16, 32, (4, 8), (1, 4)),
    "fused-2d": lambda: parity.fused_block(DEVICE, FP16, 16, (4, 8), (4, 4)),
    "estimate": lambda: parity.estimate(DEVICE, FP16, (2, 16)),
    "upsampling": lambda: parity.upsampling(DEVICE, FP16, 2, (4, 8)),
    "confidence": lambda: parity.confidence_head(DEVICE, FP16, (4, 8)),
}


@pytest.fixture
def with_kernels(monkeypatch):
    """Kernels run on a CPU too, in the interpreter."""
    monkeypatch.setattr(kernels, "has_kernel", lambda tokens: tokens.dtype != torch.float64)


@pytest.mark.parametrize("name", SMALL)
def test_kernels_are_as_good_as_their_twins(name, with_kernels) -> None:
    found = SMALL[name]()
    assert found.fine, found
    assert found.error > 0  # a kernel that rounds like its twin to the last bit is the twin


def test_a_wrong_kernel_is_seen() -> None:
    values = torch.rand(5, 7)
    assert parity.compare(lambda v: v.sin(), torch.sin, (values,)).fine
    assert not parity.compare(lambda v: v.sin() * 1.001, torch.sin, (values,)).fine
    assert not parity.compare(lambda v: v * torch.nan, torch.sin, (values,)).fine
    assert not parity.compare(lambda v: _Doubled.apply(v), torch.sin, (values,), gradients=True).fine


class _Doubled(torch.autograd.Function):
    """A sine whose gradient is wrong."""

    @staticmethod
    def forward(context, values):
        return values.sin()

    @staticmethod
    def backward(context, pull):
        return pull * 2


def test_every_kind_of_kernel_has_a_row() -> None:
    rows = " ".join(parity.cases(DEVICE))
    for kind in (
        "depthwise",
        "ConvGLU",
        "LayerNorm",
        "instance norm",
        "lean",
        "fused",
        "convex",
        "renderer",
        "estimate",
        "confidence head",
    ):
        assert kind in rows


def test_it_says_why_kernels_are_not_tried(monkeypatch) -> None:
    assert parity.why_not(torch.device("cpu")) == "kernels need a CUDA GPU"
    monkeypatch.setattr(kernels, "TRITON_IS_INSTALLED", False)
    assert parity.why_not(torch.device("cuda")) == "Triton is not installed"


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="needs a CUDA device")
@pytest.mark.parametrize("name", parity.cases(DEVICE))
def test_at_real_shapes(name) -> None:
    found = parity.cases(DEVICE)[name]()
    assert found.fine, found
