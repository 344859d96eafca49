"""MATBlock: self-MatchAttention, cross-MatchAttention and a feed-forward layer refine one triple.

The triple is (features, cross_position, self_position): tokens, where each token's match lies in the other
view, and where each head looks in its own view. Positions are fp32 whatever the features are.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.consistency import disagreement
from matchattention.layers.families import make_family
from matchattention.layers.feedforward import ConvGLU
from matchattention.layers.tokens import LayerNorm, Projection, positions_dtype, swap_views


class Refined(NamedTuple):
    """What a block returns.

    Attributes:
        features: (2B, H, W, d).
        after_self: (2B, H, W, 2) cross position after the first attention.
        after_cross: (2B, H, W, 2) cross position after the second.
        self_position: (2B, H, W, heads, 2).
    """

    features: Tensor
    after_self: Tensor
    after_cross: Tensor
    self_position: Tensor


class BlockConfig(NamedTuple):
    """One block's shape; see NetworkConfig for the meaning of each value."""

    channels: int
    heads: int
    compression: int
    window: tuple[int, int]
    similarity: str
    attention: str
    gate: bool
    self_sees_cross: bool
    self_mask: bool
    keep_y: bool
    depth: int


def _heads(tokens: Tensor, heads: int) -> Tensor:
    return tokens.unflatten(-1, (heads, -1))


class SelfMatchAttention(nn.Module):
    """Each view looks into itself, where self_position points, and carries its matches along."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.config = config
        inner = config.channels // config.compression
        self.position_channels = 2 * config.heads + (2 if config.self_sees_cross else 0)
        width = config.channels + self.position_channels
        self.norm = LayerNorm(width)
        self.qkv = Projection(width + (1 if config.self_mask else 0), 3 * inner, bias=False)
        self.attention = make_family(config.attention, config.window, config.similarity, config.depth)
        self.out = Projection(inner, width, bias=False)
        with torch.no_grad():
            self.out.weight[config.channels :].zero_()

    def forward(self, features: Tensor, cross: Tensor, self_position: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
        config = self.config
        parts = [features, self_position.flatten(-2).to(features.dtype)]
        if config.self_sees_cross:
            parts.insert(1, (cross * beta).to(features.dtype))
        tokens = self.norm(torch.cat(parts, -1))
        if config.self_mask:
            visible = disagreement(cross).abs().sum(-1, keepdim=True) < 2
            tokens = torch.cat((tokens, visible.to(tokens.dtype)), -1)
        q, k, v = (_heads(part, config.heads) for part in self.qkv(tokens).chunk(3, -1))
        attended, _ = self.attention(q, k, v, self_position, need_weights=False)
        update = self.out(attended.flatten(-2))
        features = features + update[..., : config.channels]
        step = update[..., config.channels :].to(cross.dtype)
        if config.self_sees_cross:
            cross = cross + step[..., :2] / beta
            step = step[..., 2:]
        return features, cross, self_position + step.unflatten(-1, (config.heads, 2))


class CrossMatchAttention(nn.Module):
    """Each view looks into the other one, where cross_position points; the weights are a cue of their own."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.config = config
        inner = config.channels // config.compression
        width = config.channels + 2
        self.norm = LayerNorm(width)
        self.qkvg = Projection(width, (4 if config.gate else 3) * inner, bias=False)
        self.attention = make_family(config.attention, config.window, config.similarity, config.depth)
        self.out = Projection(inner + config.heads * self.attention.weights_per_head, width, bias=False)
        with torch.no_grad():
            self.out.weight[config.channels :].zero_()

    def forward(self, features: Tensor, cross: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        config = self.config
        tokens = self.norm(torch.cat((features, (cross * beta).to(features.dtype)), -1))
        inner = config.channels // config.compression
        mixed = self.qkvg(tokens)
        q = _heads(mixed[..., :inner], config.heads)
        k, v = (_heads(part, config.heads) for part in swap_views(mixed[..., inner : 3 * inner]).chunk(2, -1))
        attended, weights = self.attention(q, k, v, cross.unsqueeze(-2))
        attended = attended.flatten(-2)
        if config.gate:  # from the reference view alone: hides what the other view cannot know
            attended = attended * F.silu(mixed[..., 3 * inner :])
        if weights is not None:
            attended = torch.cat((attended, weights.flatten(-2).to(attended.dtype)), -1)
        update = self.out(attended)
        step = update[..., config.channels :].to(cross.dtype)
        return features + update[..., : config.channels], cross + step / beta


class MATBlock(nn.Module):
    """One refinement of (features, cross_position, self_position).

    Args:
        config: shape of the block.
        first: "self" as in the paper, or "cross" for its double-cross ablation.
    """

    def __init__(self, config: BlockConfig, first: str = "self") -> None:
        super().__init__()
        self.config = config
        self.beta = nn.Parameter(torch.full((2,), 0.1))
        self.first = SelfMatchAttention(config) if first == "self" else CrossMatchAttention(config)
        self.cross = CrossMatchAttention(config)
        self.norm = LayerNorm(config.channels)
        self.feedforward = ConvGLU(config.channels)

    def forward(self, features: Tensor, cross: Tensor, self_position: Tensor) -> Refined:
        beta = self.beta.to(positions_dtype(self.beta))
        if isinstance(self.first, SelfMatchAttention):
            features, after_self, self_position = self.first(features, cross, self_position, beta)
        else:
            features, after_self = self.first(features, cross, beta)
        after_self = self.on_epipolar_line(after_self)
        features, after_cross = self.cross(features, after_self, beta)
        after_cross = self.on_epipolar_line(after_cross)
        features = features + self.feedforward(self.norm(features))
        return Refined(features, after_self, after_cross, self_position)

    @property
    def is_the_papers(self) -> bool:
        """Whether it is none of the ablations: self-attention that sees the cross position, without a mask."""
        return isinstance(self.first, SelfMatchAttention) and self.config.self_sees_cross and not self.config.self_mask

    def on_epipolar_line(self, cross: Tensor) -> Tensor:
        """Stereo: a rectified pair has no vertical offset."""
        if self.config.keep_y:
            return cross
        return torch.cat((cross[..., :1], torch.zeros_like(cross[..., 1:])), -1)
