"""The network, top to bottom: two images in, one field of relative positions per view out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.errors import InputError
from matchattention.layers.block import BlockConfig, MATBlock
from matchattention.layers.confidence_head import LastStage
from matchattention.layers.encoder import Encoder
from matchattention.layers.families import MatchAttention
from matchattention.layers.initial import Initial, TransportEstimate
from matchattention.layers.initial_softmax import SoftmaxEstimate
from matchattention.layers.tokens import as_image, as_tokens, positions_dtype
from matchattention.layers.upsampling import ConvexUpsampling, FeatureUpsampling
from matchattention.models.config import NetworkConfig

SCALES = (32, 16, 8, 4)  # px per token, in the decoder's order
COARSEST = SCALES[0]
# Above this many px a side the network first runs at half resolution to find its start.
LARGE = 2048


class Step(NamedTuple):
    """One supervised field.

    Attributes:
        scale: px per token.
        kind: "self" or "cross", the attention it comes from; a field right after an upsampling counts as "self".
        position: (2B, h, w, 2) fp32 cross position, tokens of ``scale``.
    """

    scale: int
    kind: str
    position: Tensor


class Matches(NamedTuple):
    """What a network finds; both views are stacked on the batch axis.

    Attributes:
        field: (2B, H, W, 2) fp32 px, offset from each pixel to its match in the other view.
        self_position: (2B, h, w, heads, 2) fp32, where tokens of 1/4 look in their own view. A window of one row stays
            in its token's row: its y steers nothing and is one more feature.
        steps: every supervised field in order, on the padded image.
        initial: the estimate at 1/32.
        features: (2B, h, w, d) the last tokens of 1/4, which a confidence head reads; None from networks without them.
    """

    field: Tensor
    self_position: Tensor
    steps: tuple[Step, ...]
    initial: Initial
    features: Tensor | None = None

    @property
    def last_stage(self) -> LastStage | None:
        """What a confidence head reads; None from a network that does not keep its features."""
        positions = [step.position for step in self.steps if step.scale == SCALES[-1]]
        if self.features is None or not positions:
            return None
        return LastStage(self.features, positions[0], positions[-1])


class MatchNetwork(nn.Module):
    """Stereo or flow by MatchAttention; see NetworkConfig for every choice."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        stereo = config.task == "stereo"
        widths = config.channels[::-1]
        self.encoder = Encoder(config.channels, config.encoder_depths, config.residual_scales)
        self.initial: TransportEstimate | SoftmaxEstimate
        if config.initial == "transport":
            self.initial = TransportEstimate(
                widths[0],
                config.heads,
                config.compression,
                stereo,
                config.initial_layers,
                config.sinkhorn_iterations,
            )
        else:
            self.initial = SoftmaxEstimate(widths[0], stereo)
        self.stages = nn.ModuleList(
            nn.ModuleList(
                MATBlock(_block_config(config, width, window, depth), config.first_attention) for depth in range(count)
            )
            for width, window, count in zip(widths, config.windows, config.decoder_depths)
        )
        border = config.upsampling_border
        self.feature_upsamplings = nn.ModuleList(
            FeatureUpsampling(coarse, fine) for coarse, fine in zip(widths[:-1], widths[1:])
        )
        self.field_upsamplings = nn.ModuleList(ConvexUpsampling(coarse, coarse, 2, border) for coarse in widths[:-1])
        self.final_upsampling = ConvexUpsampling(widths[-1], 2 * widths[-1], SCALES[-1], border)

    def use_backend(self, name: str) -> MatchNetwork:
        """Choose the operator's backend for every block: "auto", "reference", "planes", "triton", "compile"."""
        for module in self.modules():
            if isinstance(module, MatchAttention):
                module.backend = name
        return self

    def forward(self, image0: Tensor, image1: Tensor, initial: Tensor | None = None) -> Matches:
        """Match two images.

        Args:
            image0: (B, 3, H, W) in [0, 255], left view or first frame.
            image1: the same for the right view or second frame.
            initial: (2B, H, W, 2) px, a field to start from (a video's last one) instead of the correlation.
        """
        height, width = image0.shape[-2:]
        if image0.shape != image1.shape or image0.dim() != 4 or image0.shape[1] != 3:
            raise InputError(
                f"Both images must be (B, 3, H, W) of one size; got {tuple(image0.shape)} and {tuple(image1.shape)}."
            )
        if initial is None and max(height, width) > LARGE:
            initial = coarse_field(lambda *halves: self(*halves).field, image0, image1)
        images = pad_image(torch.cat((image0, image1)) / 127.5 - 1)
        encoded = self.encoder(images.to(memory_format=torch.channels_last))
        features = self.initial.aggregate(encoded[-1])
        start = self.initial(features) if initial is None else Initial(at_tokens(initial), None)
        cross = start.position
        # Zero, but differentiable and dense like every later one: blocks of one shape then share compiled code.
        self_position = cross.unsqueeze(-2).repeat(1, 1, 1, self.config.heads, 1) * 0

        steps: list[Step] = []
        for index, (scale, stage) in enumerate(zip(SCALES, self.stages)):
            for block in stage:  # type: ignore[attr-defined]
                features, after_self, cross, self_position = block(features, cross, self_position)
                steps += [Step(scale, "self", after_self), Step(scale, "cross", cross)]
            if index < len(SCALES) - 1:
                upsample = self.field_upsamplings[index]
                cross, mean = upsample(features, cross, self_position.mean(-2))
                self_position = mean.unsqueeze(-2).repeat(1, 1, 1, self.config.heads, 1)
                features = self.feature_upsamplings[index](features, encoded[-2 - index])
                steps.append(Step(SCALES[index + 1], "self", cross))
        (field,) = self.final_upsampling(features, cross)
        return Matches(crop_field(field, height, width), self_position, tuple(steps), start, features)


def coarse_field(find: Callable[[Tensor, Tensor], Tensor], image0: Tensor, image1: Tensor) -> Tensor:
    """The field that ``find`` sees at half resolution, at full resolution: (2B, H, W, 2) px."""
    return enlarged(find(halved(image0), halved(image1)), *image0.shape[-2:])


def halved(image: Tensor) -> Tensor:
    """(B, C, H, W) to (B, C, ⌈H/2⌉, ⌈W/2⌉) fp32, the mean of each 2x2."""
    return F.avg_pool2d(image.float(), 2, ceil_mode=True, count_include_pad=False)


def enlarged(field: Tensor, height: int, width: int) -> Tensor:
    """A field (2B, h, w, 2) of halved images at the size they came from, in its px."""
    doubled = F.interpolate(as_image(field) * 2, scale_factor=2, mode="bilinear", align_corners=False)
    return as_tokens(doubled[..., :height, :width]).contiguous()


def _block_config(config: NetworkConfig, width: int, window: tuple[int, int], depth: int) -> BlockConfig:
    return BlockConfig(
        channels=width,
        heads=config.heads,
        compression=config.compression,
        window=window,
        similarity=config.similarity,
        attention=config.attention,
        gate=config.gate,
        self_sees_cross=config.self_sees_cross,
        self_mask=config.self_mask,
        keep_y=config.task == "flow",
        depth=depth,
    )


def pad_image(image: Tensor) -> Tensor:
    """Repeat the top row and the right column until both sides are multiples of 32."""
    height, width = image.shape[-2:]
    right, top = -width % COARSEST, -height % COARSEST
    return F.pad(image, (0, right, top, 0), mode="replicate") if right or top else image


def crop_field(field: Tensor, height: int, width: int) -> Tensor:
    """Undo :func:`pad_image` on a field (B, H, W, 2)."""
    return field[:, field.shape[1] - height :, :width]


def at_tokens(field: Tensor) -> Tensor:
    """A full-resolution field (2B, H, W, 2) in px, as positions of tokens at 1/32."""
    padded = pad_image(as_image(field.to(positions_dtype(field))))
    small = F.interpolate(padded, scale_factor=1 / COARSEST, mode="bilinear", align_corners=False)
    return as_tokens(small) / COARSEST
