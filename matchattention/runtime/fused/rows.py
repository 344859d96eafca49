"""Weights packed for the row kernels, and their launches."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from matchattention.layers.tokens import LayerNorm
from matchattention.ops.triton_depthwise import convolve, gate_mix
from matchattention.ops.triton_overlap import overlapping
from matchattention.runtime.fused.tiles import tile_of
from matchattention.runtime.kernels.rows import contract_kernel, norm_project_kernel, padded

WIDE = 128  # channels: RT's at 1/32 and 1/16


def residual_dtype(channels: int, dtype: torch.dtype) -> torch.dtype:
    """Of features between the layers of a scale, beside matrices of `dtype`: fp32 where they are wide.

    Wide features belong to small maps, where that costs little. What is rounded there decides for whole patches of the
    image which of two matches they follow.
    """
    return torch.float32 if channels >= WIDE else dtype


class PackedProjection(nn.Module):
    """A LayerNorm's weight folded into the projection behind it, features and positions apart.

    Args:
        norm: the LayerNorm over features and positions; its weight and eps are taken.
        weight: (outputs, features + positions).
        bias: (outputs,) or None.
        channels: how many of the columns are features.
        gelu: whether a GELU follows.
        dtype: of the matrices.
    """

    def __init__(
        self,
        norm: LayerNorm,
        weight: Tensor,
        bias: Tensor | None,
        channels: int,
        gelu: bool,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        folded = weight.detach().float() * norm.weight.detach().float()
        self.matrix = nn.Buffer(folded[:, :channels].to(dtype).contiguous())
        self.extras = nn.Buffer(folded[:, channels:].to(dtype).contiguous())
        self.bias = None if bias is None else nn.Buffer(bias.detach().float().clone())
        self.outputs = weight.shape[0]
        self.positions = weight.shape[1] - channels
        self.eps = norm.eps
        self.gelu = gelu


class PackedMixing(nn.Module):
    """A depthwise 3x3 convolution; with a bias it is a ConvGLU's gate, whose value follows it in memory.

    Attributes:
        taps: (C, 1, 3, 3) fp32 with its channels innermost in memory.
        bias: (C,) fp32 or None.
    """

    def __init__(self, depthwise: nn.Conv2d) -> None:
        super().__init__()
        self.taps = nn.Buffer(depthwise.weight.detach().float().permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2))
        self.bias = None if depthwise.bias is None else nn.Buffer(depthwise.bias.detach().float().clone())

    def forward(self, hidden: Tensor) -> Tensor:
        return convolve(hidden, self.taps, None) if self.bias is None else gate_mix(hidden, self.taps, self.bias)


class PackedContraction(nn.Module):
    """A projection back onto the residual stream, which may carry a scale."""

    def __init__(self, weight: Tensor, bias: Tensor | None, scale: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.matrix = nn.Buffer(weight.detach().to(dtype).contiguous())
        self.bias = None if bias is None else nn.Buffer(bias.detach().float().clone())
        self.scale = None if scale is None else nn.Buffer(scale.detach().float().clone())


def norm_project(features: Tensor, packed: PackedProjection) -> Tensor:
    """LayerNorm of (B, H, W, d) contiguous features, projection, perhaps GELU: (B, H, W, outputs)."""
    return shift_norm_project(features, None, packed)[1]


def shift_norm_project(
    features: Tensor,
    shift: Tensor | None,
    packed: PackedProjection,
    position: Tensor | None = None,
    beta: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """LayerNorm of [features + shift, scaled positions], projection, perhaps GELU.

    Args:
        features: (B, H, W, d), contiguous.
        shift: (d,) fp32 such as a convolution's bias, or None.
        packed: the weights.
        position: (B, H, W, EP) fp32 packed positions, where the LayerNorm sees them.
        beta: (2,) fp32, the cross position's scale as a feature.

    Returns:
        features + shift, and (B, H, W, outputs).
    """
    channels = features.shape[-1]
    out = features.new_empty((*features.shape[:-1], packed.outputs), dtype=packed.matrix.dtype)
    new_features = features if shift is None else torch.empty_like(features, dtype=residual_dtype(channels, out.dtype))
    tokens = features.numel() // channels
    tile = tile_of("project", channels, packed.outputs, tokens)
    none = packed.matrix
    norm_project_kernel[(-(-tokens // tile.tokens), tile.shares)](
        features,
        none if shift is None else shift,
        none if position is None else position,
        none if beta is None else beta,
        packed.matrix,
        packed.extras if packed.positions else none,
        none if packed.bias is None else packed.bias,
        new_features,
        out,
        tokens,
        packed.eps,
        D=channels,
        DB=padded(channels),
        E=packed.positions,
        EP=16 if position is None else position.shape[-1],
        N=packed.outputs,
        NB=tile.columns,
        SHARES=tile.shares,
        HAS_SHIFT=shift is not None,
        HAS_BIAS=packed.bias is not None,
        GELU=packed.gelu,
        T=tile.tokens,
        num_warps=tile.warps,
        num_stages=tile.stages,
        **overlapping(),
    )
    return new_features, out


def contract(
    features: Tensor,
    hidden: Tensor,
    packed: PackedContraction,
    following: PackedProjection | None,
    position: Tensor | None = None,
    beta: Tensor | None = None,
    norm_eps: float | None = None,
    last: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Project `hidden` back onto the residual stream, then do the next `norm_project`, mostly in the same kernel.

    Args:
        features: the residual stream, (B, H, W, d).
        hidden: (B, H, W, h).
        packed: the projection back.
        following: the next one.
        position: see `shift_norm_project`.
        beta: see `shift_norm_project`.
        norm_eps: see below.
        last: whether other layers take the features over, in the matrices' dtype.

    Returns:
        The new features, and what `shift_norm_project` makes of them for `following`; without `following`, their
        LayerNorm (without a weight) where `norm_eps` is given, else None.
    """
    channels, dtype = features.shape[-1], packed.matrix.dtype
    tokens = features.numel() // channels
    outputs = 0 if following is None else following.outputs
    tile = tile_of("contract", channels, outputs or channels, tokens)
    if tile.apart and following is not None:
        features, _ = contract(features, hidden, packed, None, last=last)
        return shift_norm_project(features, None, following, position, beta)
    new_features = torch.empty_like(features, dtype=dtype if last else residual_dtype(channels, dtype))
    normed = following is None and norm_eps is not None
    out = features.new_empty((*features.shape[:-1], channels if normed else max(outputs, 1)), dtype=dtype)
    eps = following.eps if following is not None else norm_eps or 0.0
    none, inner = packed.matrix, packed.matrix.shape[1]
    seen = 0 if following is None else following.positions
    bias = None if following is None else following.bias
    block = tile.columns if tile.apart and not normed else padded(channels)
    contract_kernel[(-(-tokens // tile.tokens), tile.shares if outputs else -(-channels // block))](
        features,
        none if packed.scale is None else packed.scale,
        hidden,
        packed.matrix,
        none if packed.bias is None else packed.bias,
        none if position is None else position,
        none if beta is None else beta,
        none if following is None else following.matrix,
        none if following is None or not seen else following.extras,
        none if bias is None else bias,
        new_features,
        out,
        tokens,
        eps,
        D=channels,
        DB=block,
        HIDDEN=inner,
        KB=min(tile.rows, padded(inner)),
        HAS_SCALE=packed.scale is not None,
        HAS_CONTRACT_BIAS=packed.bias is not None,
        E=seen,
        EP=16 if position is None else position.shape[-1],
        N=outputs,
        NB=tile.columns,
        SHARES=tile.shares,
        HAS_BIAS=bias is not None,
        GELU=following is not None and following.gelu,
        NORMED=normed,
        T=tile.tokens,
        num_warps=tile.warps,
        num_stages=tile.stages,
        **overlapping(),
    )
    return new_features, out if normed or following is not None else None
