"""The ways from one scale to the next finer one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.tokens import as_image, as_tokens
from matchattention.layers.upsampling import ConvexUpsampling, FeatureUpsampling
from matchattention.runtime.cpu.layers import OnCpu
from matchattention.runtime.cpu.products import Product
from matchattention.runtime.lifting import lift_matrices

TOKENS_AT_ONCE = 2048  # their weights stay in a core's cache


class CpuLift(OnCpu):
    """A `FeatureUpsampling` whose transposed convolution and half of the joining are one matrix."""

    def __init__(self, plain: FeatureUpsampling) -> None:
        super().__init__(plain)
        lift, matrix, bias = lift_matrices(plain)
        self.lift, self.join = Product(lift, bias.repeat(4)), Product(matrix)

    def run(self, coarse: Tensor, encoded: Tensor) -> Tensor:
        images, height, width, fine = encoded.shape
        patches = self.lift(coarse).view(images, height // 2, width // 2, 2, 2, fine).transpose(2, 3)
        mixed = self.join.plus(encoded, patches.reshape(encoded.shape))
        return as_tokens(self.plain.smooth(as_image(F.relu_(mixed))))


class CpuConvex(OnCpu):
    """A `ConvexUpsampling` by bands of rows: weights are made, used and forgotten, with the tokens innermost."""

    def __init__(self, plain: ConvexUpsampling) -> None:
        super().__init__(plain)
        self.matrix = nn.Buffer(plain.weights.weight.detach().flatten(1).contiguous())
        assert plain.weights.bias is not None
        self.bias = nn.Buffer(plain.weights.bias.detach()[:, None])

    def run(self, features: Tensor, *fields: Tensor) -> tuple[Tensor, ...]:
        upsampling: ConvexUpsampling = self.plain
        images, height, width, _ = features.shape
        factor, counts = upsampling.factor, [field.shape[-1] for field in fields]
        mode = "replicate" if upsampling.border == "replicate" else "constant"
        planes = F.pad(as_image(torch.cat(fields, -1) * factor).contiguous(), (1, 1, 1, 1), mode=mode)
        hidden = as_tokens(F.relu_(upsampling.head(as_image(features))))
        channels = planes.shape[1]
        finer = features.new_empty(images, height, factor, width, factor, channels)
        rows = max(1, TOKENS_AT_ONCE // width)
        for image in range(images):
            for top in range(0, height, rows):
                bottom = min(top + rows, height)
                near = planes[image, :, top : bottom + 2]
                combined = self._combine(hidden[image, top:bottom].flatten(0, 1), near)
                band = combined.view(channels, factor, factor, bottom - top, width)
                finer[image, top:bottom] = band.permute(3, 1, 4, 2, 0)
        joined = finer.view(images, height * factor, width * factor, channels)
        return tuple(part.contiguous() for part in joined.split(counts, -1))

    def _combine(self, hidden: Tensor, near: Tensor) -> Tensor:
        """(C, factor * factor, tokens) from hidden (tokens, d) and padded planes (C, rows + 2, width + 2)."""
        rows, width = near.shape[1] - 2, near.shape[2] - 2
        logits = torch.ops.mkldnn._linear_pointwise(self.matrix, hidden, None, "none", [], "")
        weights = logits.add_(self.bias).view(9, -1, hidden.shape[0])
        weights = weights.sub_(weights.amax(0)).exp_()
        total = weights.new_zeros(near.shape[0], *weights.shape[1:])
        for index in range(9):
            y, x = divmod(index, 3)
            neighbour = near[:, y : y + rows, x : x + width].flatten(1)
            for channel in range(near.shape[0]):
                total[channel].addcmul_(weights[index], neighbour[channel])
        return total.div_(weights.sum(0))
