"""The two feed-forward layers: ConvGLU in the decoder, a plain MLP in the encoder."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.ops.depthwise import convglu_mix


class ConvGLU(nn.Module):
    """Gated linear unit whose gate sees its 3x3 neighbourhood.

    The depthwise convolution doubles as a positional encoding: nothing else tells a token where it is.
    """

    def __init__(self, channels: int, ratio: int = 2) -> None:
        super().__init__()
        hidden = channels * ratio
        self.expand = nn.Linear(channels, 2 * hidden)  # [gate | value]
        self.depthwise = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.contract = nn.Linear(hidden, channels)

    def forward(self, tokens: Tensor) -> Tensor:
        mixed = convglu_mix(self.expand(tokens), self.depthwise.weight, self.depthwise.bias)
        return self.contract(mixed)


class MLP(nn.Module):
    """Two linear layers without biases."""

    def __init__(self, channels: int, ratio: int = 2) -> None:
        super().__init__()
        self.expand = nn.Linear(channels, channels * ratio, bias=False)
        self.contract = nn.Linear(channels * ratio, channels, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.contract(F.gelu(self.expand(tokens)))
