"""Batch norm over channels-last tokens: a training aid that folds into the layer in front of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from matchattention.layers.tokens import positions_dtype


class BatchNorm(nn.Module):
    """Standardises each channel of (…, C) tokens, then scales and shifts it; statistics in fp32.

    In training mode the statistics are those of the batch, both views together. In eval mode they are ``mean`` and
    ``variance``, which training measures before it writes a checkpoint: a running average would follow weights of
    the past, and never the averaged weights that are written.

    A new one in eval mode leaves its input as it is.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels), persistent=False)
        self.register_buffer("variance", torch.ones(channels) - eps, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        wide = tokens.to(positions_dtype(tokens))
        if self.training:
            variance, mean = torch.var_mean(wide, tuple(range(tokens.dim() - 1)), correction=0)
        else:
            variance, mean = self.variance, self.mean
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return ((wide - mean) * scale + self.bias).to(tokens.dtype)
