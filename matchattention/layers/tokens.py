"""Channels-last tokens: the small pieces every layer is made of."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def as_image(tokens: Tensor) -> Tensor:
    """(B, H, W, C) to (B, C, H, W) without moving memory: PyTorch sees a channels-last image."""
    return tokens.permute(0, 3, 1, 2)


def as_tokens(image: Tensor) -> Tensor:
    """(B, C, H, W) to (B, H, W, C) without moving memory."""
    return image.permute(0, 2, 3, 1)


def split_views(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The two stacked views; by slices, because `chunk` cannot be exported for a batch of any size."""
    half = tokens.shape[0] // 2
    return tokens[:half], tokens[half:]


def swap_views(tokens: Tensor) -> Tensor:
    """Exchange the two stacked views: [left, right] to [right, left]."""
    first, second = split_views(tokens)
    return torch.cat((second, first))


def pixel_grid(height: int, width: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """(H, W, 2) positions (x, y)."""
    y = torch.arange(height, device=device, dtype=dtype).view(-1, 1).expand(height, width)
    x = torch.arange(width, device=device, dtype=dtype).view(1, -1).expand(height, width)
    return torch.stack((x, y), -1)


def positions_dtype(tokens: Tensor) -> torch.dtype:
    """fp32 for every feature dtype, fp64 beside fp64."""
    return torch.promote_types(tokens.dtype, torch.float32)


class LayerNorm(nn.Module):
    """LayerNorm over the channels with a weight and no bias; statistics in fp32, result in the weight's dtype."""

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.eps = eps

    def forward(self, tokens: Tensor) -> Tensor:
        total = positions_dtype(tokens)
        weight = self.weight.to(total)
        normed = F.layer_norm(tokens.to(total), weight.shape, weight, None, self.eps)
        return normed.to(self.weight.dtype)


def instance_norm(tokens: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalise each channel of each image over its pixels, in fp32."""
    wide = tokens.to(positions_dtype(tokens))
    variance, mean = torch.var_mean(wide, (1, 2), correction=0, keepdim=True)
    return ((wide - mean) * torch.rsqrt(variance + eps)).to(tokens.dtype)


class Projection(nn.Linear):
    """A linear layer whose matrix is padded to multiples of eight on a GPU.

    MATBlocks project d + 2 and d + 10 channels; tensor cores want rows of whole 16-byte words.
    """

    def forward(self, tokens: Tensor) -> Tensor:
        if not tokens.is_cuda or (self.in_features % 8 == 0 and self.out_features % 8 == 0):
            return F.linear(tokens, self.weight, self.bias)
        more_in, more_out = -self.in_features % 8, -self.out_features % 8
        weight = F.pad(self.weight, (0, more_in, 0, more_out))
        bias = None if self.bias is None else F.pad(self.bias, (0, more_out))
        return F.linear(F.pad(tokens, (0, more_in)), weight, bias)[..., : self.out_features]
