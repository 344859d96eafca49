"""The reference operator against its formulas, its limits and the golden file."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.autograd import gradcheck

from matchattention import InputError, match_attention
from matchattention.ops.match_attention.reference import match_attention_reference
from tests.ops.oracle import oracle

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "operator_2d.safetensors"
WINDOWS = [(1, 4), (1, 8), (4, 4), (6, 6), (2, 2)]


def inputs(batch, height, width, heads, channels, value_channels, shared_position=False, spread=3.0, seed=0):
    """Random float64 q, k, v and relative positions."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    size = (batch, height, width)
    position = draw(*size, 1 if shared_position else heads, 2) * spread
    return draw(*size, heads, channels), draw(*size, heads, channels), draw(*size, heads, value_channels), position


@pytest.mark.parametrize(("name", "window"), [("w3", (4, 4)), ("w5", (6, 6))])
def test_golden(name, window):
    stored = load_file(GOLDEN)
    golden = {key[3:]: value for key, value in stored.items() if name in key}
    given_inputs = [golden[key].clone().requires_grad_() for key in ("q", "k", "v", "rpos")]
    out, weights = match_attention(*given_inputs, window=window, backend="reference")
    torch.autograd.backward([out, weights], [golden["grad_out"], golden["grad_attn"]])
    torch.testing.assert_close(out, golden["out"], rtol=0, atol=1e-10)
    torch.testing.assert_close(weights, golden["attn"], rtol=0, atol=1e-10)
    for tensor, key in zip(given_inputs, ("q", "k", "v", "rpos")):
        torch.testing.assert_close(tensor.grad, golden[f"grad_{key}"], rtol=0, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(
    window=st.sampled_from(WINDOWS),
    similarity=st.sampled_from(["l1", "dot"]),
    batch=st.integers(1, 2),
    extra=st.tuples(st.integers(0, 2), st.integers(0, 3)),
    heads=st.integers(1, 2),
    channels=st.integers(1, 3),
    value_channels=st.integers(1, 3),
    shared_position=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_equals_the_loops(window, similarity, batch, extra, heads, channels, value_channels, shared_position, seed):
    height, width = (window[0] if window[0] > 1 else 1) + extra[0], window[1] + extra[1]
    q, k, v, position = inputs(batch, height, width, heads, channels, value_channels, shared_position, seed=seed)
    out, weights = match_attention(q, k, v, position, window, similarity, "reference")
    expected_out, expected_weights = oracle(q, k, v, position, window, similarity)
    torch.testing.assert_close(out.reshape(-1, value_channels), torch.tensor(expected_out, dtype=torch.float64))
    torch.testing.assert_close(
        weights.reshape(-1, window[0] * window[1]), torch.tensor(expected_weights, dtype=torch.float64)
    )


@pytest.mark.parametrize("similarity", ["l1", "dot"])
@pytest.mark.parametrize("window", [(1, 4), (4, 4)])
def test_gradcheck_away_from_integers(window, similarity):
    q, k, v, position = inputs(1, 5, 6, 2, 2, 3, seed=3)
    position = position.floor() + 0.2 + 0.6 * torch.rand(position.shape, dtype=torch.float64)
    tensors = [tensor.requires_grad_() for tensor in (q, k, v, position)]
    assert gradcheck(lambda *a: match_attention(*a, window, similarity, "reference"), tensors, eps=1e-7)


def test_gradient_at_integers_is_one_sided():
    q, k, v, _ = inputs(1, 1, 9, 1, 2, 2, seed=1)
    position = torch.zeros(1, 1, 9, 1, 2, dtype=torch.float64, requires_grad=True)
    out, _ = match_attention(q, k, v, position, (1, 4), backend="reference")
    (gradient,) = torch.autograd.grad(out.sum(), position)
    step = 1e-6
    ahead = position.detach() + torch.tensor([step, 0.0], dtype=torch.float64)
    with torch.no_grad():
        difference = (match_attention(q, k, v, ahead, (1, 4), backend="reference")[0] - out).sum((-1, -2)) / step
    inner = slice(1, 7)  # the clamp stops the outer ones
    torch.testing.assert_close(gradient[0, 0, inner, 0, 0], difference[0, 0, inner], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("window", WINDOWS)
def test_continuous_across_integers(window):
    q, k, v, position = inputs(1, 8, 12, 2, 3, 3, seed=5)
    integer = position.round()
    below, above = (match_attention(q, k, v, integer + e, window, backend="reference") for e in (-1e-9, 1e-9))
    torch.testing.assert_close(below[0], above[0], rtol=0, atol=1e-7)


def test_zero_position_is_local_attention():
    q, k, v, _ = inputs(1, 1, 10, 1, 4, 2)
    out, _ = match_attention(q, k, v, torch.zeros(1, 1, 10, 1, 2, dtype=torch.float64), (1, 4), "dot", "reference")
    for x in range(1, 8):
        keys, values = k[0, 0, x - 1 : x + 2, 0], v[0, 0, x - 1 : x + 2, 0]
        local = torch.softmax(keys @ q[0, 0, x, 0] / 2, 0) @ values
        torch.testing.assert_close(out[0, 0, x, 0], local)


@pytest.mark.parametrize(("window", "size"), [((6, 6), (5, 5)), ((6, 6), (3, 4)), ((6, 6), (1, 1)), ((1, 8), (4, 7))])
def test_window_that_covers_the_map_is_global_attention(window, size):
    q, k, v, position = inputs(2, *size, 2, 4, 3)
    out, weights = match_attention(q, k, v, position, window, "dot", "reference")
    if window[0] == 1:
        scores = torch.einsum("byxhc,byzhc->byhxz", q, k) / 2
        expected = torch.einsum("byhxz,byzhc->byxhc", scores.softmax(-1), v)
    else:
        scores = torch.einsum("byxhc,bijhc->byxhij", q, k).flatten(-2) / 2
        expected = torch.einsum("byxhn,bnhc->byxhc", scores.softmax(-1), v.flatten(1, 2))
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_integer_position_lets_one_sub_window_carry_all():
    q, k, v, _ = inputs(1, 6, 9, 1, 2, 2)
    position = torch.ones(1, 6, 9, 1, 2, dtype=torch.float64)
    _, weights = match_attention(q, k, v, position, (4, 4), backend="reference")
    grid = weights[0, 1:3, 1:6, 0].unflatten(-1, (4, 4))
    assert (grid[..., 3, :] == 0).all()
    assert (grid[..., :, 3] == 0).all()


def test_one_dimension_ignores_y():
    q, k, v, position = inputs(1, 4, 8, 2, 2, 2)
    moved = position.clone()
    moved[..., 1] += 7
    position.requires_grad_()
    out, _ = match_attention(q, k, v, position, (1, 4))
    assert torch.equal(out, match_attention(q, k, v, moved, (1, 4))[0])
    (gradient,) = torch.autograd.grad(out.sum(), position)
    assert (gradient[..., 1] == 0).all()
    assert gradient[..., 0].abs().max() > 0


@pytest.mark.parametrize("window", [(1, 4), (4, 4)])
def test_chunks_of_rows_change_nothing(window):
    q, k, v, position = inputs(2, 9, 8, 2, 3, 3)
    whole = match_attention_reference(q, k, v, position, window, "l1")
    chunked = match_attention_reference(q, k, v, position, window, "l1", chunk_elements=1)
    assert torch.equal(whole[0], chunked[0])
    assert torch.equal(whole[1], chunked[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_positions_stay_exact_in_wide_images(dtype):
    """At column 4000 half precision steps by two pixels; an offset of a quarter token must still count."""
    width = 4096
    ramp = torch.arange(width, dtype=torch.float32).remainder(256) / 256
    k = ramp.view(1, 1, width, 1, 1).to(dtype)
    q = torch.zeros_like(k)
    v = (torch.arange(width).remainder(8) == 0).view(1, 1, width, 1, 1).to(dtype)
    position = torch.full((1, 1, width, 1, 2), -1000.25)
    out, weights = match_attention(q, k, v, position, (1, 4), backend="reference")
    exact = match_attention(*(t.double() for t in (q, k, v, position)), (1, 4), backend="reference")
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.double(), exact[1], rtol=0, atol=2e-6)
    assert (out.double() - exact[0]).abs().max() <= torch.finfo(dtype).eps
    with pytest.raises(InputError, match="Half precision"):
        match_attention(q, k, v, position.to(dtype), (1, 4))


def test_windows_stay_inside_very_wide_maps():
    """In 2^16 tokens fp32 cannot tell the clamp's limit from the integer above it."""
    width = 1 << 16
    k = torch.randn(1, 1, width, 1, 1)
    position = torch.full((1, 1, width, 1, 2), float(width))  # everybody looks at the far end
    out, weights = match_attention(k, k, k, position, (1, 4), backend="reference")
    assert out.isfinite().all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1, width, 1))


def test_autocast_does_not_touch_the_sums():
    q, k, v, position = (tensor.float() for tensor in inputs(1, 4, 9, 2, 3, 3))
    plain = match_attention(q, k, v, position, (1, 4))
    with torch.autocast("cpu", torch.bfloat16):
        inside = match_attention(q, k, v, position, (1, 4))
    assert torch.equal(plain[0], inside[0])


def test_skipping_the_weights():
    q, k, v, position = inputs(1, 4, 9, 2, 3, 3)
    out, weights = match_attention(q, k, v, position, need_weights=False)
    assert weights is None
    assert torch.equal(out, match_attention(q, k, v, position)[0])


def test_compile_backend_agrees():
    q, k, v, position = (tensor.float() for tensor in inputs(1, 4, 9, 2, 3, 3))
    expected = match_attention(q, k, v, position, (1, 4), backend="reference")
    compiled = match_attention(q, k, v, position, (1, 4), backend="compile")
    torch.testing.assert_close(compiled, expected)


BAD = {
    "window": (dict(window=(1, 3)), "rows x columns"),
    "similarity": (dict(similarity="cosine"), "similarity is one of"),
    "backend": (dict(backend="cuda"), "no backend 'cuda'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options_are_refused(case):
    options, message = BAD[case]
    with pytest.raises(InputError, match=message):
        match_attention(*inputs(1, 4, 9, 2, 3, 3), **options)


@pytest.mark.parametrize("window", [4, None, (1, 4, 1), (1.5, 4), "ab"])
def test_windows_that_are_no_pair_are_refused(window):
    q = torch.zeros(1, 4, 8, 1, 2)
    with pytest.raises(InputError, match="pair"):
        match_attention(q, q, q, torch.zeros(1, 4, 8, 1, 2), window=window)


@pytest.mark.parametrize("window", [(1, 4), (4, 4)])
def test_a_position_that_is_nan_spoils_its_own_query_alone(window):
    q, k, v, position = inputs(1, 8, 8, 1, 2, 2)
    expected = match_attention(q, k, v, position, window, backend="reference")[0]
    position[0, 3, 5] = torch.nan
    out = match_attention(q, k, v, position, window, backend="reference")[0]
    assert out[0, 3, 5].isnan().all()
    out[0, 3, 5] = expected[0, 3, 5]
    torch.testing.assert_close(out, expected)


def test_bad_shapes_are_refused():
    q, k, v, position = inputs(1, 4, 9, 2, 3, 3)
    with pytest.raises(InputError, match="one shape"):
        match_attention(q, k[:, :3], v, position)
    with pytest.raises(InputError, match="heads or 1"):
        match_attention(q, k, v, position[..., :1])
    with pytest.raises(InputError, match="one floating dtype"):
        match_attention(q, k.float(), v, position)


def test_an_explicit_backend_is_never_replaced(monkeypatch):
    from matchattention.ops.match_attention import backends

    refusing = backends.BACKENDS["triton"]._replace(why_not=lambda *call: "Not on this machine.")
    monkeypatch.setitem(backends.BACKENDS, "triton", refusing)
    with pytest.raises(InputError, match="Not on this machine"):
        match_attention(*inputs(1, 4, 9, 2, 3, 3), backend="triton")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shared_position", [False, True], ids=["heads", "shared"])
@pytest.mark.parametrize("similarity", ["l1", "dot"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_planes_are_the_reference(window, similarity, shared_position, dtype, monkeypatch):
    from matchattention.ops.match_attention import planes

    monkeypatch.setattr(planes, "NUMBERS_AT_ONCE", 3000)  # several bands
    call = [tensor.to(dtype) for tensor in inputs(2, 13, 11, 3, 5, 4, shared_position, spread=6.0)]
    call[3] = call[3].to(torch.promote_types(dtype, torch.float32))
    call[3][0, 2, 3] = float("nan")
    found = match_attention(*call, window, similarity, "planes")
    expected = match_attention(*call, window, similarity, "reference")
    for own, plain in zip(found, expected):
        torch.testing.assert_close(own, plain, equal_nan=True)
    alone, none = match_attention(*call, window, similarity, "planes", need_weights=False)
    assert none is None
    torch.testing.assert_close(alone, found[0], rtol=0, atol=0, equal_nan=True)


def test_planes_take_sizes_as_small_as_the_window():
    for size, window in (((1, 1, 4), (1, 4)), ((1, 4, 4), (4, 4)), ((1, 3, 9), (1, 8))):
        call = inputs(*size, 1, 2, 2)
        for own, plain in zip(*(match_attention(*call, window, backend=name) for name in ("planes", "reference"))):
            torch.testing.assert_close(own, plain)


def test_planes_run_on_a_cpu_where_no_gradient_is_wanted(monkeypatch):
    from matchattention.ops.match_attention import backends

    ran = []
    for name in ("planes", "reference"):
        run = backends.BACKENDS[name].run
        noted = backends.BACKENDS[name]._replace(run=lambda *call, n=name, run=run: (ran.append(n), run(*call))[1])
        monkeypatch.setitem(backends.BACKENDS, name, noted)
    call = inputs(1, 4, 9, 2, 3, 3)
    match_attention(*call)
    match_attention(call[0].requires_grad_(), *call[1:])
    with torch.no_grad():
        match_attention(*call)
        match_attention(*inputs(1, 4, 3, 2, 3, 3))  # narrower than a window
        match_attention(*inputs(1, 4, 9, 2, 24, 3))  # wide heads are summed fastest as they lie
    assert ran == ["planes", "reference", "planes", "reference", "reference"]
    with pytest.raises(InputError, match="no gradients"):
        match_attention(*call, backend="planes")
    with pytest.raises(InputError, match="at least as large as the window"):
        match_attention(*inputs(1, 4, 3, 2, 3, 3), backend="planes")
