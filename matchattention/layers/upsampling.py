"""From a coarse scale to the next finer one: features by transposed convolution, fields convexly."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.batch_norm import BatchNorm
from matchattention.layers.tokens import as_image, as_tokens, positions_dtype


class FeatureUpsampling(nn.Module):
    """Coarse tokens twice as fine, joined with the encoder's.

    Attributes:
        norm: None, or what a training puts between the joining layer and its ReLU; it folds into that layer.
    """

    norm: BatchNorm | None

    def __init__(self, coarse: int, fine: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(coarse, fine, 2, stride=2)
        self.join = nn.Conv2d(2 * fine, fine, 1)
        self.smooth = nn.Conv2d(fine, fine, 3, padding=1)
        self.register_module("norm", None)

    def forward(self, coarse: Tensor, encoded: Tensor) -> Tensor:
        mixed = self._join(self.joined(coarse, encoded))
        if self.norm is not None:
            mixed = self.norm(mixed)
        return as_tokens(self.smooth(as_image(F.relu(mixed))))

    @property
    def normed(self) -> nn.Conv2d:
        """The layer that a norm belongs to."""
        return self.join

    def joined(self, coarse: Tensor, encoded: Tensor) -> Tensor:
        """The encoder's tokens and the coarse ones brought to their scale, side by side."""
        return torch.cat((encoded, self._up(coarse)), -1)

    def _up(self, tokens: Tensor) -> Tensor:
        """The transposed convolution as one matrix product: its 2x2 patches do not overlap."""
        batch, height, width, _ = tokens.shape
        matrix = self.up.weight.permute(2, 3, 1, 0).flatten(0, 2)  # (2 * 2 * fine, coarse)
        patches = F.linear(tokens, matrix).view(batch, height, width, 2, 2, -1)
        patches = patches + self.up.bias.to(patches.dtype)  # type: ignore[union-attr]
        return patches.transpose(2, 3).reshape(batch, 2 * height, 2 * width, -1)

    def _join(self, tokens: Tensor) -> Tensor:
        return F.linear(tokens, self.join.weight.flatten(1), self.join.bias)


class ConvexUpsampling(nn.Module):
    """Each fine value is a learned convex combination of its 3x3 coarse neighbours.

    Args:
        channels: of the coarse features that predict the weights.
        hidden: channels of the weight head.
        factor: how much finer.
        border: "replicate" repeats edge values; "zero" pulls fields towards zero there, as the released
            networks were trained with.

    Attributes:
        norm: None, or what a training puts between the head and its ReLU; it folds into the head.
    """

    norm: BatchNorm | None

    def __init__(self, channels: int, hidden: int, factor: int, border: str = "replicate") -> None:
        super().__init__()
        self.factor = factor
        self.border = border
        self.head = nn.Conv2d(channels, hidden, 3, padding=1)
        self.weights = nn.Conv2d(hidden, 9 * factor * factor, 1)
        self.register_module("norm", None)

    @property
    def normed(self) -> nn.Conv2d:
        """The layer that a norm belongs to."""
        return self.head

    def forward(self, features: Tensor, *fields: Tensor) -> tuple[Tensor, ...]:
        """Upsample fields (B, H, W, C) of positions with one set of weights; values grow with the factor."""
        weights = self.neighbour_weights(features)
        return tuple(self._combine(weights, field) for field in fields)

    def neighbour_weights(self, features: Tensor) -> Tensor:
        """(B, H, W, 9, factor * factor), sums to one over the nine neighbours."""
        hidden = as_tokens(self.head(as_image(features)))
        if self.norm is not None:
            hidden = self.norm(hidden)
        logits = F.linear(F.relu(hidden), self.weights.weight.flatten(1), self.weights.bias)
        return logits.to(positions_dtype(logits)).unflatten(-1, (9, -1)).softmax(-2)

    def _combine(self, weights: Tensor, field: Tensor) -> Tensor:
        batch, height, width, channels = field.shape
        image = as_image(field * self.factor)
        padded = as_tokens(
            F.pad(image, (1, 1, 1, 1), mode="replicate") if self.border == "replicate" else F.pad(image, (1, 1, 1, 1))
        )
        total = torch.zeros(batch, height, width, self.factor**2, channels, dtype=field.dtype, device=field.device)
        for index in range(9):
            dy, dx = divmod(index, 3)
            neighbour = padded[:, dy : dy + height, dx : dx + width]
            total = total + weights[:, :, :, index].unsqueeze(-1) * neighbour.unsqueeze(-2)
        grid = total.view(batch, height, width, self.factor, self.factor, channels)
        return grid.transpose(2, 3).reshape(batch, height * self.factor, width * self.factor, channels)
