"""Depthwise 3x3 convolution on channels-last tokens, alone and fused with the gate of a ConvGLU."""

import torch.nn.functional as F
from torch import Tensor


def depthwise3x3(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolve every channel with its own 3x3 kernel, zero padding 1.

    Args:
        x: tokens (B, H, W, C).
        weight: (C, 1, 3, 3), as `torch.nn.Conv2d(C, C, 3, groups=C)` stores it.
        bias: (C,) or None.

    Returns:
        (B, H, W, C), contiguous, in the dtype of `x`.
    """
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
    return convglu_mix_plain(h, weight, bias)


def depthwise3x3_plain(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`depthwise3x3` by `torch.nn.functional.conv2d` on a permuted view: the specification of the kernel."""
    images = x.permute(0, 3, 1, 2)  # (B, C, H, W), channels-last in memory
    result = F.conv2d(images, weight.to(x.dtype), None if bias is None else bias.to(x.dtype),
                      padding=1, groups=x.shape[-1])
    return result.permute(0, 2, 3, 1).contiguous()


def convglu_mix_plain(h: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`convglu_mix` in plain PyTorch: the specification of the kernel."""
    gate, value = h.chunk(2, dim=-1)
    return F.gelu(depthwise3x3_plain(gate, weight, bias)) * value


__all__ = ["convglu_mix", "convglu_mix_plain", "depthwise3x3", "depthwise3x3_plain"]
