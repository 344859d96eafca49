"""Optimal transport with a dustbin: which token matches which, and which matches none."""

from __future__ import annotations

import torch
from torch import Tensor

# Finite, so that a fully masked row keeps finite gradients; far below any score in fp32.
FORBIDDEN = -1e4


def log_transport(scores: Tensor, bin_score: Tensor, iterations: int) -> Tensor:
    """Sinkhorn in the log domain.

    Every token carries mass one, each bin as much as all tokens of the other side together, so that a token
    may go unmatched: a row or column of the result sums to one with its bin.

    Args:
        scores: (..., n, m) similarities, FORBIDDEN where a match is impossible.
        bin_score: scalar, the similarity of every token to the bin.
        iterations: alternations of columns and rows; the last one normalises the rows.

    Returns:
        (..., n + 1, m + 1) log of the transport matrix; the last row and column are the bins.
    """
    n, m = scores.shape[-2:]
    right = bin_score.expand(*scores.shape[:-1], 1)
    below = bin_score.expand(*scores.shape[:-2], 1, m + 1)
    full = torch.cat((torch.cat((scores, right), -1), below), -2)
    nothing = full.new_zeros(n), full.new_zeros(m)
    # log n and log m as tensors: Python's logarithm would fix an exported network to one size.
    log_rows = torch.cat((nothing[0], torch.logsumexp(nothing[1], 0, keepdim=True)))
    log_columns = torch.cat((nothing[1], torch.logsumexp(nothing[0], 0, keepdim=True)))
    u = torch.zeros_like(full[..., 0])
    v = torch.zeros_like(full[..., 0, :])
    for _ in range(iterations):
        v = log_columns - torch.logsumexp(full + u.unsqueeze(-1), -2)
        u = log_rows - torch.logsumexp(full + v.unsqueeze(-2), -1)
    return full + u.unsqueeze(-1) + v.unsqueeze(-2)
