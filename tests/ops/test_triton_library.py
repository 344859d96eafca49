"""The operator as torch.library sees it: schema, shapes, tracing, cost, and its reasons to refuse."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from matchattention import match_attention

pytest.importorskip("triton")

from matchattention.ops.match_attention import triton_backend, triton_tiles
from matchattention.ops.match_attention.library import match_attention_flops

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def inputs(heads=2, channels=2, requires_grad=True):
    generator = torch.Generator().manual_seed(3)
    shapes = [(1, 3, 6, heads, channels)] * 3 + [(1, 3, 6, 1, 2)]
    return [torch.randn(s, generator=generator).to(DEVICE).requires_grad_(requires_grad) for s in shapes]


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    monkeypatch.setattr(triton_tiles, "WANTED_PROGRAMS", 1)


@pytest.mark.parametrize("need_weights", [True, False])
def test_opcheck(need_weights):
    operator = torch.ops.matchattention.match_attention.default
    torch.library.opcheck(operator, (*inputs(), 1, 4, False, need_weights))


def test_opcheck_backward():
    q, k, v, position = inputs(requires_grad=False)
    operator = torch.ops.matchattention.match_attention_backward.default
    weights = torch.randn(1, 3, 6, 2, 4, device=DEVICE)
    torch.library.opcheck(operator, (torch.randn_like(v), weights, q, k, v, position, 1, 4, False))
    torch.library.opcheck(operator, (torch.randn_like(v), None, q, k, v, position, 1, 4, True))


def test_traces_whole_with_gradients():
    """AOTAutograd sees one operator forward and one backward, no break."""
    tensors = inputs()

    def loss(*tensors):
        out, weights = match_attention(*tensors, backend="triton")
        return out.square().sum() + weights.square().sum()

    traced = torch.compile(loss, backend="aot_eager", fullgraph=True)
    expected = torch.autograd.grad(loss(*tensors), tensors)
    for f, e in zip(torch.autograd.grad(traced(*tensors), tensors), expected):
        torch.testing.assert_close(f, e, rtol=1e-5, atol=1e-6)


def test_meta_tensors_have_shapes_without_running():
    q, k, v, position = (t.to("meta") for t in inputs(requires_grad=False))
    out, weights = torch.ops.matchattention.match_attention(q, k, v, position, 1, 4, False, True)
    assert out.shape == v.shape
    assert weights.shape == (1, 3, 6, 2, 4)
    assert weights.dtype == torch.float32


def test_flops_are_the_papers():
    """Section on complexity: QK 2 HW h c (w+1)^2, CAS HW h (20 + 2 (w+1)^2 + 12 w^2), AV as QK."""
    tokens, heads, channels, width = 18, 2, 2, 3
    window = (width + 1) ** 2
    by_hand = tokens * heads * (2 * channels * window + 20 + 2 * window + 12 * width**2 + 2 * channels * window)
    q, k, v, position = (t.to("meta") for t in inputs(requires_grad=False))
    with FlopCounterMode(display=False) as counter:
        torch.ops.matchattention.match_attention(q, k, v, position, 4, 4, False, True)
    assert counter.get_total_flops() == by_hand == match_attention_flops(q.shape, v.shape, 4, 4)


def test_flops_of_one_row():
    one_row = match_attention_flops(torch.Size((1, 1, 1, 1, 8)), torch.Size((1, 1, 1, 1, 8)), 1, 4)
    assert one_row == 2 * 8 * 4 + (10 + 2 * 4 + 6 * 3) + 2 * 8 * 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda q, w: (q.double(), w), "fp32, fp16 and bf16"),
        (lambda q, w: (q, (10, 10)), "at most 64 keys"),
        (lambda q, w: (q.new_zeros(1, 1, 1, 1, 2000), w), "at most 1024 channels"),
    ],
)
def test_says_why_not(change, reason):
    q, window = change(torch.zeros(1, 3, 6, 2, 2, device=DEVICE), (1, 4))
    sentence = triton_backend.why_not(q, q, q, torch.zeros(1, 3, 6, 1, 2, device=DEVICE), window, "l1")
    assert sentence is not None
    assert reason in sentence


def test_needs_a_gpu_outside_the_interpreter(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    q = torch.zeros(1, 3, 6, 2, 2)
    sentence = triton_backend.why_not(q, q, q, torch.zeros(1, 3, 6, 1, 2), (1, 4), "l1")
    assert sentence is not None
    assert "CUDA" in sentence
