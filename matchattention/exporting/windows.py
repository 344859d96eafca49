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
        corners = torch.cat((corner % 2, corner // 2), -1)[:, : 1 if rows == 1 else 2].float()  # (sub-windows, axes)
        self.slope, self.start = 2 * corners - 1, 1 - corners
        if rows > 1:  # both axes at once
            self.grid = torch.cat((self.x + 0 * self.y, self.y + 0 * self.x), -1).unsqueeze(-2)  # (1, H, W, 1, 2)
            self.least = torch.tensor([radius(columns), radius(rows)], dtype=torch.float32)
            self.most = torch.cat((self.last_x, self.last_y), -1).flatten() - (self.least + EDGE)
            self.step = torch.cat((torch.ones(1), self.last_x.flatten() + 1))  # rows of the table a pixel right, down

    def place(self, state: Tensor, channel: int, heads: int, own: bool) -> Placed:
        """Windows centred at each query plus its relative position, in tokens.

        Args:
            state: (2B, H, W, channels).
            channel: where its relative positions begin, x and y in turn, a pair a head.
            heads: how many pairs; y is ignored when the window is one row.
            own: True for a window a head in the query's own view, False for one for all heads in the other view.
        """
        rows, columns = self.window
        end = channel + 2 * heads
        if rows == 1:
            rad = radius(columns)
            centre = self.x + state[..., channel:end:2]
            centre = torch.minimum(centre, self.last_x - (rad + EDGE)).clamp(min=rad)
            first = centre.floor()  # (2B, H, W, heads)
            shares = (centre - first).unsqueeze(-1).unsqueeze(-1) * self.slope + self.start
        else:
            positions = state[..., channel:end]
            pairs = positions.unsqueeze(-2) if heads == 1 else positions.unflatten(-1, (heads, 2))
            centre = torch.maximum(torch.minimum(self.grid + pairs, self.most), self.least)  # (2B, H, W, heads, 2)
            whole = centre.floor()
            first = (whole * self.step).sum(-1)
            shares = ((centre - whole).unsqueeze(-2) * self.slope + self.start).prod(-1, keepdim=True)
        first = first.long()
        if own:
            return Placed(first.unsqueeze(-1) * self.heads + self.own, shares)
        return Placed(first + self.other, shares)

    def sample(self, costs: Tensor, shares: Tensor) -> Tensor:
        """CAS: weights (..., keys) from costs (..., keys); a softmax in each sub-window, weighted and added."""
        parts = (self.mask - costs.unsqueeze(-2)).softmax(-1)  # (..., sub-windows, keys)
        return (parts * shares).sum(-2)


def _part(extent: int, first: int) -> Tensor:
    """(extent,) bool: the keys of the sub-window that starts at ``first``."""
    key = torch.arange(extent)
    return (key >= first) & (key < first + extent - 1)
