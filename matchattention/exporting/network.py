"""The network as it is exported: `MatchNetwork` in half as many operations, for sizes known only when it runs."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.exporting.block import Block
from matchattention.exporting.windows import Map
from matchattention.layers.tokens import as_image, as_tokens, split_views
from matchattention.layers.upsampling import ConvexUpsampling, FeatureUpsampling
from matchattention.models.network import MatchNetwork


class ExportedNetwork(nn.Module):
    """Two padded images in, the fields of both views out.

    Args:
        model: a network with MatchAttention in its blocks; it is copied.
        dtype: of weights and features; positions, their sums and the residual state are fp32 always.
    """

    def __init__(self, model: MatchNetwork, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
        self.config, self.dtype = model.config, dtype
        self.stages = nn.ModuleList(
            nn.ModuleList(Block(block, dtype) for block in stage)  # type: ignore[attr-defined]
            for stage in model.stages
        )
        self.fields = nn.ModuleList(FieldUpsampling(part, dtype) for part in model.field_upsamplings)  # type: ignore[arg-type]
        self.features = nn.ModuleList(FeatureStep(part, dtype) for part in model.feature_upsamplings)  # type: ignore[arg-type]
        self.final = FieldUpsampling(model.final_upsampling, dtype)
        self.encoder = model.encoder.to(dtype)
        self.initial = model.initial
        bin_score = getattr(self.initial, "bin_score", None)
        self.initial.to(dtype)
        if bin_score is not None:
            self.initial.bin_score.data = bin_score.detach().float()

    def forward(self, first: Tensor, second: Tensor, initial: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Match two images whose sides are multiples of 32.

        Args:
            first: (N, 3, H, W) fp32 in [0, 255], left view or first frame.
            second: the other view or frame.
            initial: (2N, H / 32, W / 32, 2) fp32, positions to start from in tokens of 1/32, of the first views and
                then of the second ones; where it is not a number the network starts from its own estimate.

        Returns:
            Stereo: disparity of the left and of the right view, each (N, H, W) fp32 px, not negative.
            Flow: from the first frame to the second and back, each (N, 2, H, W) fp32 px.
        """
        if initial is not None:
            # Tells the tracer that sides are multiples of 32: all later sizes then are simple, and tracing quick.
            views, rows, columns, _ = initial.shape
            torch._check(views == 2 * first.shape[0])
            for image in (first, second):
                torch._check(image.shape[0] == first.shape[0])
                torch._check(image.shape[2] == 32 * rows)
                torch._check(image.shape[3] == 32 * columns)
        images = (torch.cat((first, second)) / 127.5 - 1).to(self.dtype)
        encoded = self.encoder(images)
        features = self.initial.aggregate(encoded[-1])
        cross = self.initial(features).position
        if initial is not None:
            cross = torch.where(torch.isnan(initial), cross, initial)
        heads = self.config.heads
        mean = torch.zeros_like(cross)
        for index, (stage, window) in enumerate(zip(self.stages, self.config.windows)):
            state = torch.cat((features.float(), cross, *[mean] * heads), -1)
            place = Map(state, window, heads)
            for block in stage:  # type: ignore[attr-defined]
                state = block(state, place)
            width = features.shape[-1]
            features = state[..., :width].to(self.dtype)
            cross = state[..., width : width + 2]
            if index < len(self.fields):
                mean = state[..., width + 2 :].unflatten(-1, (heads, 2)).mean(-2)
                cross, mean = self.fields[index](features, torch.cat((cross, mean), -1)).chunk(2, -1)
                features = self.features[index](features, encoded[-2 - index])
        if self.config.task == "stereo":
            x = self.final(features, cross[..., :1]).squeeze(-1)
            left, right = split_views(x)
            return F.relu(-left), F.relu(right)
        return split_views(as_image(self.final(features, cross)))


class FeatureStep(nn.Module):
    """`FeatureUpsampling` by PyTorch's own transposed convolution."""

    def __init__(self, plain: FeatureUpsampling, dtype: torch.dtype) -> None:
        super().__init__()
        self.up, self.join, self.smooth = plain.up.to(dtype), plain.join.to(dtype), plain.smooth.to(dtype)

    def forward(self, coarse: Tensor, encoded: Tensor) -> Tensor:
        joined = torch.cat((as_image(encoded), self.up(as_image(coarse))), 1)
        return as_tokens(self.smooth(F.relu(self.join(joined))))


class FieldUpsampling(nn.Module):
    """`ConvexUpsampling`: the nine neighbours come from one convolution, their combination is one product."""

    def __init__(self, plain: ConvexUpsampling, dtype: torch.dtype) -> None:
        super().__init__()
        self.factor, self.border = plain.factor, plain.border
        self.head = plain.head.to(dtype)
        area = plain.factor**2
        # From neighbour-major to pixel-major: the softmax over neighbours then runs over the last axis.
        weight = plain.weights.weight.flatten(1).view(9, area, -1).transpose(0, 1).flatten(0, 1)
        self.weight = nn.Parameter(weight.t().contiguous().to(dtype))
        bias = plain.weights.bias
        assert bias is not None
        self.bias = nn.Parameter(bias.view(9, area).t().flatten().to(dtype))

    def forward(self, features: Tensor, field: Tensor) -> Tensor:
        """A field (2B, H, W, C) with values times the factor, the factor finer."""
        factor, channels = self.factor, field.shape[-1]
        hidden = as_tokens(F.relu(self.head(as_image(features))))
        logits = (hidden @ self.weight + self.bias).float()
        weights = logits.unflatten(-1, (factor**2, 9)).softmax(-1)  # (2B, H, W, factor², 9)
        image = as_image(field * factor)
        padded = F.pad(image, (1, 1, 1, 1), mode="replicate" if self.border == "replicate" else "constant")
        pick = torch.eye(9).view(9, 1, 3, 3).repeat(channels, 1, 1, 1)
        neighbours = as_tokens(F.conv2d(padded, pick, groups=channels)).unflatten(-1, (channels, 9))
        fine = weights @ neighbours.transpose(-1, -2)  # (2B, H, W, factor², C)
        grid = fine.unflatten(3, (factor, factor)).transpose(2, 3)  # (2B, H, factor, W, factor, C)
        return grid.flatten(3, 4).flatten(1, 2)
