"""The encoder and the initial estimate's context layers, with all that lies between two convolutions in one kernel."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.encoder import Downsampling, Encoder, EncoderBlock, ResidualScale, Stem
from matchattention.layers.global_attention import Attention, GlobalAttentionLayer
from matchattention.layers.tokens import LayerNorm, swap_views
from matchattention.runtime.fused.blocks import PackedGate
from matchattention.runtime.fused.rows import (
    PackedContraction,
    PackedMixing,
    PackedProjection,
    contract,
    norm_project,
    shift_norm_project,
)
from matchattention.runtime.kernels.rows import padded
from matchattention.runtime.kernels.stem import first_convolution_kernel, instance_norm_gelu
from matchattention.runtime.packing import PackedConvolution


class FusedStem(nn.Module):
    """Both images (B, 3, H, W), uint8 or float in [0, 255], to tokens at 1/4 of the padded pair."""

    def __init__(self, stem: Stem, dtype: torch.dtype) -> None:
        super().__init__()
        self.matrix = nn.Buffer(stem.first.weight.detach().flatten(1).to(dtype).contiguous())
        assert stem.first.bias is not None
        self.bias = nn.Buffer(stem.first.bias.detach().float().clone())
        self.second = PackedConvolution(stem.second, dtype, keeps_bias=False)  # the norm behind it takes it away

    def forward(self, image0: Tensor, image1: Tensor) -> Tensor:
        images, _, height, width = image0.shape
        top, right = -height % 32, -width % 32
        out_height, out_width = (height + top) // 2, (width + right) // 2
        out = self.matrix.new_empty((2 * images, out_height, out_width, self.matrix.shape[0]))
        tokens, tile = out[..., 0].numel(), 128
        first_convolution_kernel[(-(-tokens // tile),)](
            image0.contiguous(),
            image1.contiguous(),
            self.matrix,
            self.bias,
            out,
            images,
            height,
            width,
            top,
            out_height,
            out_width,
            tokens,
            N=self.matrix.shape[0],
            NB=padded(self.matrix.shape[0]),
            T=tile,
            num_warps=4,
        )
        return instance_norm_gelu(self.second(instance_norm_gelu(out)))


class PackedDownsampling(nn.Module):
    """A strided convolution with the weight of the LayerNorm before it; its bias is left to what follows."""

    def __init__(self, downsampling: Downsampling, dtype: torch.dtype) -> None:
        super().__init__()
        folded = copy.deepcopy(downsampling.conv).float()
        folded.weight.data *= downsampling.norm.weight.detach().float()[:, None, None]
        self.convolution = PackedConvolution(folded, dtype, keeps_bias=False)
        self.norm_eps = downsampling.norm.eps
        assert folded.bias is not None
        self.shift = nn.Buffer(folded.bias.detach().clone())

    def forward(self, normed: Tensor) -> Tensor:
        return self.convolution(normed)


class PackedEncoderBlock(nn.Module):
    """Weights of a SepConv and an MLP as the row kernels read them."""

    def __init__(self, block: EncoderBlock, dtype: torch.dtype) -> None:
        super().__init__()
        width = block.norm1.weight.shape[0]
        mixer, mlp = block.mixer, block.mlp
        self.before_mixer = PackedProjection(block.norm1, mixer.expand.weight, None, width, True, dtype)
        self.mixing = PackedMixing(mixer.depthwise)
        self.mixer = PackedContraction(mixer.contract.weight, None, _scale(block.scale1), dtype)
        self.before_mlp = PackedProjection(block.norm2, mlp.expand.weight, None, width, True, dtype)
        self.mlp = PackedContraction(mlp.contract.weight, None, _scale(block.scale2), dtype)


def _scale(module: nn.Module) -> Tensor | None:
    return module.scale if isinstance(module, ResidualScale) else None


class FusedEncoder(nn.Module):
    """Images to four maps of tokens, finest first, in three kernels a block."""

    def __init__(self, encoder: Encoder, dtype: torch.dtype) -> None:
        super().__init__()
        self.stem = FusedStem(encoder.stem, dtype)
        self.downsamplings = nn.ModuleList(PackedDownsampling(d, dtype) for d in encoder.downsamplings)  # type: ignore[arg-type]
        self.stages = nn.ModuleList(
            nn.ModuleList(PackedEncoderBlock(block, dtype) for block in stage)  # type: ignore[attr-defined]
            for stage in encoder.stages
        )

    def forward(self, image0: Tensor, image1: Tensor) -> list[Tensor]:
        downsamplings: list[Any] = [*self.downsamplings, None]
        scales: list[Tensor] = []
        tokens, shift = self.stem(image0, image1), None
        for stage, following in zip(self.stages, downsamplings):
            tokens, normed = self._stage(stage, tokens, shift, None if following is None else following.norm_eps)
            scales.append(tokens)
            if following is not None:
                tokens, shift = following(normed), following.shift
        return scales

    def _stage(self, stage: Any, tokens: Tensor, shift: Any, norm_eps: float | None) -> tuple[Tensor, Tensor | None]:
        """The stage's tokens, and their LayerNorm with this eps for the next downsampling."""
        blocks = list(stage)
        hidden: Tensor | None
        tokens, hidden = shift_norm_project(tokens, shift, blocks[0].before_mixer)
        for block, following in zip(blocks, [*blocks[1:], None]):
            assert hidden is not None
            tokens, hidden = contract(tokens, block.mixing(hidden), block.mixer, block.before_mlp)
            assert hidden is not None
            after = None if following is None else following.before_mixer
            tokens, hidden = contract(tokens, hidden, block.mlp, after, norm_eps=norm_eps, last=following is None)
        return tokens, hidden


class PackedGlobalLayer(nn.Module):
    """One context layer's weights."""

    def __init__(self, layer: GlobalAttentionLayer, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads = layer.self_attention.heads
        self.before_self = _packed_qkv(layer.norm1, layer.self_attention, dtype)
        self.self_out = PackedContraction(layer.self_attention.out.weight, None, None, dtype)
        self.before_cross = _packed_qkv(layer.norm2, layer.cross_attention, dtype)
        self.cross_out = PackedContraction(layer.cross_attention.out.weight, None, None, dtype)
        expand = layer.feedforward.expand
        width = layer.norm3.weight.shape[0]
        self.expand = PackedProjection(layer.norm3, expand.weight, expand.bias, width, False, dtype)
        self.gate = PackedGate(layer.feedforward, dtype)


def _packed_qkv(norm: LayerNorm, attention: Attention, dtype: torch.dtype) -> PackedProjection:
    weight = torch.cat((attention.q.weight, attention.kv.weight))
    return PackedProjection(norm, weight, None, norm.weight.shape[0], False, dtype)


class FusedContext(nn.Module):
    """The global-attention layers at 1/32; looks into the other view by exchanging keys, not tokens."""

    def __init__(self, layers: list[GlobalAttentionLayer], dtype: torch.dtype) -> None:
        super().__init__()
        self.layers = nn.ModuleList(PackedGlobalLayer(layer, dtype) for layer in layers)

    def forward(self, tokens: Tensor) -> Tensor:
        layers: list[Any] = list(self.layers)
        if not layers:
            return tokens
        mixed: Tensor | None = norm_project(tokens, layers[0].before_self)
        for layer, following in zip(layers, [*layers[1:], None]):
            assert mixed is not None
            attended = self._attend(mixed, layer.heads, cross=False)
            tokens, mixed = contract(tokens, attended, layer.self_out, layer.before_cross)
            assert mixed is not None
            attended = self._attend(mixed, layer.heads, cross=True)
            tokens, hidden = contract(tokens, attended, layer.cross_out, layer.expand)
            assert hidden is not None
            after = None if following is None else following.before_self
            tokens, mixed = layer.gate(tokens, hidden, after)
        return tokens

    def _attend(self, mixed: Tensor, heads: int, cross: bool) -> Tensor:
        inner = mixed.shape[-1] // 3
        source = swap_views(mixed[..., inner:]) if cross else mixed[..., inner:]
        q, k, v = (
            part.flatten(1, 2).unflatten(-1, (heads, -1)).transpose(1, 2)
            for part in (mixed[..., :inner], source[..., :inner], source[..., inner:])
        )
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return attended.unflatten(1, mixed.shape[1:3]).contiguous()
