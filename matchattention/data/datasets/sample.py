"""One pair of images with what is known about it; files are read when an attribute is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matchattention.data.formats import known_pixels
from matchattention.data.images import read_image
from matchattention.data.reading import read_text
from matchattention.errors import InputError

Image = NDArray[np.uint8]
Field = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class StereoSample:
    """A rectified pair. The ``load_*`` functions are ``functools.partial`` objects, so samples pickle.

    Attributes:
        name: unique within its dataset; predictions and pictures are filed under it.
        left_path: the left image.
        right_path: the right image.
        load_disparity: the left view's ``(H, W)`` px, unknown = inf; None where there is no ground truth.
        load_disparity_right: the right view's, positive.
        load_non_occluded: ``(H, W)`` left pixels that the right view sees.
        load_foreground: ``(H, W)`` pixels of KITTI's moving objects.
        camera_path: the calibration file.
    """

    name: str
    left_path: Path
    right_path: Path
    load_disparity: Callable[[], Field] | None = None
    load_disparity_right: Callable[[], Field] | None = None
    load_non_occluded: Callable[[], Mask] | None = None
    load_foreground: Callable[[], Mask] | None = None
    camera_path: Path | None = None

    @cached_property
    def left(self) -> Image:
        """``(H, W, 3)`` uint8 RGB."""
        return read_image(self.left_path)

    @cached_property
    def right(self) -> Image:
        """``(H, W, 3)`` uint8 RGB."""
        return read_image(self.right_path)

    @cached_property
    def disparity(self) -> Field | None:
        """``(H, W)`` float32 px of the left view, unknown = inf."""
        if self.load_disparity is None:
            return None
        return _fitting(self.load_disparity(), self.left, self.name, "disparity")

    @cached_property
    def disparity_right(self) -> Field | None:
        """``(H, W)`` float32 px of the right view, positive, unknown = inf."""
        if self.load_disparity_right is None:
            return None
        return _fitting(self.load_disparity_right(), self.right, self.name, "right disparity")

    @cached_property
    def valid(self) -> Mask | None:
        """``(H, W)`` where the left disparity is known."""
        return None if self.disparity is None else known_pixels(self.disparity)

    @cached_property
    def non_occluded(self) -> Mask | None:
        """``(H, W)`` left pixels that the right view sees, where the dataset says so."""
        if self.load_non_occluded is None:
            return None
        return _fitting(self.load_non_occluded(), self.left, self.name, "occlusion mask")

    @cached_property
    def foreground(self) -> Mask | None:
        """``(H, W)`` pixels of moving objects, where the dataset marks them."""
        if self.load_foreground is None:
            return None
        return _fitting(self.load_foreground(), self.left, self.name, "object map")

    @cached_property
    def camera(self) -> str | None:
        """The calibration file's text."""
        return None if self.camera_path is None else read_text(self.camera_path)


@dataclass(frozen=True)
class FlowSample:
    """Two frames of a video.

    Attributes:
        name: unique within its dataset.
        frame1_path: the first frame.
        frame2_path: the second frame.
        load_flow: flow of the first frame ``(H, W, 2)`` px as (u, v), unknown = inf.
        load_non_occluded: ``(H, W)`` pixels of the first frame that the second one sees.
        load_disparity_change: ``(H, W)`` px, what the left disparity gains until the second frame.
    """

    name: str
    frame1_path: Path
    frame2_path: Path
    load_flow: Callable[[], Field] | None = None
    load_non_occluded: Callable[[], Mask] | None = None
    load_disparity_change: Callable[[], Field] | None = None

    @cached_property
    def frame1(self) -> Image:
        """``(H, W, 3)`` uint8 RGB."""
        return read_image(self.frame1_path)

    @cached_property
    def frame2(self) -> Image:
        """``(H, W, 3)`` uint8 RGB."""
        return read_image(self.frame2_path)

    @cached_property
    def flow(self) -> Field | None:
        """``(H, W, 2)`` float32 px, unknown = inf."""
        if self.load_flow is None:
            return None
        return _fitting(self.load_flow(), self.frame1, self.name, "flow")

    @cached_property
    def valid(self) -> Mask | None:
        """``(H, W)`` where the flow is known."""
        return None if self.flow is None else known_pixels(self.flow)

    @cached_property
    def non_occluded(self) -> Mask | None:
        """``(H, W)`` pixels of the first frame that the second one sees, where the dataset says so."""
        if self.load_non_occluded is None:
            return None
        return _fitting(self.load_non_occluded(), self.frame1, self.name, "occlusion mask")

    @cached_property
    def disparity_change(self) -> Field | None:
        """``(H, W)`` float32 px, unknown = inf."""
        if self.load_disparity_change is None:
            return None
        return _fitting(self.load_disparity_change(), self.frame1, self.name, "disparity change")


def _fitting(array: NDArray, image: Image, name: str, what: str) -> NDArray:
    if array.shape[:2] != image.shape[:2]:
        raise InputError(
            f"The {what} of {name} is {array.shape[1]} x {array.shape[0]} px but its image is"
            f" {image.shape[1]} x {image.shape[0]}: they belong to different sizes of the dataset"
        )
    return array
