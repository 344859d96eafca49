"""Blocks whose matrix products are left to the vendor's library, and all between two of them is one kernel.

For networks too wide to be fused. Every module here stands for a plain one, which compilers see instead of it.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from matchattention.layers.block import Refined
from matchattention.layers.encoder import EncoderBlock
from matchattention.layers.tokens import swap_views
from matchattention.ops import kernels
from matchattention.ops.depthwise import convglu_mix, depthwise3x3
from matchattention.runtime.kernels.between import gate_and_join, step_and_norm
from matchattention.runtime.stand_in import StandIn


class Lean(StandIn):
    """Runs where there are kernels."""

    def serves(self, tokens: Tensor) -> bool:
        return kernels.has_kernel(tokens)


def add_product(total: Tensor, tokens: Tensor, weight: Tensor) -> Tensor:
    """total + tokens @ weight^T, written over `total`."""
    total.view(-1, total.shape[-1]).addmm_(tokens.reshape(-1, tokens.shape[-1]), weight.t())
    return total


class LeanBlock(Lean):
    """A `MATBlock` whose projections are padded (`prepared.PaddedProjection`)."""

    def run(self, features: Tensor, cross: Tensor, self_position: Tensor) -> Refined:
        block = self.plain
        first, other, feed, config = block.first, block.cross, block.feedforward, block.config
        keep_y, heads, inner = config.keep_y, config.heads, config.channels // config.compression
        own = self_position.contiguous()
        _, cross, own, tokens = step_and_norm(
            features.contiguous(),
            cross.contiguous(),
            own,
            block.beta,
            first.norm.weight,
            first.norm.eps,
            first.qkv.weight.shape[1],
        )
        q, k, v = (part.unflatten(-1, (heads, -1)) for part in first.qkv(tokens).chunk(3, -1))
        attended, _ = first.attention(q, k, v, own, need_weights=False)
        features, after_self, own, tokens = step_and_norm(
            features.contiguous(),
            cross,
            own,
            block.beta,
            other.norm.weight,
            other.norm.eps,
            other.qkvg.weight.shape[1],
            first.out.padded(attended.flatten(-2)),
            2 + 2 * heads,
            keep_y,
        )
        mixed = other.qkvg(tokens)
        q = mixed[..., :inner].unflatten(-1, (heads, -1))
        k, v = (part.unflatten(-1, (heads, -1)) for part in swap_views(mixed[..., inner : 3 * inner]).chunk(2, -1))
        attended, weights = other.attention(q, k, v, after_self.unsqueeze(-2))
        joined = gate_and_join(
            attended.flatten(-2),
            mixed[..., 3 * inner :] if config.gate else None,
            None if weights is None else weights.flatten(-2),
            other.out.weight.shape[1],
        )
        features, after_cross, _, tokens = step_and_norm(
            features,
            after_self,
            own,
            block.beta,
            block.norm.weight,
            block.norm.eps,
            config.channels,
            other.out.padded(joined),
            2,
            keep_y,
            feed.contract.bias,
        )
        hidden = convglu_mix(feed.expand(tokens), feed.depthwise.weight, feed.depthwise.bias)
        return Refined(add_product(features, hidden, feed.contract.weight), after_self, after_cross, own)


class LeanEncoderBlock(Lean):
    """An `EncoderBlock` that may write over its input."""

    def run(self, tokens: Tensor) -> Tensor:
        block: EncoderBlock = self.plain
        mixer, mlp = block.mixer, block.mlp
        hidden = depthwise3x3(F.gelu(mixer.expand(block.norm1(tokens))), mixer.depthwise.weight)
        tokens = add_product(block.scale1(tokens).contiguous(), hidden, mixer.contract.weight)
        hidden = F.gelu(mlp.expand(block.norm2(tokens)))
        return add_product(block.scale2(tokens), hidden, mlp.contract.weight)
