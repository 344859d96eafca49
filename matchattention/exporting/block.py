"""A MATBlock with few nodes: one residual state for features and positions, weights folded beforehand."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.errors import InputError
from matchattention.exporting.windows import Map
from matchattention.layers.block import BlockConfig, CrossMatchAttention, MATBlock, SelfMatchAttention
from matchattention.layers.families import MatchAttention
from matchattention.layers.tokens import LayerNorm, as_image, as_tokens

# The state of a scale is (2B, H, W, d + 2 + 2 heads) fp32: features, cross position, self positions (x, y) a head.


class Norm(nn.Module):
    """LayerNorm in fp32 of some channels of the state, each with a scale of its own, given in the features' format."""

    def __init__(self, plain: LayerNorm, dtype: torch.dtype, scale: Tensor | None = None) -> None:
        super().__init__()
        self.eps, self.dtype = plain.eps, dtype
        self.weight = _fixed(plain.weight)
        self.scale = None if scale is None else _fixed(scale)

    def forward(self, tokens: Tensor) -> Tensor:
        if self.scale is not None:
            tokens = tokens * self.scale
        return F.layer_norm(tokens, self.weight.shape, self.weight, None, self.eps).to(self.dtype)


class Product(nn.Module):
    """A linear layer in the features' format."""

    def __init__(self, weight: Tensor, dtype: torch.dtype, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight = _fixed(weight.t().contiguous(), dtype)
        self.bias = None if bias is None else _fixed(bias, dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        product = tokens @ self.weight
        return product if self.bias is None else product + self.bias


class SelfAttention(nn.Module):
    """`SelfMatchAttention` on the state."""

    def __init__(self, plain: SelfMatchAttention, beta: Tensor, keep_y: bool, dtype: torch.dtype) -> None:
        super().__init__()
        config = self.config = plain.config
        sees = config.self_sees_cross
        scale = torch.ones(plain.norm.weight.shape[0])
        if sees:
            scale[config.channels : config.channels + 2] = beta
        self.norm = Norm(plain.norm, dtype, scale if sees else None)
        q, k, v = _scaled(plain.qkv.weight.chunk(3), config)
        heads = [part.unflatten(0, (config.heads, -1)) for part in (q, k, v)]
        self.qkv = Product(torch.cat(heads, 1).flatten(0, 1), dtype)  # a head's q, k and v side by side
        features, step = plain.out.weight.split((config.channels, plain.position_channels))
        cross = _cross_rows(step[:2], beta, keep_y) if sees else torch.zeros(2, step.shape[1])
        self.out = Product(torch.cat((features, cross, step[2:] if sees else step)), dtype)

    def forward(self, state: Tensor, place: Map) -> Tensor:
        config, d = self.config, self.config.channels
        normed = self.norm(state if config.self_sees_cross else torch.cat((state[..., :d], state[..., d + 2 :]), -1))
        if config.self_mask:
            normed = torch.cat((normed, agreement(state[..., d : d + 2], place).to(normed.dtype)), -1)
        inner = d // config.compression // config.heads
        mixed = self.qkv(normed).unflatten(-1, (config.heads, 3 * inner))
        q, kv = mixed.split((inner, 2 * inner), -1)
        placed = place.place(state, d + 2, config.heads, own=True)
        found = F.embedding(placed.keys, kv.reshape(-1, 2 * inner)).float()  # (2B, H, W, heads, keys, 2 inner)
        k, v = found.split(inner, -1)
        costs = cost(q.float().unsqueeze(-2), k, config.similarity)
        weights = place.sample(costs, placed.shares)  # (2B, H, W, heads, keys)
        attended = (weights.unsqueeze(-1) * v).sum(-2).flatten(-2)
        return state + self.out(attended.to(normed.dtype)).float()


class CrossAttention(nn.Module):
    """`CrossMatchAttention` on the state."""

    def __init__(self, plain: CrossMatchAttention, beta: Tensor, keep_y: bool, dtype: torch.dtype) -> None:
        super().__init__()
        config = self.config = plain.config
        inner = config.channels // config.compression
        self.norm = Norm(plain.norm, dtype, torch.cat((torch.ones(config.channels), beta)))
        q, k, v, *gate = _scaled(plain.qkvg.weight.split(inner), config)
        kv = torch.cat([part.unflatten(0, (config.heads, -1)) for part in (k, v)], 1).flatten(0, 1)
        self.qkvg = Product(torch.cat((q, kv, *gate)), dtype)
        features, step = plain.out.weight.split((config.channels, 2))
        nothing = torch.zeros(2 * config.heads, features.shape[1])  # self positions stay
        self.out = Product(torch.cat((features, _cross_rows(step, beta, keep_y), nothing)), dtype)

    def forward(self, state: Tensor, place: Map) -> Tensor:
        config, d = self.config, self.config.channels
        inner = d // config.compression
        normed = self.norm(state[..., : d + 2])
        q, kv, *gate = self.qkvg(normed).split((inner, 2 * inner, *([inner] if config.gate else [])), -1)
        placed = place.place(state, d, 1, own=False)
        found = F.embedding(placed.keys, kv.reshape(-1, 2 * inner)).float()  # (2B, H, W, keys, 2 inner)
        k, v = found.unflatten(-1, (config.heads, -1)).chunk(2, -1)  # (2B, H, W, keys, heads, c)
        q = q.float().unflatten(-1, (1, config.heads, -1))
        costs = cost(q, k, config.similarity).transpose(-1, -2)
        weights = place.sample(costs, placed.shares)  # (2B, H, W, heads, keys)
        attended = (weights.transpose(-1, -2).unsqueeze(-1) * v).sum(-3).flatten(-2)
        if gate:
            attended = attended * F.silu(gate[0]).float()
        joined = torch.cat((attended, weights.flatten(-2)), -1).to(normed.dtype)
        return state + self.out(joined).float()


class FeedForward(nn.Module):
    """The normed `ConvGLU` on the state's features."""

    def __init__(self, block: MATBlock, dtype: torch.dtype) -> None:
        super().__init__()
        plain = block.feedforward
        self.channels = block.config.channels
        self.norm = Norm(block.norm, dtype)
        self.expand = Product(plain.expand.weight, dtype, plain.expand.bias)
        self.depthwise = plain.depthwise.to(dtype)
        positions = (0, 2 + 2 * block.config.heads)  # stay
        self.contract = Product(
            F.pad(plain.contract.weight, (0, 0, *positions)), dtype, F.pad(plain.contract.bias, positions)
        )

    def forward(self, state: Tensor) -> Tensor:
        gate, value = self.expand(self.norm(state[..., : self.channels])).chunk(2, -1)
        gate = as_tokens(F.gelu(self.depthwise(as_image(gate))))
        return state + self.contract(gate * value).float()


class Block(nn.Module):
    """`MATBlock` on the state (2B, H, W, d + 2 + 2 heads)."""

    def __init__(self, plain: MATBlock, dtype: torch.dtype) -> None:
        super().__init__()
        if type(plain.cross.attention) is not MatchAttention:
            raise InputError(f"Networks with '{plain.config.attention}' attention cannot be exported, only 'match'.")
        beta, keep_y = plain.beta.float(), plain.config.keep_y
        if isinstance(plain.first, SelfMatchAttention):
            self.first: nn.Module = SelfAttention(plain.first, beta, keep_y, dtype)
        else:
            self.first = CrossAttention(plain.first, beta, keep_y, dtype)
        self.cross = CrossAttention(plain.cross, beta, keep_y, dtype)
        self.feedforward = FeedForward(plain, dtype)

    def forward(self, state: Tensor, place: Map) -> Tensor:
        return self.feedforward(self.cross(self.first(state, place), place))


def cost(q: Tensor, k: Tensor, kind: str) -> Tensor:
    """Minus the similarity, over the last axis; its scale c^(-1/2) is in the weights already."""
    return (q - k).abs().sum(-1) if kind == "l1" else -(q * k).sum(-1)


def agreement(cross: Tensor, place: Map) -> Tensor:
    """(2B, H, W, 1) bool: the match points back within two tokens; see `layers.consistency`."""
    corner = torch.arange(4)
    x = place.x + cross[..., :1]
    y = place.y + cross[..., 1:]
    column, row = x.floor(), y.floor()
    columns, rows = column + corner % 2, row + corner // 2  # (2B, H, W, 4)
    shares = (1 - (x - columns).abs()) * (1 - (y - rows).abs())
    zero = torch.zeros(())
    inside_x = torch.minimum(torch.maximum(columns, zero), place.last_x)
    inside_y = torch.minimum(torch.maximum(rows, zero), place.last_y)
    shares = shares * ((columns == inside_x) & (rows == inside_y))
    index = (inside_y * place.width + inside_x).long() + place.partner
    there = (F.embedding(index, cross.reshape(-1, 2)) * shares.unsqueeze(-1)).sum(-2)
    return (cross + there).abs().sum(-1, keepdim=True) < 2


def _scaled(parts: tuple[Tensor, ...], config: BlockConfig) -> list[Tensor]:
    """q, k and the rest of a projection's rows; q and k carry the similarity's scale."""
    gamma = (config.channels // config.compression // config.heads) ** -0.5
    q, k, *rest = parts
    return [q * gamma, k * gamma if config.similarity == "l1" else k, *rest]


def _cross_rows(rows: Tensor, beta: Tensor, keep_y: bool) -> Tensor:
    """Rows that update the cross position, divided by beta; stereo's y row is zero, which keeps y where it starts."""
    rows = rows / beta.unsqueeze(-1)
    return rows if keep_y else rows * torch.tensor([[1.0], [0.0]])


def _fixed(weight: Tensor, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(weight.detach().to(dtype).clone(), requires_grad=False)
