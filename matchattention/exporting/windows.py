"""MatchAttention's windows with few nodes: what depends on the map alone is made once a scale, not once a block."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from matchattention.ops.match_attention.positions import EDGE, radius

# As in the reference operator: finite, so that a sub-window without any key gives numbers.
MASKED = -1e30


class Placed(NamedTuple):
    """Windows of all queries.

    Attributes:
        keys: (2B, H, W, ..., keys) int64 rows of the flat table of keys.
        shares: (2B, H, W, heads or 1, sub-windows, 1) bilinear weight of each sub-window.
    """

    keys: Tensor
    shares: Tensor


class Map:
    """One scale: positions, limits, table rows and masks that all of its blocks share.

    Args:
        tokens: (2B, H, W, channels), both views stacked; only its shape counts.
        window: expanded window, rows x columns.
        heads: attention heads.
    """

    def __init__(self, tokens: Tensor, window: tuple[int, int], heads: int) -> None:
        views, height, width, _ = tokens.shape
        rows, columns = window
        self.window, self.heads, self.width = window, heads, width
        x, y = torch.arange(width), torch.arange(height)
        self.x = x.float().view(1, 1, width, 1)
        self.y = y.float().view(1, height, 1, 1)
        # Sums of tensors, not of Python numbers: sizes may be unknown until the file runs.
        self.last_x, self.last_y = self.x[:, :, -1:], self.y[:, -1:]
        across = torch.minimum(torch.arange(columns), x[-1:])  # a map narrower than the window ends earlier
        exists = torch.arange(columns) <= x[-1:]
        view = torch.arange(views).view(views, 1, 1, 1)
        area = height * width
        if rows == 1:
            line = (y * width).view(1, height, 1, 1)
            keys = across - radius(columns)
            subs = [_part(columns, first) for first in (0, 1)]
        else:
            line = torch.zeros(1, 1, 1, 1, dtype=torch.int64)
            down = torch.minimum(torch.arange(rows), y[-1:])
            keys = ((down - radius(rows)).view(-1, 1) * width + across - radius(columns)).flatten()
            exists = ((torch.arange(rows) <= y[-1:]).view(-1, 1) & exists).flatten()
            subs = [_part(rows, top)[:, None] & _part(columns, left)[None] for top in (0, 1) for left in (0, 1)]
        inside = torch.stack([sub.flatten() for sub in subs])  # (sub-windows, keys)
        self.mask = torch.where(inside & exists, 0.0, MASKED)
        own = view * area + line + keys  # (2B, H or 1, 1, keys)
        self.own = own.unsqueeze(-2) * heads + torch.arange(heads).view(heads, 1)  # (2B, H or 1, 1, heads, keys)
        # The other view's rows, so that no block has to swap the views themselves.
        half = views // 2
        self.partner = torch.where(view < half, view + half, view - half) * area
        self.other = self.partner + line + keys
        # Sub-window (y, x) has the share (1 - below or below) * (1 - right or right).
        corner = torch.arange(len(subs)).view(-1, 1)
        self.right = ((corner % 2) * 2 - 1).float(), (1 - corner % 2).float()
        self.below = ((corner // 2) * 2 - 1).float(), (1 - corner // 2).float()

    def place(self, x: Tensor, y: Tensor, own: bool) -> Placed:
        """Windows centred at each query plus its relative position (2B, H, W, heads or 1), in tokens.

        Args:
            x: relative position along the row.
            y: the same along the column; ignored when the window is one row.
            own: True for a window a head in the query's own view, False for one for all heads in the other view.
        """
        rows, columns = self.window
        column, right = _axis(self.x + x, self.last_x, columns)
        shares = _fraction(right, self.right)
        if rows > 1:
            row, below = _axis(self.y + y, self.last_y, rows)
            column = column + row * self.width
            shares = shares * _fraction(below, self.below)
        first = column.long()
        if own:
            return Placed(first.unsqueeze(-1) * self.heads + self.own, shares)
        return Placed(first + self.other, shares)

    def sample(self, scores: Tensor, shares: Tensor) -> Tensor:
        """CAS: weights (..., keys) from scores (..., keys); a softmax in each sub-window, weighted and added."""
        parts = (scores.unsqueeze(-2) + self.mask).softmax(-1)  # (..., sub-windows, keys)
        return (parts * shares).sum(-2)


def _part(extent: int, first: int) -> Tensor:
    """(extent,) bool: the keys of the sub-window that starts at ``first``."""
    key = torch.arange(extent)
    return (key >= first) & (key < first + extent - 1)


def _axis(centre: Tensor, last: Tensor, extent: int) -> tuple[Tensor, Tensor]:
    """Whole and fractional part of a centre held inside the map, see `ops.positions`."""
    rad = radius(extent)
    centre = torch.minimum(centre, last - (rad + EDGE)).clamp(min=rad)
    whole = centre.floor()
    return whole, centre - whole


def _fraction(share: Tensor, of_corner: tuple[Tensor, Tensor]) -> Tensor:
    """(2B, H, W, heads or 1, sub-windows, 1)."""
    slope, start = of_corner
    return share.unsqueeze(-1).unsqueeze(-1) * slope + start
