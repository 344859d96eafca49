"""What a predictor returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from matchattention.errors import InputError
from matchattention.models.network import Matches

FloatImage = NDArray[np.float32]


@dataclass(frozen=True)
class Prediction:
    """The matches of a pair, both ways.

    Attributes:
        task: "stereo" or "flow".
        relative_position: (H, W, 2) px, offset from each pixel of the first view to its match in the second,
            as the network found it, before any clean-up.
        relative_position_right: the same from the second view to the first.
        occlusion: (H, W) bool, pixels of the first view without a partner in the second: the match is out of
            view, or it does not point back.
        confidence: (H, W) in [0, 1], see `matchattention.geometry.confidence`.
        matches: the network's full answer where `trace=True` asked for it.
    """

    task: str
    relative_position: FloatImage
    relative_position_right: FloatImage
    occlusion: NDArray[np.bool_]
    confidence: FloatImage
    matches: Matches | None = field(default=None, repr=False)

    @cached_property
    def disparity(self) -> FloatImage:
        """(H, W) px of the left view, positive: the match of pixel x is at x - disparity in the right image."""
        self._require("stereo", "disparity", "flow")
        return np.maximum(-self.relative_position[..., 0], 0)

    @cached_property
    def disparity_right(self) -> FloatImage:
        """(H, W) px of the right view, positive: the match of pixel x is at x + disparity in the left image."""
        self._require("stereo", "disparity_right", "flow")
        return np.maximum(self.relative_position_right[..., 0], 0)

    @property
    def flow(self) -> FloatImage:
        """(H, W, 2) px, motion (u, v) from the first frame to the second."""
        self._require("flow", "flow", "disparity")
        return self.relative_position

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in px."""
        return self.occlusion.shape[1], self.occlusion.shape[0]

    def _require(self, task: str, asked: str, instead: str) -> None:
        if self.task != task:
            raise InputError(f"A {self.task} model has no {asked}: use .{instead}, or load a {task} model.")
