"""Depthwise 3x3 convolution on channels-last tokens, alone and fused with the gate of a ConvGLU.

On a GPU both are Triton kernels (`triton_depthwise`) behind torch.library; elsewhere plain PyTorch.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from matchattention.ops import kernels


def depthwise3x3(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolve every channel with its own 3x3 kernel, zero padding 1.

    Args:
        x: tokens (B, H, W, C).
        weight: (C, 1, 3, 3), as `torch.nn.Conv2d(C, C, 3, groups=C)` stores it.
        bias: (C,) or None.

    Returns:
        (B, H, W, C), contiguous, in the dtype of `x`.
    """
    if kernels.has_kernel(x):
        return torch.ops.matchattention.depthwise3x3(x, weight, bias)
    return depthwise3x3_plain(x, weight, bias)


def convglu_mix(h: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The middle of a ConvGLU: GELU(depthwise3x3(gate)) * value.

    Args:
        h: (B, H, W, 2 D) holding [gate | value] along the channels.
        weight: (D, 1, 3, 3), the gate's depthwise kernel.
        bias: (D,) or None.

    Returns:
        (B, H, W, D), contiguous, in the dtype of `h`.
    """
    if kernels.has_kernel(h):
        return torch.ops.matchattention.convglu_mix(h, weight, bias)
    return convglu_mix_plain(h, weight, bias)


def depthwise3x3_plain(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`depthwise3x3` by `torch.nn.functional.conv2d` on a permuted view: the specification of the kernel."""
    images = x.permute(0, 3, 1, 2)  # (B, C, H, W), channels-last in memory
    bias = None if bias is None else bias.to(x.dtype)
    result = F.conv2d(images, weight.to(x.dtype), bias, padding=1, groups=x.shape[-1])
    return result.permute(0, 2, 3, 1).contiguous()


def convglu_mix_plain(h: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`convglu_mix` in plain PyTorch: the specification of the kernel."""
    gate, value = h.chunk(2, dim=-1)
    return F.gelu(depthwise3x3_plain(gate, weight, bias)) * value


_library = torch.library.Library("matchattention", "FRAGMENT")
_library.define("depthwise3x3(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
_library.define("depthwise3x3_backward(Tensor grad, Tensor x, Tensor weight) -> (Tensor, Tensor, Tensor)")
_library.define("convglu_mix(Tensor h, Tensor weight, Tensor? bias) -> Tensor")
_library.define("convglu_mix_backward(Tensor grad, Tensor h, Tensor weight, Tensor? bias) -> (Tensor, Tensor, Tensor)")


def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    from matchattention.ops import triton_depthwise

    return triton_depthwise.convolve(x, weight, bias)


def _convolve_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    from matchattention.ops import triton_depthwise

    grad_x = x.new_empty(x.shape)
    return grad_x, *triton_depthwise.convolve_backward(grad, x, weight, grad_x)


def _mix(h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    from matchattention.ops import triton_depthwise

    return triton_depthwise.gate_mix(h, weight, bias)


def _mix_backward(grad: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    from matchattention.ops import triton_depthwise

    return triton_depthwise.gate_mix_backward(grad, h, weight, bias)


_IMPLEMENTATIONS = {
    "depthwise3x3": _convolve,
    "depthwise3x3_backward": _convolve_backward,
    "convglu_mix": _mix,
    "convglu_mix_backward": _mix_backward,
}
for _name, _function in _IMPLEMENTATIONS.items():
    for _device in ("CUDA", "CPU"):
        _library.impl(_name, _function, _device)


@torch.library.register_fake("matchattention::depthwise3x3", lib=_library)
def _convolve_shape(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.register_fake("matchattention::convglu_mix", lib=_library)
def _mix_shape(h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return h.new_empty((*h.shape[:-1], h.shape[-1] // 2))


@torch.library.register_fake("matchattention::depthwise3x3_backward", lib=_library)
def _convolve_backward_shapes(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (x.new_empty(x.shape), *_parameter_shapes(weight))


@torch.library.register_fake("matchattention::convglu_mix_backward", lib=_library)
def _mix_backward_shapes(grad: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    return (h.new_empty(h.shape), *_parameter_shapes(weight))


def _parameter_shapes(weight: Tensor) -> tuple[Tensor, Tensor]:
    return (
        weight.new_empty(weight.shape, dtype=torch.float32),
        weight.new_empty(weight.shape[:1], dtype=torch.float32),
    )


def _keep_inputs(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    x, weight, bias = inputs
    ctx.save_for_backward(x, weight, bias)


def _convolve_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    x, weight, bias = ctx.saved_tensors
    grads = torch.ops.matchattention.depthwise3x3_backward(grad, x, weight)
    return grads[0], grads[1].to(weight.dtype), None if bias is None else grads[2].to(bias.dtype)


def _mix_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    h, weight, bias = ctx.saved_tensors
    grads = torch.ops.matchattention.convglu_mix_backward(grad, h, weight, bias)
    return grads[0], grads[1].to(weight.dtype), None if bias is None else grads[2].to(bias.dtype)


torch.library.register_autograd(
    "matchattention::depthwise3x3", _convolve_gradient, setup_context=_keep_inputs, lib=_library
)
torch.library.register_autograd("matchattention::convglu_mix", _mix_gradient, setup_context=_keep_inputs, lib=_library)
