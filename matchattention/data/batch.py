"""What a training step consumes, whatever made it."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """Stereo or flow pairs with the ground truth of both views, on one device.

    Attributes:
        image0: (B, 3, H, W) float in [0, 255], left view or first frame.
        image1: (B, 3, H, W) float in [0, 255], right view or second frame.
        field0: (B, H, W, 2) fp32 px, offset from a pixel of view 0 to its match in view 1.
        field1: (B, H, W, 2) fp32 px, offset from a pixel of view 1 to its match in view 0.
        valid0: (B, H, W) bool, where field0 is known.
        valid1: (B, H, W) bool, where field1 is known.
        occluded0: (B, H, W) bool, match hidden or out of view; None when nobody knows.
        occluded1: (B, H, W) bool, the same for view 1.
    """

    image0: Tensor
    image1: Tensor
    field0: Tensor
    field1: Tensor
    valid0: Tensor
    valid1: Tensor
    occluded0: Tensor | None = None
    occluded1: Tensor | None = None
