"""The initial cross position at 1/32: correlate, match, and read one position out of each distribution."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.global_attention import GlobalAttentionLayer
from matchattention.layers.tokens import LayerNorm, pixel_grid, positions_dtype, split_views
from matchattention.layers.transport import FORBIDDEN, log_transport

WINDOW = 5  # of the local estimator
# Share of entries below uniform: they are dropped, unless nothing else is left in the window.
FAINT = 1e-6


class Initial(NamedTuple):
    """The estimate the decoder starts from.

    Attributes:
        position: (2B, h, w, 2) fp32, tokens of 1/32.
        log_matching: log of the matching; stereo (B, h, w+1, w+1), flow (B, hw+1, hw+1), rows of view 0,
            columns of view 1, the last ones being the bin. None when the position was given from outside
            or the estimator has no transport.
    """

    position: Tensor
    log_matching: Tensor | None


class Correlation(nn.Module):
    """Normed linear projections of both views, multiplied in fp32: along the row, or all pairs."""

    def __init__(self, channels: int, along_row: bool) -> None:
        super().__init__()
        self.along_row = along_row
        self.norm = LayerNorm(channels)
        self.q = nn.Linear(channels, channels, bias=False)
        self.k = nn.Linear(channels, channels, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, h, w, w) for stereo or (B, hw, hw) for flow: view 0 in rows, view 1 in columns."""
        normed = self.norm(tokens)
        first, second = split_views(normed)
        q, k = self.q(first), self.k(second)
        with torch.autocast(q.device.type, enabled=False):
            q, k = q.to(positions_dtype(q)), k.to(positions_dtype(k))
            if not self.along_row:
                q, k = q.flatten(1, 2), k.flatten(1, 2)
            return q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5


class TransportEstimate(nn.Module):
    """The paper's: global attention, correlation, Sinkhorn, local-window estimator."""

    def __init__(self, channels: int, heads: int, compression: int, stereo: bool, layers: int, iterations: int) -> None:
        super().__init__()
        self.stereo = stereo
        self.iterations = iterations
        self.layers = nn.ModuleList(GlobalAttentionLayer(channels, heads, compression) for _ in range(layers))
        self.correlation = Correlation(channels, along_row=stereo)
        self.bin_score = nn.Parameter(torch.zeros(()))

    def aggregate(self, tokens: Tensor) -> Tensor:
        """Context from both views; the decoder continues with these tokens."""
        for layer in self.layers:
            tokens = layer(tokens)
        return tokens

    def forward(self, tokens: Tensor) -> Initial:
        scores = self.correlation(tokens)
        with torch.autocast(scores.device.type, enabled=False):
            if self.stereo:
                scores = scores.masked_fill(~causal(scores.shape[-1], scores.device), FORBIDDEN)
            log_matching = log_transport(scores, self.bin_score.to(scores.dtype), self.iterations)
            matching = log_matching[..., :-1, :-1].exp()
            both = torch.cat((matching, matching.transpose(-1, -2)))
            # What is not in the bin tells where the match would be: out-of-view tokens get a sane value too.
            both = both / both.sum(-1, keepdim=True).clamp(min=1e-12)
            if self.stereo:
                position = expected_column(both)
            else:
                position = expected_pixel(both, tokens.shape[1], tokens.shape[2])
        return Initial(position, log_matching)


def causal(width: int, device: torch.device) -> Tensor:
    """(w, w) bool: a left column x can match right columns up to x, because disparity is not negative."""
    column = torch.arange(width, device=device)
    return column.view(-1, 1) >= column


def expected_column(matching: Tensor) -> Tensor:
    """Local-window estimate of rows of a matching.

    Args:
        matching: (B, h, w, w) distributions over the other view's columns.

    Returns:
        (B, h, w, 2) relative positions (x, 0).
    """
    width = matching.shape[-1]
    half = WINDOW // 2
    padded = F.pad(matching, (half, half))
    blurred = F.avg_pool2d(padded, (1, WINDOW), stride=1)
    best = blurred.argmax(-1, keepdim=True)  # (B, h, w, 1), also the window's first index in `padded`
    index = best + torch.arange(WINDOW, device=matching.device)
    inside = padded.gather(-1, index)
    kept = inside * ((inside >= 1 / width) + FAINT)
    column = (kept * (index - half)).sum(-1) / kept.sum(-1).clamp(min=1e-20)
    x = column - torch.arange(width, device=matching.device, dtype=column.dtype)
    return torch.stack((x, torch.zeros_like(x)), -1)


def expected_pixel(matching: Tensor, height: int, width: int) -> Tensor:
    """Local-window estimate of rows of an all-pairs matching.

    Args:
        matching: (B, hw, hw) distributions over the other view's pixels.

    Returns:
        (B, h, w, 2) relative positions (x, y).
    """
    batch = matching.shape[0]
    half = WINDOW // 2
    target = matching.unflatten(-1, (height, width))
    padded = F.pad(target, (half, half, half, half))  # (B, hw, h+4, w+4)
    blurred = F.avg_pool2d(padded, WINDOW, stride=1)
    best = blurred.flatten(-2).argmax(-1)  # (B, hw)
    offset = torch.arange(WINDOW, device=matching.device)
    row = best // width
    y = row.unsqueeze(-1) + offset  # rows in `padded`
    x = (best - row * width).unsqueeze(-1) + offset  # no remainder: the ONNX exporter has none by an open size
    index = (y.unsqueeze(-1) * (width + 2 * half) + x.unsqueeze(-2)).flatten(-2)  # (B, hw, 25)
    inside = padded.flatten(-2).gather(-1, index)
    kept = inside * ((inside >= 1 / (height * width)) + FAINT)
    kept = (kept / kept.sum(-1, keepdim=True).clamp(min=1e-20)).view(batch, -1, WINDOW, WINDOW)
    mean_x = (kept.sum(-2) * (x - half)).sum(-1)
    mean_y = (kept.sum(-1) * (y - half)).sum(-1)
    found = torch.stack((mean_x, mean_y), -1).view(batch, height, width, 2)
    return found - pixel_grid(height, width, matching.device, found.dtype)
