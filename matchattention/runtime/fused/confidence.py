"""A confidence head with all but its convolutions in two kernels."""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.confidence_head import (
    COARSEST,
    FARTHEST,
    FINEST,
    QUANTILE_STEPS,
    SCALE,
    ConfidenceHead,
    Evidence,
)
from matchattention.runtime.kernels.confidence import decide_kernel, token_cues_kernel
from matchattention.runtime.kernels.rows import padded
from matchattention.runtime.packing import PackedConvolution

TOKENS = 32  # of a program: with more, its pixels leave no register free
EIGHT = 8  # channels that the convolutions' kernels read at a time


class FusedHead(nn.Module):
    """A `ConfidenceHead` and what is asked of its mixture, on a GPU.

    Args:
        head: with its weights in fp32.
        dtype: of its convolutions; PyTorch's own for fp32 round as fp16's do, to ten bits.
    """

    def __init__(self, head: ConfidenceHead, dtype: torch.dtype = torch.float16) -> None:
        super().__init__()
        self.mean, self.deviation = nn.Buffer(head.mean.clone()), nn.Buffer(head.deviation.clone())
        enter = copy.deepcopy(head.enter)
        enter.weight.data = F.pad(enter.weight.data, (0, 0, 0, 0, 0, -enter.in_channels % EIGHT))
        self.enter, self.near, self.far = (
            PackedConvolution(layer, dtype, relu=True) for layer in (enter, head.near, head.far)
        )
        self.hand = nn.Buffer(head.hand_down.weight.detach().flatten(1).clone())
        self.hand_bias = nn.Buffer(_bias(head.hand_down))
        self.mix = nn.Buffer(torch.cat((head.mix.weight.detach().flatten(1), _bias(head.mix)[:, None]), 1))
        self.decide = nn.Buffer(torch.cat((head.decide.weight.detach().flatten(1).t(), _bias(head.decide)[None])))

    def forward(self, evidence: Evidence, distance: float, probability: float) -> tuple[Tensor, Tensor]:
        """Probability of being within `distance` px, and px that the error stays within with `probability`."""
        features, before, after, field, agreement = (part.contiguous() for part in evidence)
        images, down, across, channels = features.shape
        tokens = images * down * across
        grid = (-(-tokens // TOKENS),)
        sizes = (*field.shape[1:3], down, across, tokens)
        cues = self.enter.weight.new_empty(images, down, across, self.enter.weight.shape[1])
        token_cues_kernel[grid](
            features,
            before,
            after,
            field,
            agreement,
            self.mean,
            self.deviation,
            cues,
            *sizes,
            C=channels,
            CB=padded(channels),
            OUT=cues.shape[-1],
            SCALE=SCALE,
            FARTHEST=FARTHEST,
            T=TOKENS,
            num_warps=4,
        )
        hidden = self.enter(cues)
        hidden = hidden + self.near(hidden)
        hidden = hidden + self.far(hidden)
        confidence, error = torch.empty_like(agreement), torch.empty_like(agreement)
        decide_kernel[grid](
            hidden,
            after,
            field,
            agreement,
            self.hand,
            self.hand_bias,
            self.mix,
            self.decide,
            confidence,
            error,
            *sizes,
            distance,
            1 - probability,
            math.log(1 - probability),
            FINEST,
            COARSEST,
            WIDTH=hidden.shape[-1],
            WB=padded(hidden.shape[-1]),
            PIXEL=self.hand.shape[0] // SCALE**2,
            MIX=self.mix.shape[0],
            STEPS=QUANTILE_STEPS,
            SCALE=SCALE,
            FARTHEST=FARTHEST,
            T=TOKENS,
            num_warps=4,
        )
        return confidence, error


def _bias(layer: nn.Conv2d) -> Tensor:
    assert layer.bias is not None
    return layer.bias.detach().clone()
