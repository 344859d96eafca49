"""The whole network for inference on a GPU, top to bottom.

Computes what `MatchNetwork` computes, rounded less often. It has no gradients and returns the field alone.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.confidence_head import LastStage
from matchattention.layers.initial import TransportEstimate
from matchattention.layers.upsampling import FeatureUpsampling
from matchattention.models.config import NetworkConfig
from matchattention.models.network import LARGE, MatchNetwork, at_tokens, coarse_field, crop_field
from matchattention.ops.triton_overlap import overlapping
from matchattention.runtime.fused.blocks import FusedStage, pack_position
from matchattention.runtime.fused.encoder import FusedContext, FusedEncoder
from matchattention.runtime.fused.rows import PackedProjection, norm_project
from matchattention.runtime.fused.tiles import tile_of
from matchattention.runtime.kernels.rows import padded
from matchattention.runtime.kernels.transport import transport_position
from matchattention.runtime.kernels.upsampling import join_kernel
from matchattention.runtime.lifting import lift_matrices
from matchattention.runtime.packing import PackedConvex, PackedConvolution

# A tile's rows of features live in registers: wider networks are better off with separate matrix products.
MOST_CHANNELS = 256


def why_not_fused(config: NetworkConfig) -> str | None:
    """One sentence that says why a network is not fused, or None when it is."""
    if max(config.channels) > MOST_CHANNELS:
        return f"Networks wider than {MOST_CHANNELS} channels are faster with separate matrix products."
    if config.initial != "transport":
        return "Only networks with the transport estimate are fused."
    if config.attention != "match" or config.first_attention != "self" or config.self_mask:
        return "Only blocks of self- and cross-MatchAttention without a mask are fused."
    if not config.self_sees_cross:
        return "Only self-attention that sees the cross position is fused."
    if any(rows * columns not in (4, 8, 16) for rows, columns in config.windows):
        return "Only windows of 4, 8 or 16 keys are fused."
    return None


class FusedStereoEstimate(nn.Module):
    """Correlation along rows, Sinkhorn and the local-window estimator in one kernel."""

    def __init__(self, estimate: TransportEstimate, heads: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.row = padded(2 + 2 * heads)
        correlation = estimate.correlation
        weight = torch.cat((correlation.q.weight, correlation.k.weight))
        self.project = PackedProjection(correlation.norm, weight, None, weight.shape[1], False, dtype)
        self.bin_score = nn.Buffer(estimate.bin_score.detach().float().clone())
        self.iterations = estimate.iterations

    def forward(self, tokens: Tensor) -> Tensor:
        """(2B, h, w, EP) fp32 positions in tokens, as `pack_position` lays them out."""
        return transport_position(norm_project(tokens, self.project), self.bin_score, self.iterations, self.row)


class PlainFlowEstimate(nn.Module):
    """Correlation of all pairs, Sinkhorn and the estimator as they are: a matrix of all tokens fits no program."""

    def __init__(self, estimate: TransportEstimate, heads: int) -> None:
        super().__init__()
        self.estimate = copy.deepcopy(estimate).float().requires_grad_(False)
        del self.estimate.layers  # fused, in front of this
        self.heads = heads

    def forward(self, tokens: Tensor) -> Tensor:
        """See `FusedStereoEstimate`."""
        return pack_start(self.estimate(tokens.float()).position, self.heads)


def pack_start(cross: Tensor, heads: int) -> Tensor:
    """Packed positions that begin with this cross position and self positions of zero."""
    return pack_position(cross, cross.new_zeros(*cross.shape[:3], heads, 2))


class FusedLift(nn.Module):
    """Coarse features twice as fine, joined with the encoder's."""

    def __init__(self, upsampling: FeatureUpsampling, dtype: torch.dtype) -> None:
        super().__init__()
        lift, matrix, bias = lift_matrices(upsampling)
        self.lift, self.matrix = nn.Buffer(lift.to(dtype)), nn.Buffer(matrix.to(dtype))
        self.bias = nn.Buffer(bias)
        self.smooth = PackedConvolution(upsampling.smooth, dtype, keeps_bias=False)
        assert upsampling.smooth.bias is not None
        self.shift = nn.Buffer(upsampling.smooth.bias.detach().float().clone())  # left to what follows

    def forward(self, coarse: Tensor, encoded: Tensor) -> Tensor:
        images, height, width, fine = encoded.shape
        lifted = F.linear(coarse, self.lift)
        joined = torch.empty_like(encoded)
        tokens = images * height * width
        tile = tile_of("join", fine, 0, tokens)
        join_kernel[(-(-tokens // tile.tokens),)](
            encoded,
            lifted,
            self.matrix,
            self.bias,
            joined,
            height,
            width,
            tokens,
            D=fine,
            DB=padded(fine),
            KB=min(tile.rows, padded(fine)),
            T=tile.tokens,
            num_warps=tile.warps,
            num_stages=tile.stages,
            **overlapping(),
        )
        return self.smooth(joined)


class FusedNetwork(nn.Module):
    """`MatchNetwork` packed for inference.

    Args:
        network: with its weights in fp32.
        dtype: of features and matrices.
    """

    def __init__(self, network: MatchNetwork, dtype: torch.dtype) -> None:
        super().__init__()
        config, estimate = network.config, network.initial
        assert why_not_fused(config) is None
        assert isinstance(estimate, TransportEstimate)
        self.config = config
        with torch.no_grad():
            self.encoder = FusedEncoder(network.encoder, dtype)
            self.context = FusedContext(list(estimate.layers), dtype)  # type: ignore[arg-type]
            self.initial: nn.Module
            if estimate.stereo:
                self.initial = FusedStereoEstimate(estimate, config.heads, dtype)
            else:
                self.initial = PlainFlowEstimate(estimate, config.heads)
            self.stages = nn.ModuleList(FusedStage(list(stage), dtype) for stage in network.stages)  # type: ignore[call-overload]
            self.lifts = nn.ModuleList(FusedLift(up, dtype) for up in network.feature_upsamplings)  # type: ignore[arg-type]
            self.convexes = nn.ModuleList(
                PackedConvex(up, config.heads, dtype)  # type: ignore[arg-type]
                for up in (*network.field_upsamplings, network.final_upsampling)
            )

    def forward(self, image0: Tensor, image1: Tensor, initial: Tensor | None = None) -> Tensor:
        """The field alone of `matched`."""
        return self.matched(image0, image1, initial)[0]

    def matched(self, image0: Tensor, image1: Tensor, initial: Tensor | None = None) -> tuple[Tensor, LastStage]:
        """Field (2B, H, W, 2) px and last stage of images (B, 3, H, W), uint8 or float in [0, 255]."""
        height, width = image0.shape[-2:]
        if initial is None and max(height, width) > LARGE:
            initial = coarse_field(self, image0, image1)
        encoded = self.encoder(image0, image1)
        features = self.context(encoded[-1])
        position = self.initial(features) if initial is None else pack_start(at_tokens(initial), self.config.heads)
        convexes: list[Any] = list(self.convexes)
        lifts: list[Any] = list(self.lifts)
        shift = None
        for index, stage in enumerate(self.stages):
            before = position[..., :2]
            features, position = stage(features, position, shift)
            if index < len(lifts):
                position = convexes[index](features, position, packed=True)
                features, shift = lifts[index](features, encoded[-2 - index]), lifts[index].shift
        field = crop_field(convexes[-1](features, position, packed=False), height, width)
        return field, LastStage(features, before, position[..., :2])
