"""Encoder, context and blocks: a residual, a gate or a GELU is part of the product in front of it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.block import MATBlock, Refined
from matchattention.layers.encoder import EncoderBlock, Stem
from matchattention.layers.feedforward import ConvGLU
from matchattention.layers.global_attention import GlobalAttentionLayer
from matchattention.layers.tokens import as_image, as_tokens, swap_views
from matchattention.ops.depthwise import depthwise3x3
from matchattention.runtime.cpu.products import Product, product_of
from matchattention.runtime.stand_in import StandIn


class OnCpu(StandIn):
    """Runs on a CPU in fp32."""

    def serves(self, tokens: Tensor) -> bool:
        return tokens.device.type == "cpu" and tokens.dtype == torch.float32


class CpuStem(OnCpu):
    """A `Stem` whose norms read long rows: PyTorch's variance over pixels goes channel by channel."""

    def run(self, image: Tensor) -> Tensor:
        stem: Stem = self.plain
        tokens = _instance_norm_gelu(as_tokens(stem.first(image)))
        return _instance_norm_gelu(as_tokens(stem.second(as_image(tokens))))


def _instance_norm_gelu(tokens: Tensor, eps: float = 1e-5) -> Tensor:
    pixels = tokens.flatten(1, 2)
    apart = pixels - pixels.mean(1, keepdim=True)
    variance = (apart * apart).mean(1, keepdim=True)
    return torch.ops.aten.gelu_(apart.mul_(torch.rsqrt(variance + eps))).view(tokens.shape)


class CpuEncoderBlock(OnCpu):
    """An `EncoderBlock`."""

    def __init__(self, plain: EncoderBlock) -> None:
        super().__init__(plain)
        mixer, mlp = plain.mixer, plain.mlp
        self.before_mixer, self.after_mixer = product_of(mixer.expand), product_of(mixer.contract)
        self.expand, self.contract = product_of(mlp.expand), product_of(mlp.contract)

    def run(self, tokens: Tensor) -> Tensor:
        block: EncoderBlock = self.plain
        hidden = depthwise3x3(self.before_mixer.gelu(block.norm1(tokens)), block.mixer.depthwise.weight)
        tokens = self.after_mixer.plus(hidden, block.scale1(tokens))
        return self.contract.plus(self.expand.gelu(block.norm2(tokens)), block.scale2(tokens))


class Gated(nn.Module):
    """A `ConvGLU` whose gate and value are two products, so that neither has to be cut out of the other."""

    def __init__(self, plain: ConvGLU) -> None:
        super().__init__()
        gate, value = plain.expand.weight.chunk(2)
        gate_bias, value_bias = plain.expand.bias.chunk(2)
        self.gate, self.value = Product(gate, gate_bias), Product(value, value_bias)
        self.depthwise, self.contract = plain.depthwise, product_of(plain.contract)

    def plus(self, tokens: Tensor, features: Tensor) -> Tensor:
        """The layer's result, added to features."""
        gate = self.gate(tokens)
        gate = torch.ops.aten.gelu_(depthwise3x3(gate, self.depthwise.weight, self.depthwise.bias))
        return self.contract.plus(self.value.times(tokens, gate), features)


class CpuContext(OnCpu):
    """A `GlobalAttentionLayer`."""

    def __init__(self, plain: GlobalAttentionLayer) -> None:
        super().__init__(plain)
        self.feedforward = Gated(plain.feedforward)

    def run(self, tokens: Tensor) -> Tensor:
        layer: GlobalAttentionLayer = self.plain
        normed = layer.norm1(tokens)
        tokens = tokens + layer.self_attention(normed, normed)
        normed = layer.norm2(tokens)
        tokens = tokens + layer.cross_attention(normed, swap_views(normed))
        return self.feedforward.plus(layer.norm3(tokens), tokens)


class CpuBlock(OnCpu):
    """A `MATBlock` whose first attention is on itself and sees the cross position."""

    def __init__(self, plain: MATBlock) -> None:
        super().__init__(plain)
        channels = plain.config.channels
        first, cross = plain.first, plain.cross
        self.qkv, self.qkvg = product_of(first.qkv), product_of(cross.qkvg)  # type: ignore[arg-type]
        self.after_self, self.self_steps = _parted(first.out, channels)
        self.after_cross, self.cross_steps = _parted(cross.out, channels)
        self.feedforward = Gated(plain.feedforward)

    def run(self, features: Tensor, cross: Tensor, self_position: Tensor) -> Refined:
        block: MATBlock = self.plain
        first, other, config = block.first, block.cross, block.config
        heads, inner, beta = config.heads, config.channels // config.compression, block.beta
        tokens = first.norm(torch.cat((features, cross * beta, self_position.flatten(-2)), -1))
        q, k, v = (part.unflatten(-1, (heads, -1)) for part in self.qkv(tokens).chunk(3, -1))
        attended, _ = first.attention(q, k, v, self_position, need_weights=False)
        attended = attended.flatten(-2)
        features = self.after_self.plus(attended, features)
        step = self.self_steps(attended)
        after_self = block.on_epipolar_line(cross + step[..., :2] / beta)
        self_position = self_position + step[..., 2:].unflatten(-1, (heads, 2))

        tokens = other.norm(torch.cat((features, after_self * beta), -1))
        mixed = self.qkvg(tokens)
        q = mixed[..., :inner].unflatten(-1, (heads, -1))
        k, v = (part.unflatten(-1, (heads, -1)) for part in swap_views(mixed[..., inner : 3 * inner]).chunk(2, -1))
        attended, weights = other.attention(q, k, v, after_self.unsqueeze(-2))
        attended = attended.flatten(-2)
        if config.gate:
            attended = attended * F.silu(mixed[..., 3 * inner :])
        if weights is not None:
            attended = torch.cat((attended, weights.flatten(-2)), -1)
        features = self.after_cross.plus(attended, features)
        after_cross = block.on_epipolar_line(after_self + self.cross_steps(attended) / beta)
        features = self.feedforward.plus(block.norm(features), features)
        return Refined(features, after_self, after_cross, self_position)


def _parted(out: nn.Linear, channels: int) -> tuple[Product, Product]:
    """An attention's output projection: what goes to the features, and to the positions."""
    return Product(out.weight[:channels]), Product(out.weight[channels:])
