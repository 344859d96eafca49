"""MatchAttention on a CPU, without gradients: long rows of numbers instead of a few channels at a time.

A band of rows is worked on at once, small enough for a core's cache. The keys of a window's row lie side by side in
memory, so that one copy fetches them with their values; turned round, with the queries innermost, everything else is
arithmetic on long rows.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from matchattention.ops.match_attention.positions import Windows, windows
from matchattention.ops.match_attention.reference import sample_windows

NUMBERS_AT_ONCE = 1 << 18  # gathered keys and values of a band: 1 MB in fp32


def why_not(
    q: Tensor, k: Tensor, v: Tensor, relative_position: Tensor, window: tuple[int, int], similarity: str
) -> str | None:
    """A sentence that says why this call cannot run here, or None when it can."""
    if q.device.type != "cpu" or isinstance(q, FakeTensor):
        return "The planes backend is for tensors on a CPU."
    if torch.compiler.is_compiling():
        return "The planes backend cannot be traced: use the reference."
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v, relative_position)):
        return "The planes backend has no gradients: use the reference."
    if q.shape[2] < window[1] or (window[0] > 1 and q.shape[1] < window[0]):
        return "The planes backend needs a map that is at least as large as the window."
    return None


def match_attention_planes(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative_position: Tensor,
    window: tuple[int, int],
    similarity: str,
    need_weights: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """See :func:`matchattention.ops.match_attention`."""
    batch, height, width, heads, channels = q.shape
    total = torch.promote_types(q.dtype, torch.float32)
    keys = window[0] * window[1]
    maps = relative_position.shape[3]  # heads that look at places of their own have a map each
    both = k.new_empty(maps, batch, height, width, heads // maps, channels + v.shape[-1], dtype=total)
    both[..., :channels] = k.movedim(3, 0).unsqueeze(4) if maps > 1 else k
    both[..., channels:] = v.movedim(3, 0).unsqueeze(4) if maps > 1 else v
    rows = max(1, NUMBERS_AT_ONCE // max(batch * width * heads * keys * both.shape[-1], 1))
    out = v.new_empty(v.shape)
    weights = both.new_empty(*q.shape[:4], keys) if need_weights else None
    for top in range(0, height, rows):
        band = slice(top, min(top + rows, height))
        placed = windows(relative_position[:, band], window, top, height)
        near = _fetch(both, placed, window)  # (rows, columns, c + c_v, heads, N)
        queries = q[:, band].flatten(3).to(total).flatten(0, 2).t().contiguous()
        queries = queries.view(heads, channels, -1).transpose(0, 1)
        sampled = sample_windows(_scores(queries, near[:, :, :channels], similarity), *_shares(placed))
        sampled = sampled.flatten(0, 1)  # (rows * columns, heads, N)
        found = _weighted_sum(sampled, near[:, :, channels:], window)
        out[:, band] = found.unflatten(-1, (batch, -1, width)).permute(2, 3, 4, 1, 0)
        if weights is not None:
            weights[:, band] = sampled.unflatten(-1, (batch, -1, width)).permute(2, 3, 4, 1, 0)
    return out, weights


def _fetch(both: Tensor, placed: Windows, window: tuple[int, int]) -> Tensor:
    """Keys and values (rows, columns, c + c_v, heads, N) of N queries.

    Args:
        both: (maps, B, H, W, heads of a map, c + c_v), contiguous: one map for all heads or one for each.
        placed: windows of a band; (B, h, W, maps).
        window: rows x columns.
    """
    maps, batch, height, width, heads, channels = both.shape
    rows, columns = window
    image = torch.arange(batch).view(batch, 1, 1) + torch.arange(maps).view(maps, 1, 1, 1) * batch
    first = (placed.row * width + placed.column).movedim(3, 0) + image * (height * width)  # (maps, B, h, W)
    first = first + torch.arange(rows).view(rows, 1, 1, 1, 1) * width
    pixel = heads * channels
    # Every run of `columns` pixels as a row of its own, without moving memory.
    runs = both.as_strided((maps * batch * height * width - columns + 1, columns * pixel), (pixel, 1))
    planes = runs.index_select(0, first.reshape(-1)).t().contiguous()
    planes = planes.view(columns, heads, channels, rows, maps, -1)
    return planes.permute(3, 0, 2, 4, 1, 5).flatten(3, 4)


def _shares(placed: Windows) -> tuple[Tensor, Tensor | None]:
    """The windows' fractions, (maps, N) each."""
    right, below = placed.right.movedim(3, 0).flatten(1), placed.below
    return right, None if below is None else below.movedim(3, 0).flatten(1)


def _scores(queries: Tensor, keys: Tensor, similarity: str) -> Tensor:
    """(rows, columns, heads, N) from queries (c, heads, N) and keys (rows, columns, c, heads, N)."""
    gamma = queries.shape[0] ** -0.5
    if similarity == "l1":
        return (queries - keys).abs_().sum(2).mul_(-gamma)
    return (queries * keys).sum(2).mul_(gamma)


def _weighted_sum(weights: Tensor, values: Tensor, window: tuple[int, int]) -> Tensor:
    """(c_v, heads, N) from weights (rows * columns, heads, N) and values (rows, columns, c_v, heads, N)."""
    total = weights[0] * values[0, 0]
    for key in range(1, weights.shape[0]):
        total.addcmul_(weights[key], values[divmod(key, window[1])])
    return total
