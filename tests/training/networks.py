"""A network small enough to train in a test, with the interface of `docs/design.md`."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Step(NamedTuple):
    scale: int
    kind: str
    position: Tensor


class Initial(NamedTuple):
    position: Tensor
    log_matching: Tensor | None


class Matches(NamedTuple):
    field: Tensor
    self_position: Tensor
    steps: tuple[Step, ...]
    initial: Initial


class Block(nn.Module):
    """One convolution that refines features, standing in for a MATBlock."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(channels, channels, 3, padding=1)
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, features: Tensor) -> Tensor:
        return features + self.scale * F.gelu(self.mix(features))


class TinyNetwork(nn.Module):
    """Row correlation at 1/32 and one residual field a scale; pads at the top and on the right."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 8, stride=4, padding=2)
        self.blocks = nn.ModuleList(Block(channels) for _ in range(2))
        self.heads = nn.ModuleList(nn.Conv2d(2 * channels, 1, 3, padding=1) for _ in range(4))
        self.bin = nn.Parameter(torch.zeros(()))

    def forward(self, image0: Tensor, image1: Tensor, initial: Tensor | None = None) -> Matches:
        height, width = image0.shape[-2:]
        images = torch.cat((image0, image1)) / 127.5 - 1
        images = F.pad(images, (0, -width % 32, -height % 32, 0), mode="replicate")
        features = self.stem(images)
        for block in self.blocks:
            features = block(features)
        features = features.float()
        half = image0.shape[0]
        coarse = F.avg_pool2d(features, 8)
        left, right = coarse[:half], coarse[half:]
        correlation = torch.einsum("bchi,bchj->bhij", left, right)
        size = correlation.shape[-1]
        lower = torch.ones(size, size, dtype=torch.bool, device=correlation.device).tril()
        correlation = correlation.masked_fill(~lower, float("-inf"))
        scores = F.pad(correlation, (0, 1, 0, 1))
        scores = torch.cat((scores[..., :-1], scores[..., -1:] + self.bin), -1)
        log_matching = 0.5 * (scores.log_softmax(-1) + scores.log_softmax(-2))
        sign = torch.ones(2 * half, 1, 1, device=images.device)
        sign[:half] = -1
        position = torch.zeros(2 * half, *coarse.shape[-2:], device=images.device)
        steps = []
        first = torch.stack((position, torch.zeros_like(position)), -1)
        for head, scale in zip(self.heads, (32, 16, 8, 4)):
            if scale != 32:
                position = 2 * F.interpolate(position[:, None], scale_factor=2, mode="nearest")[:, 0]
            pooled = F.avg_pool2d(features, scale // 4) if scale > 4 else features
            pair = torch.cat((pooled, pooled.roll(half, 0)), 1)
            for kind in ("self", "cross"):
                position = position + sign * head(pair)[:, 0].float()
                steps.append(Step(scale, kind, torch.stack((position, torch.zeros_like(position)), -1)))
        full = 4 * F.interpolate(position[:, None], scale_factor=4, mode="nearest")[:, 0]
        full = full[:, full.shape[1] - height :, :width]
        field = torch.stack((full, torch.zeros_like(full)), -1)
        return Matches(field, first.unsqueeze(3), tuple(steps), Initial(first, log_matching))
