"""Where a prepared network on a GPU is more than blocks: stem, initial estimate, the ways between scales."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.block import MATBlock
from matchattention.layers.encoder import EncoderBlock, Stem
from matchattention.layers.initial import Initial, TransportEstimate
from matchattention.layers.tokens import as_image, as_tokens
from matchattention.layers.upsampling import ConvexUpsampling, FeatureUpsampling
from matchattention.models.network import MatchNetwork
from matchattention.runtime.kernels.stem import instance_norm_gelu
from matchattention.runtime.kernels.transport import transport_position
from matchattention.runtime.lean.blocks import Lean, LeanBlock, LeanEncoderBlock, add_product
from matchattention.runtime.lifting import lift_matrices
from matchattention.runtime.packing import PackedConvex


class LeanStem(Lean):
    """A `Stem` with norm and GELU together."""

    def run(self, image: Tensor) -> Tensor:
        stem: Stem = self.plain
        tokens = instance_norm_gelu(as_tokens(stem.first(image)).contiguous())
        return instance_norm_gelu(as_tokens(stem.second(as_image(tokens))).contiguous())


class LeanEstimate(Lean):
    """A stereo `TransportEstimate` that keeps its matching to itself."""

    def __init__(self, plain: TransportEstimate) -> None:
        super().__init__(plain)
        correlation = plain.correlation
        self.weight = nn.Buffer(torch.cat((correlation.q.weight, correlation.k.weight)).detach())

    def aggregate(self, tokens: Tensor) -> Tensor:
        """See `TransportEstimate.aggregate`."""
        return self.plain.aggregate(tokens)

    def run(self, tokens: Tensor) -> Initial:
        estimate: TransportEstimate = self.plain
        projected = F.linear(estimate.correlation.norm(tokens), self.weight)
        position = transport_position(projected, estimate.bin_score, estimate.iterations, 2)
        return Initial(position, None)


class LeanLift(Lean):
    """A `FeatureUpsampling` whose transposed convolution and half of the joining are one matrix (`lift_matrices`)."""

    def __init__(self, plain: FeatureUpsampling) -> None:
        super().__init__(plain)
        dtype = plain.join.weight.dtype
        lift, matrix, bias = lift_matrices(plain)
        self.lift, self.matrix = nn.Buffer(lift.to(dtype)), nn.Buffer(matrix.to(dtype))
        self.bias = nn.Buffer(bias.to(dtype).repeat(4))

    def run(self, coarse: Tensor, encoded: Tensor) -> Tensor:
        images, height, width, fine = encoded.shape
        patches = F.linear(coarse.contiguous(), self.lift, self.bias)
        patches = patches.view(images, height // 2, width // 2, 2, 2, fine).transpose(2, 3)
        mixed = add_product(patches.reshape(encoded.shape), encoded, self.matrix)
        return as_tokens(self.plain.smooth(as_image(F.relu_(mixed)))).contiguous()


class LeanConvex(Lean):
    """A `ConvexUpsampling` of one or two fields in one kernel behind its head."""

    def __init__(self, plain: ConvexUpsampling) -> None:
        super().__init__(plain)
        self.convex = PackedConvex(plain, 1, plain.head.weight.dtype, one_kernel=False)

    def run(self, features: Tensor, *fields: Tensor) -> tuple[Tensor, ...]:
        packed = torch.cat(fields, -1) if len(fields) > 1 else fields[0].contiguous()
        finer = self.convex(features, packed, packed=len(fields) > 1)
        return tuple(part.contiguous() for part in finer.split(2, -1))


def make_lean(network: MatchNetwork) -> None:
    """Replace what has a lean version, in place."""
    estimate = network.initial
    if isinstance(estimate, TransportEstimate) and estimate.stereo:
        network.initial = LeanEstimate(estimate)  # type: ignore[assignment]
    _replace(network)


def _replace(module: nn.Module) -> None:
    lean: dict[type, type[Lean]] = {
        EncoderBlock: LeanEncoderBlock,
        Stem: LeanStem,
        FeatureUpsampling: LeanLift,
        ConvexUpsampling: LeanConvex,
    }
    for name, child in module.named_children():
        if type(child) in lean:
            setattr(module, name, lean[type(child)](child))
        elif isinstance(child, MATBlock):
            if child.is_the_papers:
                setattr(module, name, LeanBlock(child))
        else:
            _replace(child)
