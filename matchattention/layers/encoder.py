"""The shared encoder: ConvFormer, from an image to tokens at 1/4, 1/8, 1/16 and 1/32."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.feedforward import MLP
from matchattention.layers.tokens import LayerNorm, as_image, as_tokens, instance_norm
from matchattention.ops.depthwise import depthwise3x3

EPS = 1e-6


class Stem(nn.Module):
    """Two strided convolutions: (B, 3, H, W) to tokens at 1/4."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels // 2, 3, stride=2, padding=1)
        self.second = nn.Conv2d(channels // 2, channels, 3, stride=2, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        tokens = F.gelu(instance_norm(as_tokens(self.first(image))))
        return F.gelu(instance_norm(as_tokens(self.second(as_image(tokens)))))


class Downsampling(nn.Module):
    """LayerNorm, then a strided convolution."""

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__()
        self.norm = LayerNorm(channels, EPS)
        self.conv = nn.Conv2d(channels, out_channels, 3, stride=2, padding=1)

    def forward(self, tokens: Tensor) -> Tensor:
        return as_tokens(self.conv(as_image(self.norm(tokens))))


class SepConv(nn.Module):
    """Inverted separable convolution."""

    def __init__(self, channels: int, ratio: int = 2) -> None:
        super().__init__()
        hidden = channels * ratio
        self.expand = nn.Linear(channels, hidden, bias=False)
        self.depthwise = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False)
        self.contract = nn.Linear(hidden, channels, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = F.gelu(self.expand(tokens))
        return self.contract(depthwise3x3(hidden, self.depthwise.weight))


class ResidualScale(nn.Module):
    """A learned factor per channel on the residual path."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens * self.scale.to(tokens.dtype)


class EncoderBlock(nn.Module):
    """Token mixing and channel mixing, each pre-normed with a residual.

    Args:
        channels: width.
        scaled: whether the residuals carry learned scales (stages 3 and 4).
    """

    def __init__(self, channels: int, scaled: bool) -> None:
        super().__init__()
        self.norm1 = LayerNorm(channels, EPS)
        self.mixer = SepConv(channels)
        self.norm2 = LayerNorm(channels, EPS)
        self.mlp = MLP(channels)
        self.scale1 = ResidualScale(channels) if scaled else nn.Identity()
        self.scale2 = ResidualScale(channels) if scaled else nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = self.scale1(tokens) + self.mixer(self.norm1(tokens))
        return self.scale2(tokens) + self.mlp(self.norm2(tokens))


class Encoder(nn.Module):
    """Images (B, 3, H, W) in [-1, 1] to four maps of tokens, finest first."""

    def __init__(self, channels: Sequence[int], depths: Sequence[int], residual_scales: bool = True) -> None:
        super().__init__()
        self.stem = Stem(channels[0])
        self.downsamplings = nn.ModuleList(
            Downsampling(coarse, fine) for coarse, fine in zip(channels[:-1], channels[1:])
        )
        self.stages = nn.ModuleList(
            nn.Sequential(*(EncoderBlock(width, residual_scales and stage >= 2) for _ in range(depth)))
            for stage, (width, depth) in enumerate(zip(channels, depths))
        )

    def forward(self, image: Tensor) -> list[Tensor]:
        tokens = self.stages[0](self.stem(image))
        scales = [tokens]
        for downsampling, stage in zip(self.downsamplings, list(self.stages)[1:]):
            tokens = stage(downsampling(tokens))
            scales.append(tokens)
        return scales
