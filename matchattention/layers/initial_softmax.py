"""The initial estimate of the authors' released networks: softmax, no transport, no global attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.initial import WINDOW, Correlation, Initial, causal
from matchattention.layers.tokens import pixel_grid


class SoftmaxEstimate(nn.Module):
    """Correlation, softmax, local-window estimator."""

    def __init__(self, channels: int, stereo: bool) -> None:
        super().__init__()
        self.stereo = stereo
        self.correlation = Correlation(channels, along_row=stereo)

    def aggregate(self, tokens: Tensor) -> Tensor:
        return tokens

    def forward(self, tokens: Tensor) -> Initial:
        scores = self.correlation(tokens)
        with torch.autocast(scores.device.type, enabled=False):
            if self.stereo:
                return Initial(_stereo(scores), None)
            height, width = tokens.shape[1:3]
            both = torch.cat((scores, scores.transpose(-1, -2))).softmax(-1)
            return Initial(_flow(both, height, width), None)


def _stereo(scores: Tensor) -> Tensor:
    """Both views' positions from the row correlation (B, h, w, w)."""
    width = scores.shape[-1]
    # Zero, not minus infinity: impossible matches keep a share of the softmax, as these networks were trained.
    scores = scores.masked_fill(~causal(width, scores.device), 0)
    column = torch.arange(width, device=scores.device)
    level = column.view(1, -1)
    left = _disparity(scores, column.view(-1, 1).clamp(min=level), level)
    # The right view is the left one of the mirrored pair.
    mirrored = scores.transpose(-1, -2).flip(-1, -2)
    right = _disparity(mirrored, column.view(-1, 1).clamp(min=level), level).flip(-1)
    x = torch.cat((-left, right))
    return torch.stack((x, torch.zeros_like(x)), -1)


def _disparity(scores: Tensor, seen_from: Tensor, level: Tensor) -> Tensor:
    """Expected disparity (B, h, w) of each column.

    A column x that cannot see disparity d (x < d) takes the probability of the first one that can (x = d).

    Args:
        scores: (B, h, w, w) masked correlation.
        seen_from: (w, w) the column whose probability of each level counts: max(x, d).
        level: (1, w) disparities.
    """
    width = scores.shape[-1]
    column = torch.arange(width, device=scores.device).view(-1, 1)
    source = (column - level).clamp(min=0).expand(*scores.shape)
    volume = scores.gather(-1, source).masked_fill(column < level, 0)
    matching = volume.softmax(-1)  # (B, h, w, level)
    matching = matching.gather(-2, seen_from.expand(*matching.shape))
    half = WINDOW // 2
    blurred = F.avg_pool1d(matching.flatten(0, 1), WINDOW, stride=1, padding=half).unflatten(0, scores.shape[:2])
    best = blurred.argmax(-1, keepdim=True).clamp(half, max(half, width - 1 - half))
    index = best + torch.arange(-half, half + 1, device=scores.device)
    inside = matching.gather(-1, index.clamp(max=width - 1))
    inside = inside * ((inside >= 1 / width) & (index < width))
    return (inside * index).sum(-1) / inside.sum(-1).clamp(min=1e-20)


def _flow(matching: Tensor, height: int, width: int) -> Tensor:
    """Positions (2B, h, w, 2) from both directions' softmax (2B, hw, hw)."""
    half = WINDOW // 2
    blurred = F.avg_pool2d(matching.unsqueeze(1), WINDOW, stride=1, padding=half).squeeze(1)
    best = blurred.argmax(-1)
    row = best // width
    x0 = (best - row * width).clamp(half, max(half, width - 1 - half))  # no remainder: see `initial.expected_pixel`
    y0 = row.clamp(half, max(half, height - 1 - half))
    offset = torch.arange(-half, half + 1, device=matching.device)
    x, y = x0.unsqueeze(-1) + offset, y0.unsqueeze(-1) + offset
    # A map narrower than the window has no pixels there: they count nothing.
    exists = ((y < height).unsqueeze(-1) & (x < width).unsqueeze(-2)).flatten(-2)
    index = (y.clamp(max=height - 1).unsqueeze(-1) * width + x.clamp(max=width - 1).unsqueeze(-2)).flatten(-2)
    inside = matching.gather(-1, index)  # (2B, hw, 25)
    inside = inside * ((inside >= 1 / (height * width)) & exists)
    inside = (inside / inside.sum(-1, keepdim=True).clamp(min=1e-20)).unflatten(-1, (WINDOW, WINDOW))
    found = torch.stack(((inside.sum(-2) * x).sum(-1), (inside.sum(-1) * y).sum(-1)), -1)
    return found.unflatten(1, (height, width)) - pixel_grid(height, width, matching.device, found.dtype)
