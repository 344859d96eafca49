# mypy: disable-error-code="assignment, var-annotated"
"""LayerNorm of rows of any width in one kernel, for inference: read once, written once, in the features' own dtype."""

import torch
import triton
import triton.language as tl
from torch import Tensor

VALUES_OF_PROGRAM = 4096


@triton.jit(do_not_specialize=["rows"])
def layer_norm_kernel(
    x_pointer, weight_pointer, out_pointer, rows, eps, N: tl.constexpr, NB: tl.constexpr, T: tl.constexpr
):
    """T rows of (rows, N), normed over N in fp32 and weighted."""
    row = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)[:, None]
    column = tl.arange(0, NB)[None, :]
    real = column < N
    mask = (row < rows) & real
    x = tl.load(x_pointer + row * N + column, mask=mask, other=0.0).to(tl.float32)
    apart = tl.where(real, x - (tl.sum(x, 1) / N)[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(apart * apart, 1) / N + eps)
    weight = tl.load(weight_pointer + column, mask=real, other=0.0).to(tl.float32)
    result = apart * scale[:, None] * weight
    tl.store(out_pointer + row * N + column, result.to(out_pointer.dtype.element_ty), mask=mask)


def layer_norm(tokens: Tensor, weight: Tensor, eps: float) -> Tensor:
    """LayerNorm over the last axis with a weight and no bias; statistics in fp32, result in the weight's dtype."""
    tokens = tokens.contiguous()
    width = tokens.shape[-1]
    out = torch.empty_like(tokens, dtype=weight.dtype)
    rows, block = tokens.numel() // width, triton.next_power_of_2(width)
    tile = max(1, VALUES_OF_PROGRAM // block)
    if rows:
        layer_norm_kernel[(-(-rows // tile),)](tokens, weight, out, rows, eps, N=width, NB=block, T=tile, num_warps=4)
    return out
