"""A network that knows the answer: it reads the disparity off the images' blue channel."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from matchattention.models.config import NetworkConfig
from matchattention.models.network import Matches

TINY = NetworkConfig(
    channels=(16, 16, 16, 16), encoder_depths=(1, 1, 1, 1), decoder_depths=(1, 1, 1, 1), initial_layers=1
)


class Oracle(nn.Module):
    """Blue / 4 is the disparity of each view. Remembers the calls it got."""

    def __init__(self, most_pixels: float = float("inf"), error: BaseException | None = None) -> None:
        super().__init__()
        self.config = TINY
        self.encoder = nn.Identity()
        self.most_pixels = most_pixels
        self.error = error or torch.OutOfMemoryError("simulated")
        self.calls: list[tuple[int, int, bool]] = []

    def __deepcopy__(self, memo: dict) -> Oracle:
        return self  # so that a test sees the calls that the predictor's copy got

    def forward(self, image0: Tensor, image1: Tensor, initial: Tensor | None = None) -> Matches:
        height, width = image0.shape[-2:]
        self.calls.append((height, width, initial is not None))
        if height * width > self.most_pixels:
            raise self.error
        # Blue counts full-resolution px; a halved image has half of them.
        scale = width / self.full_width
        disparity = torch.cat([-image0[:, 2], image1[:, 2]]) / 4 * scale
        field = torch.stack([disparity, torch.zeros_like(disparity)], -1)
        return Matches(field, torch.zeros(2, 1, 1, 4, 2), (), None)

    full_width: int = 1

    def knowing(self, width: int) -> Oracle:
        self.full_width = width
        return self


def encoded(disparity_left: np.ndarray, disparity_right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Noise images whose blue channel holds four times the disparity."""
    generator = np.random.default_rng(0)
    views = []
    for disparity in (disparity_left, disparity_right):
        image = generator.integers(0, 256, (*disparity.shape, 3), dtype=np.uint8)
        image[..., 2] = np.rint(4 * disparity)
        views.append(image)
    return views[0], views[1]
