# mypy: disable-error-code="assignment, var-annotated"
"""What lies between two matrix products of a MATBlock, for inference: residual, positions, norm; gate and joining.

One kernel where PyTorch needs a dozen: features are read once and written once.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from matchattention.runtime.kernels.norm import VALUES_OF_PROGRAM


@triton.jit(do_not_specialize=["rows"])
def step_norm_kernel(
    features_pointer,
    update_pointer,
    cross_pointer,
    own_pointer,
    beta_pointer,
    weight_pointer,
    bias_pointer,
    new_features_pointer,
    new_cross_pointer,
    new_own_pointer,
    tokens_pointer,
    rows,
    eps,
    D: tl.constexpr,
    DB: tl.constexpr,
    OWN: tl.constexpr,
    E: tl.constexpr,
    STEPS: tl.constexpr,
    EXTRAS: tl.constexpr,
    UPDATE: tl.constexpr,
    N: tl.constexpr,
    KEEP_Y: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    T: tl.constexpr,
):
    """Take an update's step, then norm what the next product sees; T rows.

    An update's row is UPDATE wide: D features, then STEPS positions (cross x, y, then OWN of the heads'). Tokens are N
    wide: D features, then the first EXTRAS positions, then zeros. The bias is added to the written features alone.
    """
    row = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)[:, None]
    column = tl.arange(0, DB)[None, :]
    valid = row < rows
    real = column < D
    mask = valid & real
    dtype = features_pointer.dtype.element_ty
    x = tl.load(features_pointer + row * D + column, mask=mask, other=0.0).to(tl.float32)
    if STEPS > 0:
        x += tl.load(update_pointer + row * UPDATE + column, mask=mask, other=0.0).to(tl.float32)
        x = x.to(dtype).to(tl.float32)
        kept = x
        if HAS_BIAS:
            kept += tl.load(bias_pointer + column, mask=real, other=0.0).to(tl.float32)
        tl.store(new_features_pointer + row * D + column, kept.to(dtype), mask=mask)
    total = tl.sum(x, 1)[:, None]

    part = tl.arange(0, E)[None, :]
    is_cross = valid & (part < 2)
    is_own = valid & (part >= 2) & (part < 2 + OWN)
    position = tl.load(cross_pointer + row * 2 + part, mask=is_cross, other=0.0)
    if STEPS > 2 or EXTRAS > 2:
        position += tl.load(own_pointer + row * OWN + part - 2, mask=is_own, other=0.0)
    beta = tl.load(beta_pointer + part, mask=part < 2, other=1.0)
    if STEPS > 0:
        step = tl.load(update_pointer + row * UPDATE + D + part, mask=valid & (part < STEPS), other=0.0)
        position += step.to(tl.float32) / beta
        if not KEEP_Y:
            position = tl.where(part == 1, 0.0, position)
        tl.store(new_cross_pointer + row * 2 + part, position, mask=is_cross)
        if STEPS > 2:
            tl.store(new_own_pointer + row * OWN + part - 2, position, mask=is_own)
    extra = tl.where(part < EXTRAS, (position * beta).to(dtype).to(tl.float32), 0.0)
    mean = (total + tl.sum(extra, 1)[:, None]) / (D + EXTRAS)

    apart = tl.where(real, x - mean, 0.0)
    extra_apart = tl.where(part < EXTRAS, extra - mean, 0.0)
    squares = tl.sum(apart * apart, 1)[:, None] + tl.sum(extra_apart * extra_apart, 1)[:, None]
    scale = 1.0 / tl.sqrt(squares / (D + EXTRAS) + eps)
    weight = tl.load(weight_pointer + column, mask=real, other=0.0).to(tl.float32)
    tl.store(tokens_pointer + row * N + column, (apart * scale * weight).to(dtype), mask=mask)
    if N > D:
        weight = tl.load(weight_pointer + D + part, mask=part < EXTRAS, other=0.0).to(tl.float32)
        at = tokens_pointer + row * N + D + part
        tl.store(at, (extra_apart * scale * weight).to(dtype), mask=valid & (part < N - D))


class Stepped(NamedTuple):
    """Features, positions after a step, and what the next product sees.

    Attributes:
        features: (…, d).
        cross: (…, 2) fp32.
        own: (…, heads, 2) fp32.
        tokens: (…, n), normed.
    """

    features: Tensor
    cross: Tensor
    own: Tensor
    tokens: Tensor


def step_and_norm(
    features: Tensor,
    cross: Tensor,
    own: Tensor,
    beta: Tensor,
    weight: Tensor,
    eps: float,
    outputs: int,
    update: Tensor | None = None,
    steps: int = 0,
    keep_y: bool = False,
    bias: Tensor | None = None,
) -> Stepped:
    """Take an update's step and norm features and positions together. All tensors are contiguous.

    Args:
        features: (…, d).
        cross: (…, 2) fp32.
        own: (…, heads, 2) fp32.
        beta: (2,) fp32, between cross positions and features.
        weight: of the norm: d values, and one for each position that the next product sees.
        eps: of the norm.
        outputs: width of the tokens; zeros fill it up.
        update: (…, at least d + steps), or None for no step.
        steps: positions that the update moves: 2 for cross, 2 + 2 heads for all.
        keep_y: whether cross positions leave their row.
        bias: (d,), added to the features that are returned, not to what is normed.
    """
    width = features.shape[-1]
    rows, block = features.numel() // width, triton.next_power_of_2(width)
    extras = weight.shape[0] - width
    tokens = torch.empty(*features.shape[:-1], outputs, dtype=features.dtype, device=features.device)
    moved = (features, cross, own)
    if update is not None:
        moved = torch.empty_like(features), torch.empty_like(cross), torch.empty_like(own) if steps > 2 else own
    tile = max(1, VALUES_OF_PROGRAM // block)
    sizes: dict[str, Any] = {
        "D": width,
        "DB": block,
        "OWN": own.shape[-1] * own.shape[-2],
        "E": triton.next_power_of_2(max(2 + own.shape[-1] * own.shape[-2], outputs - width)),
        "STEPS": steps,
        "EXTRAS": extras,
        "UPDATE": 0 if update is None else update.shape[-1],
        "N": outputs,
        "KEEP_Y": keep_y,
        "HAS_BIAS": bias is not None,
        "T": tile,
    }
    if rows:
        step_norm_kernel[(-(-rows // tile),)](
            features,
            features if update is None else update,
            cross,
            own,
            beta,
            weight,
            weight if bias is None else bias,
            *moved,
            tokens,
            rows,
            eps,
            **sizes,
            num_warps=4,
        )
    return Stepped(*moved, tokens)


@triton.jit(do_not_specialize=["rows", "gate_stride"])
def gate_join_kernel(
    attended_pointer,
    gate_pointer,
    weights_pointer,
    out_pointer,
    rows,
    gate_stride,
    C: tl.constexpr,
    CB: tl.constexpr,
    W: tl.constexpr,
    WB: tl.constexpr,
    N: tl.constexpr,
    HAS_GATE: tl.constexpr,
    T: tl.constexpr,
):
    """T rows of [attended * SiLU(gate) | weights | zeros], N wide."""
    row = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)[:, None]
    valid = row < rows
    dtype = attended_pointer.dtype.element_ty
    column = tl.arange(0, CB)[None, :]
    mask = valid & (column < C)
    value = tl.load(attended_pointer + row * C + column, mask=mask, other=0.0).to(tl.float32)
    if HAS_GATE:
        gate = tl.load(gate_pointer + row * gate_stride + column, mask=mask, other=0.0).to(tl.float32)
        value *= (gate * tl.sigmoid(gate)).to(dtype).to(tl.float32)
    tl.store(out_pointer + row * N + column, value.to(dtype), mask=mask)
    if N > C:
        part = tl.arange(0, WB)[None, :]
        weight = tl.load(weights_pointer + row * W + part, mask=valid & (part < W), other=0.0)
        tl.store(out_pointer + row * N + C + part, weight.to(dtype), mask=valid & (part < N - C))


def gate_and_join(attended: Tensor, gate: Tensor | None, weights: Tensor | None, outputs: int) -> Tensor:
    """Attended values (…, c), times SiLU of their gate, beside the attention's weights (…, w), filled up with zeros.

    The gate may be some columns of something contiguous.
    """
    attended, weights = attended.contiguous(), None if weights is None else weights.contiguous()
    width, more = attended.shape[-1], 0 if weights is None else weights.shape[-1]
    rows = attended.numel() // width
    out = torch.empty(*attended.shape[:-1], outputs, dtype=attended.dtype, device=attended.device)
    block, beside = triton.next_power_of_2(width), triton.next_power_of_2(max(1, outputs - width))
    tile = max(1, VALUES_OF_PROGRAM // max(block, beside))
    if rows:
        gate_join_kernel[(-(-rows // tile),)](
            attended,
            attended if gate is None else gate,
            attended if weights is None else weights,
            out,
            rows,
            0 if gate is None else gate.stride(-2),
            C=width,
            CB=block,
            W=more,
            WB=beside,
            N=outputs,
            HAS_GATE=gate is not None,
            T=tile,
            num_warps=4,
        )
    return out
