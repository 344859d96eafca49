"""A stage of MATBlocks in four to seven kernels a block: self-attention, cross-attention, gate, contraction."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor, nn

from matchattention.layers.block import MATBlock, SelfMatchAttention
from matchattention.layers.feedforward import ConvGLU
from matchattention.ops.match_attention.triton_tiles import window_limits
from matchattention.ops.triton_overlap import overlapping
from matchattention.runtime.fused.rows import (
    PackedContraction,
    PackedMixing,
    PackedProjection,
    contract,
    residual_dtype,
    shift_norm_project,
)
from matchattention.runtime.fused.tiles import tile_of
from matchattention.runtime.kernels.block import block_attention_kernel
from matchattention.runtime.kernels.rows import padded


def pack_position(cross: Tensor, self_position: Tensor) -> Tensor:
    """(B, H, W, EP) fp32 rows: cross x, y, then every head's self x, y, then zeros."""
    packed = torch.cat((cross, self_position.flatten(-2)), -1)
    return F.pad(packed, (0, padded(packed.shape[-1]) - packed.shape[-1])).contiguous()


class PackedGate(nn.Module):
    """A ConvGLU after its expansion."""

    def __init__(self, feedforward: ConvGLU, dtype: torch.dtype) -> None:
        super().__init__()
        self.mixing = PackedMixing(feedforward.depthwise)
        self.contract = PackedContraction(feedforward.contract.weight, feedforward.contract.bias, None, dtype)

    def forward(
        self,
        features: Tensor,
        hidden: Tensor,
        following: PackedProjection | None,
        position: Tensor | None = None,
        beta: Tensor | None = None,
        last: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """See `contract`."""
        return contract(features, self.mixing(hidden), self.contract, following, position, beta, last=last)


class PackedOutput(nn.Module):
    """An attention's output projection: features and positions apart, attended values and weights apart."""

    def __init__(self, weight: Tensor, channels: int, inner: int, dtype: torch.dtype) -> None:
        super().__init__()
        weight = weight.detach().to(dtype)
        self.shifts = weight.shape[0] - channels
        self.features = nn.Buffer(weight[:channels, :inner].contiguous())
        self.features_of_weights = nn.Buffer(weight[:channels, inner:].contiguous())
        self.positions = nn.Buffer(weight[channels:, :inner].contiguous())
        self.positions_of_weights = nn.Buffer(weight[channels:, inner:].contiguous())


class PackedBlock(nn.Module):
    """One MATBlock's weights as the kernels read them."""

    def __init__(self, block: MATBlock, dtype: torch.dtype) -> None:
        super().__init__()
        first, cross, feed = block.first, block.cross, block.feedforward
        assert isinstance(first, SelfMatchAttention)
        channels = block.config.channels
        inner = channels // block.config.compression
        self.beta = nn.Buffer(block.beta.detach().float().clone())
        self.before_self = PackedProjection(first.norm, first.qkv.weight, None, channels, False, dtype)
        self.self_out = PackedOutput(first.out.weight, channels, inner, dtype)
        self.before_cross = PackedProjection(cross.norm, cross.qkvg.weight, None, channels, False, dtype)
        self.cross_out = PackedOutput(cross.out.weight, channels, inner, dtype)
        expand = feed.expand
        self.expand = PackedProjection(block.norm, expand.weight, expand.bias, channels, False, dtype)
        self.gate = PackedGate(feed, dtype)


class FusedStage(nn.Module):
    """All MATBlocks of one scale.

    Args:
        blocks: the stage's blocks, with their weights in any format.
        dtype: of features and matrices.
    """

    def __init__(self, blocks: list[MATBlock], dtype: torch.dtype) -> None:
        super().__init__()
        self.config = blocks[0].config
        self.blocks = nn.ModuleList(PackedBlock(block, dtype) for block in blocks)

    def forward(self, features: Tensor, position: Tensor, shift: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run the stage.

        Args:
            features: (2B, H, W, d).
            position: (2B, H, W, EP) from `pack_position`.
            shift: (d,) fp32, added to all features first.

        Returns:
            Both, refined by every block.
        """
        features = features.contiguous()
        blocks: list[Any] = list(self.blocks)
        features, mixed = shift_norm_project(features, shift, blocks[0].before_self, position, blocks[0].beta)
        for block, following in zip(blocks, [*blocks[1:], None]):
            features, position, mixed = self._attention(block, features, position, mixed, cross=False)
            features, position, hidden = self._attention(block, features, position, mixed, cross=True)
            if following is None:
                features, _ = block.gate(features, hidden, None, last=True)
            else:
                features, mixed = block.gate(features, hidden, following.before_self, position, following.beta)
        return features, position

    def _cut(self, tokens: int, width: int) -> tuple[int, int]:
        """Rows and columns of a program's queries."""
        across = min(tokens, padded(width)) if self.config.window[0] == 1 else 8 if tokens >= 64 else 4
        return tokens // across, across

    def _attention(
        self, block: Any, features: Tensor, position: Tensor, mixed: Tensor, cross: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        config = self.config
        images, height, width, channels = features.shape
        of_head = channels // config.compression // config.heads
        head_block = triton.next_power_of_2(of_head)
        out, after = (block.cross_out, block.expand) if cross else (block.self_out, block.before_cross)
        tile = tile_of("cross" if cross else "self", channels, after.outputs, images * height * width)
        tile_y, tile_x = self._cut(tile.tokens, width)
        tiles_y, tiles_x = -(-height // tile_y), -(-width // tile_x)
        dtype = after.matrix.dtype
        new_features = torch.empty_like(features, dtype=residual_dtype(channels, dtype))
        new_position = torch.empty_like(position)
        outputs = 0 if tile.apart else after.outputs
        result = features.new_empty((*features.shape[:3], max(outputs, 1)), dtype=dtype)
        rows, columns = config.window
        block_attention_kernel[(images * tiles_y * tiles_x, tile.shares)](
            features,
            position,
            mixed,
            block.beta,
            out.features,
            out.features_of_weights,
            out.positions,
            out.positions_of_weights,
            after.matrix,
            after.extras,
            after.matrix if after.bias is None else after.bias,
            new_features,
            new_position,
            result,
            height,
            width,
            tiles_x,
            tiles_y,
            images,
            of_head**-0.5,
            after.eps,
            **window_limits(height, width, config.window),
            D=channels,
            DB=padded(channels),
            HEADS=config.heads,
            CHANNELS=of_head,
            G=padded(config.heads * head_block) // head_block,
            C=head_block,
            SHIFTS=out.shifts,
            E=after.positions,
            EP=position.shape[-1],
            N=outputs,
            NB=tile.columns,
            SHARES=tile.shares,
            HAS_BIAS=after.bias is not None,
            MIXED=mixed.shape[-1],
            RUN=min(16, of_head & -of_head),
            ROWS=rows,
            COLUMNS=columns,
            OVERHANGS=width < columns or (rows > 1 and height < rows),
            DOT=config.similarity == "dot",
            CROSS=cross,
            KEEP_Y=config.keep_y,
            TILE_Y=tile_y,
            TILE_X=tile_x,
            num_warps=tile.warps,
            num_stages=tile.stages,
            **overlapping(),
        )
        if tile.apart:
            _, result = shift_norm_project(new_features, None, after, new_position, block.beta)
        return new_features, new_position, result
