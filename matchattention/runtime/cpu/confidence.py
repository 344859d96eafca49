"""A confidence head whose last layers go through the image in bands."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.confidence_head import SCALE, ConfidenceHead

PIXELS_AT_ONCE = 1 << 14  # their channels stay in a core's cache


class BandedHead(ConfidenceHead):
    """A `ConfidenceHead` for inference: sixteen channels of a whole image never stand in memory."""

    def decided(self, hidden: Tensor, pixels: Tensor) -> Tensor:
        images, _, height, width = hidden.shape
        out = pixels.new_empty(images, self.decide.out_channels, *pixels.shape[2:])
        rows = max(1, PIXELS_AT_ONCE // (SCALE**2 * width))
        for image in range(images):
            for top in range(0, height, rows):
                band = slice(SCALE * top, SCALE * min(top + rows, height))
                handed = _product(self.hand_down, hidden[image, :, top : top + rows])
                own = torch.cat((F.pixel_shuffle(handed, SCALE), pixels[image, :, band]))
                out[image, :, band] = _product(self.decide, _product(self.mix, own).relu_())
        return out


def _product(layer: nn.Conv2d, planes: Tensor) -> Tensor:
    """A 1x1 convolution of (C, h, w)."""
    assert layer.bias is not None
    made = torch.addmm(layer.bias[:, None], layer.weight.flatten(1), planes.flatten(1))
    return made.unflatten(1, planes.shape[1:])


def banded(head: ConfidenceHead) -> BandedHead:
    """The same head in bands."""
    made = BandedHead(**head.shape)
    made.load_state_dict(head.state_dict())
    return made.eval().requires_grad_(False)
