"""Weights as the kernels read them, of layers that lean and fused networks share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.tokens import as_image, as_tokens
from matchattention.layers.upsampling import ConvexUpsampling
from matchattention.runtime.kernels.rows import padded
from matchattention.runtime.kernels.upsampling import convex_kernel

# Of a matrix product inside a kernel.
LEAST_COLUMNS = 16
# Tokens and warps of a program of convex upsampling that computes its logits, and of one that reads them.
WITH_LOGITS, WITHOUT = (64, 8), (16, 2)


class PackedConvolution(nn.Module):
    """A dense convolution on tokens; with `relu` one cuDNN call where there is one."""

    def __init__(self, convolution: nn.Conv2d, dtype: torch.dtype, relu: bool = False, keeps_bias: bool = True) -> None:
        super().__init__()
        weight = convolution.weight.detach().to(dtype)
        self.weight = nn.Buffer(weight.to(memory_format=torch.channels_last))
        assert convolution.bias is not None
        self.bias = nn.Buffer(convolution.bias.detach().to(dtype).clone()) if keeps_bias else None
        self.stride, self.dilation = convolution.stride, convolution.dilation
        self.padding = (convolution.dilation[0] * (convolution.kernel_size[0] // 2),) * 2
        self.relu = relu
        self.one_call = relu

    def forward(self, tokens: Tensor) -> Tensor:
        image = as_image(tokens)
        if self.one_call and tokens.is_cuda:
            try:
                made = torch.cudnn_convolution_relu(
                    image, self.weight, self.bias, self.stride, self.padding, self.dilation, 1
                )
                return as_tokens(made).contiguous()
            except RuntimeError:  # not every shape has such an engine
                self.one_call = False
        made = F.conv2d(image, self.weight, self.bias, self.stride, self.padding, self.dilation)
        return as_tokens(F.relu(made) if self.relu else made).contiguous()


class PackedConvex(nn.Module):
    """Convex upsampling of packed positions.

    Args:
        upsampling: the plain one.
        heads: self positions in a packed row.
        dtype: of features and matrices.
        one_kernel: whether narrow heads may compute their weights in the kernel that uses them.
    """

    def __init__(self, upsampling: ConvexUpsampling, heads: int, dtype: torch.dtype, one_kernel: bool = True) -> None:
        super().__init__()
        self.head = PackedConvolution(upsampling.head, dtype, relu=True)
        self.weight = nn.Buffer(upsampling.weights.weight.detach().flatten(1).to(dtype).contiguous())
        assert upsampling.weights.bias is not None
        self.factor, self.heads = upsampling.factor, heads
        self.one_kernel = one_kernel and self.factor**2 >= LEAST_COLUMNS
        kept = torch.float32 if self.one_kernel else dtype
        self.bias = nn.Buffer(upsampling.weights.bias.detach().to(kept).clone())
        self.zero_border = upsampling.border != "replicate"

    def forward(self, features: Tensor, position: Tensor, packed: bool) -> Tensor:
        """Positions of the finer map: packed (…, EP), or the cross position alone (…, 2)."""
        images, height, width, row = position.shape
        hidden = self.head(features)
        channels = hidden.shape[-1] if self.one_kernel else 0
        logits = hidden if self.one_kernel else F.linear(hidden, self.weight, self.bias)
        outputs = row if packed else 2
        out = position.new_empty((images, height * self.factor, width * self.factor, outputs))
        tokens = images * height * width
        tile, warps = WITH_LOGITS if self.one_kernel else WITHOUT
        convex_kernel[(-(-tokens // tile),)](
            logits,
            self.weight,
            self.bias,
            position,
            out,
            height,
            width,
            tokens,
            D=channels,
            DB=padded(channels),
            FACTOR=self.factor,
            HEADS=self.heads,
            EP=row,
            OUT=outputs,
            ZERO_BORDER=self.zero_border,
            T=tile,
            num_warps=warps,
        )
        return out
