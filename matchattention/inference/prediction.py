"""What a predictor returns."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from matchattention.errors import InputError
from matchattention.inference.fields import FieldTensors, OnDevice, on_device, to_array
from matchattention.models.network import Matches

if TYPE_CHECKING:
    from matchattention.geometry.camera import StereoCamera

FloatImage = NDArray[np.float32]


@dataclass(frozen=True, repr=False)
class Prediction:
    """The matches of a pair, both ways; or of a batch, whose arrays have one axis more in front.

    Arrays are made when they are first read; `tensors` has the same on the device where they were computed.

    Attributes:
        task: "stereo" or "flow".
        relative_position: (H, W, 2) px, offset from each pixel of the first view to its match in the second,
            as the network found it, before any clean-up.
        relative_position_right: the same from the second view to the first.
        occlusion: (H, W) bool, pixels of the first view without a partner in the second: the match is out of
            view, or it does not point back.
        confidence: (H, W) in [0, 1]: the probability that a match is within 1 px, where a head for it belongs to the
            network; else left-right agreement, see `matchattention.geometry.confidence`.
        matches: the network's full answer where `trace=True` asked for it.
        image: (H, W, 3) uint8, the first view, for the colours of points; None where it was not kept.
        agreement: (H, W) in [0, 1], left-right agreement; None where it is the confidence itself.
        error: (H, W) px, what the error of a match stays within with 68.3 % probability; None without a head.
    """

    task: str
    relative_position: FloatImage = OnDevice()  # type: ignore[assignment]  # noqa: RUF009
    relative_position_right: FloatImage = OnDevice()  # type: ignore[assignment]  # noqa: RUF009
    occlusion: NDArray[np.bool_] = OnDevice()  # type: ignore[assignment]  # noqa: RUF009
    confidence: FloatImage = OnDevice()  # type: ignore[assignment]  # noqa: RUF009
    matches: Matches | None = None
    image: NDArray[np.uint8] | None = field(default=None, compare=False)
    agreement: FloatImage | None = OnDevice(optional=True)  # type: ignore[assignment]  # noqa: RUF009
    error: FloatImage | None = OnDevice(optional=True)  # type: ignore[assignment]  # noqa: RUF009

    def __repr__(self) -> str:
        width, height = self.size
        if self.task == "stereo":
            low, high = np.percentile(self.disparity, (1, 99)) if self.disparity.size else (0, 0)
            values = f"disparity {low:.1f} to {high:.1f} px"
        else:
            values = f"motion up to {np.hypot(*np.moveaxis(self.flow, -1, 0)).max(initial=0):.1f} px"
        occluded = self.occlusion.mean() if self.occlusion.size else 0
        return f"<{self.task} prediction {width}x{height}: {values}, {occluded:.0%} occluded>"

    @property
    def tensors(self) -> FieldTensors:
        """The fields as tensors, on the device of the images where those were tensors, else the predictor's."""
        return FieldTensors(*(on_device(self, name) for name in FieldTensors._fields))  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Prediction:
        """One pair of a batch."""
        if self.tensors.occlusion.dim() == 2:
            raise InputError("This is the prediction of one pair, not of a batch: use it as it is.")
        image = None if self.image is None else self.image[index]
        return of_tensors(self.task, self.tensors.pair(index), image)

    @cached_property
    def disparity(self) -> FloatImage:
        """(H, W) px of the left view, positive: the match of pixel x is at x - disparity in the right image."""
        self._require("stereo", "disparity", "flow")
        return to_array(self.tensors.disparity)

    @cached_property
    def disparity_right(self) -> FloatImage:
        """(H, W) px of the right view, positive: the match of pixel x is at x + disparity in the left image."""
        self._require("stereo", "disparity_right", "flow")
        return to_array(self.tensors.disparity_right)

    @property
    def flow(self) -> FloatImage:
        """(H, W, 2) px, motion (u, v) from the first frame to the second."""
        self._require("flow", "flow", "disparity")
        return self.relative_position

    def depth(self, camera: StereoCamera) -> FloatImage:
        """(H, W) distance along the optical axis in metres; inf where the disparity leaves none.

        A camera that was calibrated at another size of the same shape is scaled to fit, with a warning.
        """
        return camera.fitting(*self.size).depth(self.disparity)

    def depth_error(self, camera: StereoCamera) -> FloatImage:
        """(H, W) one-sigma error of `depth` in metres; a head's where there is one, else from left-right agreement."""
        return camera.fitting(*self.size).depth_error(self.disparity, self.confidence, error=self.error)

    def points(
        self, camera: StereoCamera, *, min_confidence: float = 0.5, max_depth: float = np.inf
    ) -> tuple[FloatImage, NDArray[np.uint8]]:
        """3D points in the left camera's frame (x right, y down, z forward, metres) and their colours.

        Args:
            camera: the calibration; scaled to fit as in `depth`.
            min_confidence: points whose confidence is lower are left out, as are pixels that hang between surfaces.
            max_depth: metres beyond which points are left out.

        Returns:
            points (N, 3) float32 and colours (N, 3) uint8.
        """
        self._require_one_pair("points")
        return camera.fitting(*self.size).points(
            self.disparity, self.image, confidence=self.confidence, min_confidence=min_confidence, max_depth=max_depth
        )

    def save(
        self,
        folder: str | os.PathLike[str],
        camera: StereoCamera | None = None,
        *,
        min_confidence: float = 0.5,
        max_depth: float = np.inf,
        only: str | Iterable[str] | None = None,
    ) -> list[Path]:
        """Write the files that `matchattention predict` writes, all or none of them.

        Args:
            folder: made where it is missing; results of another pair in it are replaced.
            camera: adds depth and the point cloud; scaled to fit as in `depth`.
            min_confidence: of the cloud's points.
            max_depth: metres beyond which the cloud has no points.
            only: kinds of results, as `--only` takes them ("disparity", "depth", "cloud" …); None: all.

        Returns:
            the files, most useful first.
        """
        from matchattention import __version__
        from matchattention.inference.outputs import require_writable, write_prediction

        self._require_one_pair("save")
        require_writable(Path(folder))
        fitting = None if camera is None else camera.fitting(*self.size)
        return write_prediction(
            Path(folder), self, {"version": __version__, "task": self.task}, fitting,
            min_confidence=min_confidence, max_depth=max_depth, only=only,
        )  # fmt: skip

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in px."""
        height, width = self.tensors.occlusion.shape[-2:]
        return width, height

    def _require_one_pair(self, method: str) -> None:
        if self.tensors.occlusion.dim() == 3:
            raise InputError(f"This is the prediction of a batch: use result[i].{method}(…) for one pair of it.")

    def _require(self, task: str, asked: str, instead: str) -> None:
        if self.task != task:
            raise InputError(f"A {self.task} model has no {asked}: use .{instead}, or load a {task} model.")


def of_tensors(
    task: str, tensors: FieldTensors, image: NDArray[np.uint8] | None = None, matches: Matches | None = None
) -> Prediction:
    """A prediction whose fields stay on their device until they are read."""
    fields = tensors._asdict()
    return Prediction(task, **fields, matches=matches, image=image)  # type: ignore[arg-type]
