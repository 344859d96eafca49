"""Context over both whole views at 1/32, before they are correlated."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.feedforward import ConvGLU
from matchattention.layers.tokens import LayerNorm, swap_views


class Attention(nn.Module):
    """Multi-head attention over all tokens of a view, with compressed channels and no biases."""

    def __init__(self, channels: int, heads: int, compression: int) -> None:
        super().__init__()
        inner = channels // compression
        self.heads = heads
        self.q = nn.Linear(channels, inner, bias=False)
        self.kv = nn.Linear(channels, 2 * inner, bias=False)
        self.out = nn.Linear(inner, channels, bias=False)

    def forward(self, tokens: Tensor, source: Tensor) -> Tensor:
        """Look from ``tokens`` into ``source``, both (B, H, W, C)."""
        q = self._split(self.q(tokens))
        k, v = (self._split(part) for part in self.kv(source).chunk(2, -1))
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)  # (B, HW, inner)
        return self.out(attended).unflatten(1, tokens.shape[1:3])

    def _split(self, tokens: Tensor) -> Tensor:
        return tokens.flatten(1, 2).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, heads, HW, c)


class GlobalAttentionLayer(nn.Module):
    """Self-attention, cross-attention and ConvGLU, pre-normed with residuals."""

    def __init__(self, channels: int, heads: int, compression: int) -> None:
        super().__init__()
        self.norm1 = LayerNorm(channels)
        self.self_attention = Attention(channels, heads, compression)
        self.norm2 = LayerNorm(channels)
        self.cross_attention = Attention(channels, heads, compression)
        self.norm3 = LayerNorm(channels)
        self.feedforward = ConvGLU(channels)

    def forward(self, tokens: Tensor) -> Tensor:
        normed = self.norm1(tokens)
        tokens = tokens + self.self_attention(normed, normed)
        normed = self.norm2(tokens)
        tokens = tokens + self.cross_attention(normed, swap_views(normed))
        return tokens + self.feedforward(self.norm3(tokens))
