"""The whole network for inference on a GPU, top to bottom, in about two hundred kernels.

Computes what `MatchNetwork` computes, rounded less often. It has no gradients and returns the field alone.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.initial import TransportEstimate
from matchattention.layers.upsampling import ConvexUpsampling, FeatureUpsampling
from matchattention.models.config import NetworkConfig
from matchattention.models.network import LARGE, MatchNetwork, at_tokens, coarse_field, crop_field
from matchattention.runtime.fused_blocks import FusedStage, pack_position
from matchattention.runtime.fused_encoder import NORM_EPS, FusedContext, FusedEncoder, PackedConvolution
from matchattention.runtime.fused_rows import PackedProjection, norm_project, padded, tile_of
from matchattention.runtime.kernels.transport import stereo_transport_kernel
from matchattention.runtime.kernels.upsampling import convex_kernel, join_kernel
from matchattention.runtime.launching import compile_together, launch

# A tile's rows of features live in registers: wider networks are better off with separate matrix products.
MOST_CHANNELS = 256
# Of a matrix product inside a kernel.
LEAST_COLUMNS = 16


def why_not_fused(config: NetworkConfig) -> str | None:
    """One sentence that says why a network is not fused, or None when it is."""
    if max(config.channels) > MOST_CHANNELS:
        return f"Networks wider than {MOST_CHANNELS} channels are faster with separate matrix products."
    if config.task != "stereo" or config.initial != "transport":
        return "Only stereo networks with the transport estimate are fused."
    if config.attention != "match" or config.first_attention != "self" or config.self_mask:
        return "Only blocks of self- and cross-MatchAttention without a mask are fused."
    if not config.self_sees_cross:
        return "Only self-attention that sees the cross position is fused."
    if any(rows * columns not in (4, 8, 16) for rows, columns in config.windows):
        return "Only windows of 4, 8 or 16 keys are fused."
    return None


class FusedEstimate(nn.Module):
    """Correlation, Sinkhorn and the local-window estimator."""

    def __init__(self, estimate: TransportEstimate, heads: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.row = padded(2 + 2 * heads)
        correlation = estimate.correlation
        weight = torch.cat((correlation.q.weight, correlation.k.weight))
        width = correlation.norm.weight.shape[0]
        self.context = FusedContext(list(estimate.layers), dtype)  # type: ignore[arg-type]
        self.project = PackedProjection(correlation.norm.weight, weight, None, width, NORM_EPS, False, dtype)
        self.bin_score = nn.Buffer(estimate.bin_score.detach().float().clone())
        self.iterations = estimate.iterations

    def forward(self, tokens: Tensor) -> Tensor:
        """(2B, h, w, EP) fp32 positions in tokens, as `pack_position` lays them out."""
        return transport_position(norm_project(tokens, self.project), self.bin_score, self.iterations, self.row)


def transport_position(projected: Tensor, bin_score: Tensor, iterations: int, row: int) -> Tensor:
    """Positions (2B, h, w, row) fp32 in tokens, x and then zeros, from queries beside keys (2B, h, w, 2d)."""
    images, height, width, both = projected.shape
    channels = both // 2
    position = torch.empty(images, height, width, row, dtype=torch.float32, device=projected.device)
    rows = images // 2 * height
    launch(
        stereo_transport_kernel,
        (rows,),
        projected,
        bin_score,
        position,
        rows,
        width,
        channels**-0.5,
        ITERATIONS=iterations,
        D=channels,
        KB=min(64, padded(channels)),
        WB=padded(width),
        EP=row,
        num_warps=4 if width <= 32 else 8,
    )
    return position


class FusedConvex(nn.Module):
    """Convex upsampling of packed positions.

    Args:
        upsampling: the plain one.
        heads: self positions in a packed row.
        dtype: of features and matrices.
        one_kernel: whether narrow heads may compute their weights in the kernel that uses them.
    """

    def __init__(self, upsampling: ConvexUpsampling, heads: int, dtype: torch.dtype, one_kernel: bool = True) -> None:
        super().__init__()
        self.head = PackedConvolution(upsampling.head, dtype, relu=True)
        self.weight = nn.Buffer(upsampling.weights.weight.detach().flatten(1).to(dtype).contiguous())
        assert upsampling.weights.bias is not None
        self.factor, self.heads = upsampling.factor, heads
        self.one_kernel = one_kernel and self.factor**2 >= LEAST_COLUMNS
        kept = torch.float32 if self.one_kernel else dtype
        self.bias = nn.Buffer(upsampling.weights.bias.detach().to(kept).clone())
        self.zero_border = upsampling.border != "replicate"

    def forward(self, features: Tensor, position: Tensor, packed: bool) -> Tensor:
        """Positions of the finer map: packed (…, EP), or the cross position alone (…, 2)."""
        images, height, width, row = position.shape
        hidden = self.head(features)
        channels = hidden.shape[-1] if self.one_kernel else 0
        logits = hidden if self.one_kernel else F.linear(hidden, self.weight, self.bias)
        outputs = row if packed else 2
        out = position.new_empty((images, height * self.factor, width * self.factor, outputs))
        tokens = images * height * width
        tile, warps = (64, 4) if self.one_kernel else (16, 2)
        launch(
            convex_kernel,
            (-(-tokens // tile),),
            logits,
            self.weight,
            self.bias,
            position,
            out,
            height,
            width,
            tokens,
            D=channels,
            DB=padded(channels),
            FACTOR=self.factor,
            HEADS=self.heads,
            EP=row,
            OUT=outputs,
            ZERO_BORDER=self.zero_border,
            T=tile,
            num_warps=warps,
        )
        return out


def lift_matrices(upsampling: FeatureUpsampling) -> tuple[Tensor, Tensor, Tensor]:
    """A transposed convolution and the joining matrix behind it, in fp32.

    The transposed convolution and its half of the joining matrix follow each other without anything in between: they
    are one matrix.

    Returns:
        (2 * 2 * fine, coarse) from coarse tokens to their four fine ones, joined; (fine, fine) from the encoder's
        tokens; (fine,) bias.
    """
    join = upsampling.join.weight.detach().float().flatten(1)  # (fine, 2 fine): [encoded | lifted]
    fine = join.shape[0]
    up = upsampling.up.weight.detach().float()  # (coarse, fine, 2, 2)
    assert upsampling.up.bias is not None
    assert upsampling.join.bias is not None
    both = torch.einsum("of,cfyx->yxoc", join[:, fine:], up).flatten(0, 2)
    bias = upsampling.join.bias.detach().float() + join[:, fine:] @ upsampling.up.bias.detach().float()
    return both.contiguous(), join[:, :fine].contiguous(), bias


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
        launch(
            join_kernel,
            (-(-tokens // tile.tokens),),
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
            KB=min(64, padded(fine)),
            T=tile.tokens,
            num_warps=tile.warps,
            num_stages=tile.stages,
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
        config = network.config
        assert why_not_fused(config) is None
        assert isinstance(network.initial, TransportEstimate)
        self.config = config
        self._compiled = False
        with torch.no_grad():
            self.encoder = FusedEncoder(network.encoder, dtype)
            self.initial = FusedEstimate(network.initial, config.heads, dtype)
            self.stages = nn.ModuleList(FusedStage(list(stage), dtype) for stage in network.stages)  # type: ignore[call-overload]
            self.lifts = nn.ModuleList(FusedLift(up, dtype) for up in network.feature_upsamplings)  # type: ignore[arg-type]
            self.convexes = nn.ModuleList(
                FusedConvex(up, config.heads, dtype)  # type: ignore[arg-type]
                for up in (*network.field_upsamplings, network.final_upsampling)
            )

    def forward(self, image0: Tensor, image1: Tensor, initial: Tensor | None = None) -> Tensor:
        """(2B, H, W, 2) px from two images (B, 3, H, W), uint8 or float in [0, 255]; see `MatchNetwork.forward`."""
        if not self._compiled:
            self._compiled = True
            compile_together(lambda: self(image0, image1, initial))
        height, width = image0.shape[-2:]
        if initial is None and max(height, width) > LARGE:
            initial = coarse_field(self, image0, image1)
        encoded = self.encoder(image0, image1)
        features = self.initial.context(encoded[-1])
        position = self.initial(features) if initial is None else self._packed(at_tokens(initial))
        convexes: list[Any] = list(self.convexes)
        lifts: list[Any] = list(self.lifts)
        shift = None
        for index, stage in enumerate(self.stages):
            features, position = stage(features, position, shift)
            if index < len(lifts):
                position = convexes[index](features, position, packed=True)
                features, shift = lifts[index](features, encoded[-2 - index]), lifts[index].shift
        return crop_field(convexes[-1](features, position, packed=False), height, width)

    def _packed(self, cross: Tensor) -> Tensor:
        return pack_position(cross, cross.new_zeros(*cross.shape[:3], self.config.heads, 2))
