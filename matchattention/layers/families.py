"""Attention families: MatchAttention, and the ones the paper's ablation puts in its place.

Every family is called as ``family(q, k, v, relative_position)`` with q, k (B, H, W, heads, c) and
returns the attended values (B, H, W, heads, c_v) and, for MatchAttention only, the weights.
The others ignore the relative position: they have no explicit matching constraint, which is the point.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.ops.match_attention import match_attention


class MatchAttention(nn.Module):
    """The paper's: a small window centred at query + relative position."""

    def __init__(self, window: tuple[int, int], similarity: str = "l1") -> None:
        super().__init__()
        self.window = window
        self.similarity = similarity
        self.backend = "auto"
        self.weights_per_head = window[0] * window[1]

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, relative_position: Tensor, need_weights: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        return match_attention(q, k, v, relative_position, self.window, self.similarity, self.backend, need_weights)


class LocalAttention(MatchAttention):
    """The window pinned to the query: MatchAttention with a relative position of zero."""

    def __init__(self, window: tuple[int, int], similarity: str = "l1") -> None:
        super().__init__(window, similarity)
        self.weights_per_head = 0

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, relative_position: Tensor, need_weights: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        still = torch.zeros_like(relative_position)
        return super().forward(q, k, v, still, need_weights=False)


class NeighborhoodAttention(nn.Module):
    """NAT: the nearest ``extent`` keys of each query, shifted inwards at the borders."""

    weights_per_head = 0

    def __init__(self, extent: tuple[int, int] = (7, 7)) -> None:
        super().__init__()
        self.extent = extent

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, relative_position: Tensor, need_weights: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        keys, values = self._neighbours(k), self._neighbours(v)  # (B, H, W, heads, n, c)
        scores = torch.einsum("bhwgc,bhwgnc->bhwgn", q, keys) * q.shape[-1] ** -0.5
        return torch.einsum("bhwgn,bhwgnc->bhwgc", scores.float().softmax(-1).to(v.dtype), values), None

    def _neighbours(self, tokens: Tensor) -> Tensor:
        _, height, width, _, _ = tokens.shape
        rows = self._nearest(height, self.extent[0], tokens.device)  # (H, n_y)
        columns = self._nearest(width, self.extent[1], tokens.device)  # (W, n_x)
        found = tokens[:, rows][:, :, :, columns]  # (B, H, n_y, W, n_x, heads, c)
        return found.permute(0, 1, 3, 5, 2, 4, 6).flatten(4, 5)

    @staticmethod
    def _nearest(size: int, extent: int, device: torch.device) -> Tensor:
        extent = min(extent, size)
        first = (torch.arange(size, device=device) - extent // 2).clamp(0, size - extent)
        return first.view(-1, 1) + torch.arange(extent, device=device)


class SwinAttention(nn.Module):
    """Attention inside windows that tile the map, shifted by half a window in every second block."""

    weights_per_head = 0

    def __init__(self, extent: int = 8, shifted: bool = False) -> None:
        super().__init__()
        self.extent = extent
        self.shift = extent // 2 if shifted else 0

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, relative_position: Tensor, need_weights: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        _, height, width, heads, _ = q.shape
        inside = torch.ones(1, height, width, heads, 1, dtype=torch.bool, device=q.device)
        mask = self._tiles(inside).squeeze(-1).unsqueeze(-2)  # (tiles, heads, 1, n)
        mask = mask.repeat(q.shape[0], 1, 1, 1)
        out = F.scaled_dot_product_attention(self._tiles(q), self._tiles(k), self._tiles(v), attn_mask=mask)
        return self._untile(out, q.shape[0], height, width), None

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        rows, columns = height + self.shift, width + self.shift
        return rows + -rows % self.extent, columns + -columns % self.extent

    def _tiles(self, tokens: Tensor) -> Tensor:
        """(B, H, W, heads, c) to (B * tiles, heads, extent * extent, c), padded with zeros."""
        batch, height, width, heads, channels = tokens.shape
        rows, columns = self._grid(height, width)
        after = (0, 0, 0, 0, self.shift, columns - width - self.shift, self.shift, rows - height - self.shift)
        padded = F.pad(tokens, after)
        e = self.extent
        tiles = padded.view(batch, rows // e, e, columns // e, e, heads, channels)
        return tiles.permute(0, 1, 3, 5, 2, 4, 6).reshape(-1, heads, e * e, channels)

    def _untile(self, tiles: Tensor, batch: int, height: int, width: int) -> Tensor:
        rows, columns = self._grid(height, width)
        e = self.extent
        grid = tiles.view(batch, rows // e, columns // e, tiles.shape[1], e, e, tiles.shape[-1])
        padded = grid.permute(0, 1, 4, 2, 5, 3, 6).reshape(batch, rows, columns, tiles.shape[1], tiles.shape[-1])
        return padded[:, self.shift : self.shift + height, self.shift : self.shift + width]


class GlobalRowAttention(nn.Module):
    """Global 1D attention: every key of the query's row."""

    weights_per_head = 0

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, relative_position: Tensor, need_weights: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        q, k, v = (tokens.transpose(2, 3) for tokens in (q, k, v))  # (B, H, heads, W, c)
        return F.scaled_dot_product_attention(q, k, v).transpose(2, 3), None


FAMILIES = ("match", "local", "neighborhood", "swin", "global-1d")


Family = MatchAttention | NeighborhoodAttention | SwinAttention | GlobalRowAttention


def make_family(name: str, window: tuple[int, int], similarity: str, depth: int) -> Family:
    """The attention family of one block; ``depth`` is its index in the stage (Swin alternates its shift)."""
    if name == "match":
        return MatchAttention(window, similarity)
    if name == "local":
        return LocalAttention(window, similarity)
    if name == "neighborhood":
        return NeighborhoodAttention()
    if name == "swin":
        return SwinAttention(shifted=depth % 2 == 1)
    if name == "global-1d":
        return GlobalRowAttention()
    raise ValueError(f"attention is one of {', '.join(FAMILIES)}; got '{name}'.")
