"""MatchAttention in plain PyTorch: the definition every other backend is measured against.

Keys are gathered by index, never by grid_sample, so that the operator exports; rows are worked on in chunks,
so that the (w+1)^2-fold gathered keys never exceed a fixed size, whatever the image's.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from matchattention.ops.match_attention.positions import Windows, windows

# Gathered keys of one chunk, in elements: 256 MB in fp32.
CHUNK_ELEMENTS = 64 * 1024 * 1024

# A finite "minus infinity": a sub-window without any key yields uniform weights times a zero share, not NaN.
MASKED = -1e30
# Of a head, at most: rows this short are summed channel by channel, each over the whole map at once.
FEW_CHANNELS = 8


def match_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative_position: Tensor,
    window: tuple[int, int],
    similarity: str,
    need_weights: bool = True,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> tuple[Tensor, Tensor | None]:
    """See :func:`matchattention.ops.match_attention`."""
    batch, height, width, heads, channels = q.shape
    per_row = batch * width * heads * window[0] * window[1] * max(channels, v.shape[-1])
    rows = max(1, min(height, chunk_elements // max(per_row, 1)))
    outputs, weights = [], []
    for first in range(0, height, rows):
        part = slice(first, min(first + rows, height))
        out, abar = _rows(q[:, part], k, v, relative_position[:, part], window, similarity, first)
        outputs.append(out)
        if need_weights:
            weights.append(abar)
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)
    if not need_weights:
        return joined, None
    return joined, weights[0] if len(weights) == 1 else torch.cat(weights, 1)


def _rows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative_position: Tensor,
    window: tuple[int, int],
    similarity: str,
    first_row: int,
) -> tuple[Tensor, Tensor]:
    """The operator for some rows of queries against the whole map of keys."""
    size = (k.shape[1], k.shape[2])
    placed = windows(relative_position, window, first_row, size[0])
    index, inside = _key_index(placed, window, size)  # (B, h, W, heads or 1, rows*columns)
    total = torch.promote_types(q.dtype, torch.float32)
    keys = _gather(k, index).to(total)  # (B, h, W, heads, rows*columns, c)
    scores = _similarity(q.to(total), keys, similarity)
    if inside is not None:
        scores = scores.masked_fill(~inside, MASKED)
    abar = contiguous_attention_sampling(scores, placed, window)
    values = _gather(v, index).to(total)
    return _weighted_sum(abar, values).to(v.dtype), abar


def _key_index(placed: Windows, window: tuple[int, int], size: tuple[int, int]) -> tuple[Tensor, Tensor | None]:
    """Flat index y * W + x of each key in the window, and which keys exist (None: all)."""
    height, width = size
    device = placed.column.device
    x = placed.column.unsqueeze(-1) + torch.arange(window[1], device=device)  # (B, h, W, heads, columns)
    y = placed.row.unsqueeze(-1) + torch.arange(window[0], device=device)  # (B, h, W, heads, rows)
    inside = None
    if width < window[1] or (window[0] > 1 and height < window[0]):
        inside = ((y < height).unsqueeze(-1) & (x < width).unsqueeze(-2)).flatten(-2)
        x, y = x.clamp(max=width - 1), y.clamp(max=height - 1)
    return (y.unsqueeze(-1) * width + x.unsqueeze(-2)).flatten(-2), inside


def _gather(features: Tensor, index: Tensor) -> Tensor:
    """Rows of ``features`` (B, H, W, heads, c) at ``index`` (B, h, W, heads or 1, n): (B, h, W, heads, n, c)."""
    batch, height, width, heads, channels = features.shape
    image = torch.arange(batch, device=index.device).view(batch, 1, 1, 1, 1) * (height * width)
    if index.shape[3] == 1 and heads > 1:  # one position for all heads: gather whole pixels
        flat = (image + index).squeeze(3)
        pixels = features.reshape(batch * height * width, heads * channels)
        found = pixels.index_select(0, flat.reshape(-1)).view(*flat.shape, heads, channels)
        return found.transpose(3, 4)
    head = torch.arange(heads, device=index.device).view(1, 1, 1, heads, 1)
    flat = (image + index) * heads + head
    found = features.reshape(-1, channels).index_select(0, flat.reshape(-1))
    return found.view(*flat.shape, channels)


def _similarity(q: Tensor, keys: Tensor, kind: str) -> Tensor:
    """(B, h, W, heads, n) from q (B, h, W, heads, c) and keys (B, h, W, heads, n, c)."""
    gamma = q.shape[-1] ** -0.5
    if kind == "l1" and q.shape[-1] <= FEW_CHANNELS:
        distance = (q[..., :1] - keys[..., 0]).abs()
        for channel in range(1, q.shape[-1]):
            distance = distance + (q[..., channel, None] - keys[..., channel]).abs()
        return distance * -gamma
    if kind == "l1":
        return (q.unsqueeze(-2) - keys).abs().sum(-1) * -gamma
    return torch.einsum("bhwgc,bhwgnc->bhwgn", q, keys) * gamma


def _weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """(B, h, W, heads, c) from weights (B, h, W, heads, n) and values (B, h, W, heads, n, c).

    Key by key: as products of matrices, a thousand tiny ones would be set up for each line of the map.
    """
    total = weights[..., :1] * values[..., 0, :]
    for key in range(1, weights.shape[-1]):
        total = torch.addcmul(total, weights[..., key, None], values[..., key, :])
    return total


def contiguous_attention_sampling(scores: Tensor, placed: Windows, window: tuple[int, int]) -> Tensor:
    """CAS: a softmax in each sub-window, weighted bilinearly, added back on the expanded window.

    Args:
        scores: (B, h, W, heads, rows*columns).
        placed: the windows' fractions.
        window: rows x columns.

    Returns:
        Weights of the same shape that sum to one.
    """
    # The window leads, so that every operation runs over long rows: softmax over 3 neighbouring numbers is slow.
    grid = scores.movedim(-1, 0).contiguous().unflatten(0, window)  # (rows, columns, B, h, W, heads)
    return sample_windows(grid, placed.right, placed.below).flatten(0, 1).movedim(0, -1).contiguous()


def sample_windows(grid: Tensor, right: Tensor, below: Tensor | None) -> Tensor:
    """`contiguous_attention_sampling` of scores (rows, columns, …) with the window in front.

    Args:
        grid: the scores.
        right: (…) share of the right sub-windows.
        below: (…) share of the lower ones; None in 1D.
    """
    rows, columns = grid.shape[:2]
    shares = [(0, 1 - right), (1, right)]
    if below is None:
        corners = [(0, x, share) for x, share in shares]
    else:
        corners = [(0, x, share * (1 - below)) for x, share in shares]
        corners += [(1, x, share * below) for x, share in shares]
    height = rows if below is None else rows - 1
    spread = []
    for y, x, share in corners:
        part = grid[y : y + height, x : x + columns - 1]
        above = (part - part.detach().amax((0, 1))).exp()
        soft = above * (share / above.sum((0, 1)))
        margin = (x, 1 - x) if below is None else (x, 1 - x, y, 1 - y)
        spread.append(torch.nn.functional.pad(soft, (0,) * (2 * grid.dim() - 4) + margin))
    return functools.reduce(torch.add, spread)
