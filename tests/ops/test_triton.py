"""The fused backend against the reference: values, each gradient, every dtype, odd shapes, poisoned buffers.

Tolerances calibrate themselves: the kernel may be at most twice as far from the fp64 reference as plain PyTorch is when
it computes in the same dtype, plus one rounding of the result's own scale.
"""

import contextlib
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from matchattention import match_attention

pytest.importorskip("triton")

import triton
import triton.language as tl

from matchattention.ops.match_attention import triton_gather, triton_tiles
from matchattention.ops.match_attention.plain_backward import plain_backward
from matchattention.ops.match_attention.triton_backward import backward
from matchattention.ops.match_attention.triton_window import place_window

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "operator_2d.safetensors"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = ("out", "weights", "grad of q", "grad of k", "grad of v", "grad of relative_position")


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    """The interpreter takes its time a program, not a query: cut small maps into few."""
    monkeypatch.setattr(triton_tiles, "WANTED_PROGRAMS", 1)


@pytest.fixture
def long_tiles(monkeypatch):
    """For wide maps: thousands of queries a program."""
    monkeypatch.setattr(triton_tiles, "MOST_QUERIES", 4096)
    monkeypatch.setattr(triton_tiles, "ELEMENTS_PER_THREAD", 4096)


def inputs(size, heads, channels, value_channels, dtype=torch.float32, per_head=True, reach=4.0, seed=0):
    """Random q, k, v and relative positions away from integers, where both sides floor alike."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    position = (draw(*size, heads if per_head else 1, 2) * reach).floor()
    position += 0.1 + 0.8 * torch.rand(position.shape, generator=generator)
    features = [draw(*size, heads, n).to(dtype).to(DEVICE) for n in (channels, channels, value_channels)]
    return (*features, position.to(DEVICE))


def run(tensors, window, similarity, backend, cotangents=None):
    """Both outputs and all gradients, detached."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    out, weights = match_attention(*leaves, window, similarity, backend)
    if cotangents is None:
        generator = torch.Generator().manual_seed(7)
        cotangents = [torch.randn(t.shape, generator=generator).to(t.device) for t in (out, weights)]
    cotangents = [c.to(t.dtype) for c, t in zip(cotangents, (out, weights))]
    return (out.detach(), weights.detach(), *torch.autograd.grad([out, weights], leaves, cotangents))


def plain_in_own_dtype(tensors, window, similarity):
    """What PyTorch gives when every feature operation rounds to the features' dtype; positions stay fp32."""
    generator = torch.Generator().manual_seed(7)
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    q, k, v, position = leaves
    from matchattention.ops.match_attention.positions import windows
    from matchattention.ops.match_attention.reference import (
        _gather,
        _key_index,
        _similarity,
        contiguous_attention_sampling,
    )

    placed = windows(position, window)
    index, _ = _key_index(placed, window, (k.shape[1], k.shape[2]))
    scores = _similarity(q, _gather(k, index), similarity).float()
    weights = contiguous_attention_sampling(scores, placed, window)
    out = torch.einsum("bhwgn,bhwgnc->bhwgc", weights.to(v.dtype), _gather(v, index))
    cotangents = [torch.randn(t.shape, generator=generator).to(t.device).to(t.dtype) for t in (out, weights)]
    return (out.detach(), weights.detach(), *torch.autograd.grad([out, weights], leaves, cotangents))


def assert_as_good_as_plain(tensors, window, similarity):
    exact = run([t.double() for t in tensors], window, similarity, "reference", cotangents_like(tensors, window))
    plain = plain_in_own_dtype(tensors, window, similarity)
    fused = run(tensors, window, similarity, "triton")
    for name, e, p, f in zip(NAMES, exact, plain, fused):
        assert_as_close(name, e, p, f)


def assert_as_close(name, exact, plain, found):
    floor = torch.finfo(found.dtype).eps * max(1.0, exact.abs().max().item())
    allowed = 2 * (plain.double() - exact).abs().max().item() + floor
    error = (found.double() - exact).abs().max().item()
    assert error <= allowed, f"{name}: error {error:.2e}, allowed {allowed:.2e}"


def cotangents_like(tensors, window):
    """The cotangents the others draw, rounded to the features' dtype first as they are there."""
    q, _, v, _ = tensors
    generator = torch.Generator().manual_seed(7)
    out = torch.randn(v.shape, generator=generator).to(v.dtype)
    weights = torch.randn((*q.shape[:4], window[0] * window[1]), generator=generator)
    return [out.to(DEVICE), weights.to(DEVICE)]


FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16


@pytest.mark.parametrize(
    ("window", "dtype", "similarity", "per_head"),
    [
        ((1, 4), FP32, "l1", True),
        ((1, 4), FP16, "l1", True),
        ((1, 4), BF16, "l1", True),
        ((1, 4), FP32, "l1", False),
        ((1, 4), FP16, "dot", False),
        ((1, 4), BF16, "dot", True),
        ((4, 4), FP32, "l1", False),
        ((4, 4), FP32, "dot", True),
        ((4, 4), FP16, "l1", True),
        ((4, 4), BF16, "l1", False),
    ],
)
def test_parity_with_reference(window, dtype, similarity, per_head):
    assert_as_good_as_plain(inputs((2, 5, 9), 4, 2, 2, dtype, per_head), window, similarity)


@pytest.mark.parametrize(
    ("heads", "channels", "value_channels", "window"),
    [
        (1, 1, 1, (1, 8)),
        (3, 5, 3, (2, 2)),
        (4, 16, 16, (1, 4)),
        (2, 33, 7, (4, 2)),
        (6, 24, 24, (1, 2)),
        (2, 4, 4, (6, 4)),
        (2, 64, 64, (4, 4)),
        (1, 40, 72, (1, 4)),
    ],
)
def test_parity_over_heads_and_windows(heads, channels, value_channels, window):
    assert_as_good_as_plain(inputs((1, 6, 10), heads, channels, value_channels, per_head=heads != 4), window, "l1")


@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    batch=st.integers(1, 2),
    height=st.integers(1, 5),
    width=st.integers(1, 19),
    heads=st.integers(1, 5),
    channels=st.integers(1, 9),
    value_channels=st.integers(1, 9),
    window=st.sampled_from([(1, 4), (2, 4), (4, 2)]),
    similarity=st.sampled_from(["l1", "dot"]),
    per_head=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_shape(batch, height, width, heads, channels, value_channels, window, similarity, per_head, seed):
    """Also maps narrower than the window, where keys beyond the end must weigh nothing; both ways of the gradients."""
    tensors = inputs((batch, height, width), heads, channels, value_channels, per_head=per_head, seed=seed)
    exact = run([t.double() for t in tensors], window, similarity, "reference", cotangents_like(tensors, window))
    torch.use_deterministic_algorithms(seed % 2 == 1)
    try:
        found = run(tensors, window, similarity, "triton")
    finally:
        torch.use_deterministic_algorithms(False)
    for name, e, f in zip(NAMES, exact, found):
        assert torch.allclose(f.double(), e, rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize(("name", "window"), [("w3", (4, 4)), ("w5", (6, 6))])
def test_golden(name, window):
    stored = load_file(GOLDEN)
    golden = {key[3:]: value for key, value in stored.items() if name in key}
    tensors = [golden[key].float().to(DEVICE) for key in ("q", "k", "v", "rpos")]
    cotangents = [golden["grad_out"].to(DEVICE), golden["grad_attn"].to(DEVICE)]
    found = run(tensors, window, "l1", "triton", cotangents)
    for key, f in zip(("out", "attn", "grad_q", "grad_k", "grad_v", "grad_rpos"), found):
        torch.testing.assert_close(f.cpu().double(), golden[key], rtol=0, atol=2e-6)


@contextlib.contextmanager
def poisoned_buffers(monkeypatch):
    """Fresh memory full of NaN: whatever a kernel forgets to write shows."""

    def poison(allocate):
        def allocated(*args, **kwargs):
            tensor = allocate(*args, **kwargs)
            return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

        return allocated

    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", poison(torch.empty))
        patch.setattr(torch, "empty_like", poison(torch.empty_like))
        patch.setattr(torch.Tensor, "new_empty", poison(torch.Tensor.new_empty))
        yield


@pytest.mark.parametrize(
    ("window", "per_head", "programs"), [((1, 4), True, 1), ((1, 4), False, 64), ((2, 4), False, 1), ((2, 4), True, 16)]
)
def test_writes_every_element(window, per_head, programs, monkeypatch):
    """For several cuts of the map, so that tiles end inside it and beyond it."""
    monkeypatch.setattr(triton_tiles, "WANTED_PROGRAMS", programs)
    tensors = inputs((1, 5, 11), 3, 3, 5, per_head=per_head)
    with poisoned_buffers(monkeypatch):
        found = run(tensors, window, "l1", "triton")
    for name, f in zip(NAMES, found):
        assert torch.isfinite(f).all(), name


def test_reads_slices_of_a_fused_projection_in_place():
    heads, channels = 4, 2
    fused = torch.randn(2, 4, 9, 3 * heads * channels + 5, device=DEVICE)
    q, k, v = (fused[..., i * 8 : i * 8 + 8].unflatten(-1, (heads, channels)) for i in range(3))
    position = inputs((2, 4, 9), heads, channels, channels)[3].flip(2).transpose(1, 2).contiguous().transpose(1, 2)
    assert not q.is_contiguous()
    assert not position.is_contiguous()
    found = match_attention(q, k, v, position, backend="triton")
    expected = match_attention(q.contiguous(), k.contiguous(), v.contiguous(), position, backend="reference")
    for f, e in zip(found, expected):
        torch.testing.assert_close(f, e, rtol=1e-5, atol=1e-6)


def test_channels_apart_in_memory_are_copied():
    q, k, v, position = inputs((1, 4, 9), 2, 3, 3)
    apart = [t.transpose(3, 4).contiguous().transpose(3, 4) for t in (q, k, v)]
    found = match_attention(*apart, position, backend="triton")
    expected = match_attention(q, k, v, position, backend="triton")
    for f, e in zip(found, expected):
        assert torch.equal(f, e)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
def test_subpixel_positions_at_width_4096(dtype, long_tiles):
    """A quarter of a token must still move the result at the far end: fp16 positions would step by 2 or 4 there."""
    q, k, v, _ = inputs((1, 1, 4096), 2, 2, 2, dtype)
    fraction = torch.arange(4096, device=DEVICE).remainder(8) / 8 + 1 / 16
    position = torch.zeros(1, 1, 4096, 1, 2, device=DEVICE)
    position[..., 0] = (-60 + fraction).view(1, 1, 4096, 1)
    _, weights = match_attention(q, k, v, position, backend="triton")
    _, exact = match_attention(q.double(), k.double(), v.double(), position.double(), backend="reference")
    assert (weights - exact).abs().amax() < 2e-4


@triton.jit
def place_kernel(r_pointer, column_pointer, right_pointer, lowest, highest, last, COUNT: tl.constexpr):
    """The windows of COUNT queries of column 0."""
    at = tl.arange(0, COUNT)
    limits = (lowest, highest, last, 0.0, 0.0, 0.0)
    _, column, right, _, _, _ = place_window(r_pointer, at, at * 0, at * 0, limits, 1, 1, 4)
    tl.store(column_pointer + at, column)
    tl.store(right_pointer + at, right)


def test_window_stays_inside_where_fp32_rounds_the_clamp_up():
    """At 2^16 tokens fp32 cannot tell W - 2 - 1e-3 from the integer above it."""
    width = 2**16
    position = torch.tensor([0.0, 1.5, width - 3.5, width + 9.0], device=DEVICE)
    column = torch.empty(4, dtype=torch.int32, device=DEVICE)
    right = torch.empty(4, device=DEVICE)
    limits = list(triton_tiles.window_limits(1, width, (1, 4)).values())[:3]
    place_kernel[(1,)](position, column, right, *limits, COUNT=4)
    assert column.tolist() == [0, 0, width - 5, width - 4]
    assert right.tolist() == [0.0, 0.5, 0.5, 1.0]


@pytest.mark.parametrize(
    ("window", "channels"), [((1, 4), 2), ((1, 4), 32), ((2, 4), 3)], ids=["group of heads", "wide head", "2D"]
)
def test_what_lies_beyond_a_narrow_map_is_never_read(window, channels):
    """Two columns of a wider buffer whose others are NaN: nothing of them reaches values or gradients."""
    tensors = inputs((1, 3, 2), 2, channels, channels)
    beyond = [torch.full((*t.shape[:2], 9, *t.shape[3:]), float("nan"), device=DEVICE) for t in tensors[:3]]
    for buffer, tensor in zip(beyond, tensors):
        buffer[:, :, :2] = tensor
    slices = [buffer[:, :, :2] for buffer in beyond]
    cotangents = cotangents_like(tensors, window)
    expected = run(tensors, window, "l1", "reference", cotangents)
    found = match_attention(*slices, tensors[3], window, backend="triton")
    for f, e in zip(found, expected):
        torch.testing.assert_close(f, e, rtol=1e-5, atol=1e-6)
    for atomic in (True, False):
        gradients = backward(*cotangents, *slices, tensors[3], window, False, atomic)
        for name, f, e in zip(NAMES[2:], gradients, expected[2:]):
            torch.testing.assert_close(f, e, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


def test_nan_positions_show_in_the_result():
    q, k, v, position = inputs((1, 3, 8), 2, 2, 2)
    position[0, 1, 4] = float("nan")
    out, weights = match_attention(q, k, v, position, backend="triton")
    assert out[0, 1, 4].isnan().all()
    assert weights[0, 1, 4].isnan().all()
    assert out[0, 2].isfinite().all()


def test_huge_scores_neither_overflow_nor_vanish():
    """Each sub-window has its own maximum: one that is 1e4 below the other still sums to its share."""
    q, k, v, position = inputs((1, 2, 9), 1, 2, 2)
    k[..., ::2, :, :] *= 1e4
    _, weights = match_attention(q, k, v, position, backend="triton")
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_without_weights_the_values_are_the_same():
    tensors = inputs((1, 4, 9), 4, 2, 2)
    out, weights = match_attention(*tensors, backend="triton", need_weights=False)
    assert weights is None
    assert torch.equal(out, match_attention(*tensors, backend="triton")[0])


@pytest.mark.parametrize("leaf", range(4), ids=["q", "k", "v", "relative_position"])
def test_gradient_of_one_input_alone(leaf):
    tensors = list(inputs((1, 4, 9), 2, 3, 3))
    tensors[leaf] = tensors[leaf].requires_grad_()
    out, _ = match_attention(*tensors, window=(4, 4), backend="triton", need_weights=False)
    (found,) = torch.autograd.grad(out.square().sum(), tensors[leaf])
    out, _ = match_attention(*tensors, window=(4, 4), backend="reference", need_weights=False)
    (expected,) = torch.autograd.grad(out.square().sum(), tensors[leaf])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("similarity", ["l1", "dot"])
@pytest.mark.parametrize("window", [(1, 4), (4, 4)], ids=["1x4", "4x4"])
@pytest.mark.parametrize("per_head", [True, False], ids=["per_head", "shared"])
def test_plain_gradient_equals_autograd(similarity, window, per_head):
    """What runs for windows the backward kernel does not take."""
    tensors = [t.double() for t in inputs((2, 5, 7), 3, 3, 2, per_head=per_head)]
    cotangents = [c.double() for c in cotangents_like(tensors, window)]
    expected = run(tensors, window, similarity, "reference", cotangents)[2:]
    found = plain_backward(*cotangents, *tensors, window, similarity == "dot", chunk_elements=2000)
    for name, f, e in zip(NAMES[2:], found, expected):
        torch.testing.assert_close(f, e, rtol=1e-9, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("atomic", [True, False], ids=["added", "gathered"])
@pytest.mark.parametrize(
    ("window", "similarity", "per_head", "dtype"),
    [
        ((1, 4), "l1", True, FP32),
        ((1, 4), "dot", False, FP16),
        ((4, 4), "l1", False, FP32),
        ((2, 4), "dot", True, FP32),
    ],
)
def test_both_ways_of_the_gradients(window, similarity, per_head, dtype, atomic):
    tensors = inputs((2, 5, 9), 3, 5, 3, dtype, per_head)
    fused = torch.cat((tensors[0], tensors[1]), -1)
    q, k = fused[..., :5], fused[..., 5:]  # strided, as slices of a projection are
    cotangents = cotangents_like(tensors, window)
    exact = run([t.double() for t in tensors], window, similarity, "reference", cotangents)[2:]
    plain = plain_in_own_dtype(tensors, window, similarity)[2:]
    found = backward(*cotangents, q, k, *tensors[2:], window, similarity == "dot", atomic)
    for name, tensor, e, p, f in zip(NAMES[2:], tensors, exact, plain, found):
        assert f.dtype == tensor.dtype
        assert_as_close(name, e, p, f)


@pytest.mark.parametrize(
    "cut",
    [
        triton_tiles.WideCut(chunk_bytes=64, threads=64),
        triton_tiles.WideCut(chunk_bytes=32, threads=64, queries_per_thread=2, band=4),
        triton_tiles.WideCut(chunk_bytes=128, threads=64, most_registers=64, heads_in_turn=2, band=8),
    ],
    ids=["half lines", "narrow bands", "heads in turn"],
)
def test_any_cut(cut, monkeypatch):
    """What the tuning may choose."""
    for name in ("FORWARD_CUT", "COEFFICIENTS_CUT", "GATHER_CUT"):
        monkeypatch.setattr(triton_tiles, name, cut)
    monkeypatch.setattr(triton_tiles, "WANTED_PROGRAMS", 0)
    assert_as_good_as_plain(inputs((1, 5, 19), 2, 32, 32, per_head=cut.heads_in_turn == 1), (4, 4), "l1")


@pytest.mark.parametrize("per_head", [True, False], ids=["per_head", "shared"])
def test_offsets_of_64_bits(per_head, monkeypatch):
    """As on maps of 2^31 elements."""
    for module in (triton_tiles, triton_gather):
        monkeypatch.setattr(module, "may_overflow", lambda tensor, first_axis=0: True)
    assert_as_good_as_plain(inputs((2, 4, 5), 2, 8, 8, per_head=per_head), (2, 4), "l1")


def test_gathered_gradients_of_many_channels():
    """More chunks of channels than one program sums, and fewer channels of values than of keys."""
    tensors = inputs((1, 3, 5), 2, 200, 40)
    assert_as_good_as_plain(tensors, (2, 2), "l1")


def test_queries_that_are_not_numbers_reach_only_the_keys_they_look_at():
    """Nobody looks at the right half: keys there read some query all the same, which must weigh nothing."""
    q, k, v, position = inputs((1, 4, 16), 2, 4, 4, reach=0.0)
    position[..., 0] = 4.5 - torch.arange(16, device=DEVICE).view(1, 1, 16, 1) / 2
    position[..., 0] -= torch.arange(16, device=DEVICE).view(1, 1, 16, 1) / 2
    q[0, 0, 0], grad_out = float("nan"), torch.full_like(v, float("nan"))
    _, grad_k, grad_v, _ = backward(grad_out, None, q, k, v, position, (2, 4), False, atomic=False)
    assert grad_v[0, :, 4].isnan().all()
    for grad in (grad_k, grad_v):
        assert (grad[0, :, 8:] == 0).all()


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "gathered"])
def test_gradients_beyond_a_narrow_map_reach_no_other_row(atomic):
    """Keys beyond a row's end would be the next row's first ones: they get nothing, not even zero times infinity."""
    q, k, v, position = inputs((1, 4, 3), 1, 4, 4, reach=1.0)
    grad_out = torch.ones_like(v)
    grad_out[0, 1] = float("inf")
    _, grad_k, grad_v, _ = backward(grad_out, None, q, k, v, position, (1, 8), False, atomic=atomic)
    for grad in (grad_k, grad_v):
        assert not grad[0, 1].isfinite().all()
        assert grad[0, [0, 2, 3]].isfinite().all()


def test_deterministic_algorithms_are_honoured():
    """Every query looks at one key: the order of the sum decides the last bits."""
    tensors = inputs((1, 4, 64), 2, 2, 2, reach=0.0)
    tensors[3][..., 0] = 30.5 - torch.arange(64, device=DEVICE).view(1, 1, 64, 1)
    torch.use_deterministic_algorithms(True)
    try:
        first, second = (run(tensors, (1, 4), "l1", "triton") for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    for name, a, b in zip(NAMES, first, second):
        assert torch.equal(a, b), name
