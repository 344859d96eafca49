"""The operator as PyTorch sees it: schema, shapes, gradient and cost, so that compilers can look through it.

Two operators are registered, `matchattention::match_attention` and its backward, both opaque to tracing: fake
versions give shapes to torch.compile and AOTAutograd, and the FLOP formulas serve
`torch.utils.flop_counter.FlopCounterMode`. The kernels run on CUDA; on a CPU only under Triton's interpreter.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

_library = torch.library.Library("matchattention", "FRAGMENT")
_library.define(
    "match_attention(Tensor q, Tensor k, Tensor v, Tensor relative_position, int rows, int columns, bool dot, "
    "bool need_weights) -> (Tensor, Tensor)"
)
_library.define(
    "match_attention_backward(Tensor grad_out, Tensor? grad_weights, Tensor q, Tensor k, Tensor v, "
    "Tensor relative_position, int rows, int columns, bool dot) -> (Tensor, Tensor, Tensor, Tensor)"
)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, relative_position: Tensor, rows: int, columns: int, dot: bool, need_weights: bool
) -> tuple[Tensor, Tensor]:
    from matchattention.ops.match_attention.triton_forward import forward

    return forward(q, k, v, relative_position, (rows, columns), dot, need_weights)


def _backward(
    grad_out: Tensor,
    grad_weights: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative_position: Tensor,
    rows: int,
    columns: int,
    dot: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from matchattention.ops.match_attention.plain_backward import plain_backward
    from matchattention.ops.match_attention.triton_backward import MOST_KEYS, backward

    chosen = plain_backward if rows * columns > MOST_KEYS else backward
    return chosen(grad_out, grad_weights, q, k, v, relative_position, (rows, columns), dot)


for _device in ("CUDA", "CPU"):
    _library.impl("match_attention", _forward, _device)
    _library.impl("match_attention_backward", _backward, _device)


@torch.library.register_fake("matchattention::match_attention", lib=_library)
def _forward_shapes(
    q: Tensor, k: Tensor, v: Tensor, relative_position: Tensor, rows: int, columns: int, dot: bool, need_weights: bool
) -> tuple[Tensor, Tensor]:
    shape = (*q.shape[:4], rows * columns) if need_weights else (0,)
    return v.new_empty(v.shape), q.new_empty(shape, dtype=torch.float32)


@torch.library.register_fake("matchattention::match_attention_backward", lib=_library)
def _backward_shapes(
    grad_out: Tensor,
    grad_weights: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative_position: Tensor,
    rows: int,
    columns: int,
    dot: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return tuple(t.new_empty(t.shape) for t in (q, k, v, relative_position))  # type: ignore[return-value]


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.call = inputs[4:7]
    ctx.need_weights = inputs[7]
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad_out: Tensor | None, grad_weights: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, relative_position = ctx.saved_tensors
    if grad_out is None:
        grad_out = torch.zeros_like(v)
    grads = torch.ops.matchattention.match_attention_backward(
        grad_out, grad_weights if ctx.need_weights else None, q, k, v, relative_position, *ctx.call
    )
    return (*grads, None, None, None, None)


torch.library.register_autograd("matchattention::match_attention", _gradient, setup_context=_keep_inputs, lib=_library)


def match_attention_flops(q_shape: torch.Size, v_shape: torch.Size, rows: int, columns: int) -> int:
    """FLOPs of one forward call as the paper counts them, a multiply-add as two.

    QK and AV take 2 c a key. CAS takes 20 + 2 keys + 12 w^2 in 2D: 20 for positions and the four shares, 3 w^2 in each
    of four softmaxes and 2 a key to add them up. One row has two softmaxes of w and two shares: 10 + 2 keys + 6 w.
    """
    batch, height, width, heads, channels = q_shape
    keys = rows * columns
    if rows == 1:
        sampling = 10 + 2 * keys + 6 * (columns - 1)
    else:
        sampling = 20 + 2 * keys + 12 * (rows - 1) * (columns - 1)
    return batch * height * width * heads * (2 * channels * keys + sampling + 2 * v_shape[-1] * keys)


@register_flop_formula(torch.ops.matchattention.match_attention)
def _forward_flops(
    q_shape: Any, k_shape: Any, v_shape: Any, r_shape: Any, rows: int, columns: int, *args: Any, **kwargs: Any
) -> int:
    return match_attention_flops(q_shape, v_shape, rows, columns)


@register_flop_formula(torch.ops.matchattention.match_attention_backward)
def _backward_flops(
    grad_shape: Any,
    weights_shape: Any,
    q_shape: Any,
    k_shape: Any,
    v_shape: Any,
    r_shape: Any,
    rows: int,
    columns: int,
    *args: Any,
    **kwargs: Any,
) -> int:
    # Scores and weights again, then two products of the same size for each of QK and AV.
    return 3 * match_attention_flops(q_shape, v_shape, rows, columns)
