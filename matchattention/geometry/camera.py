"""A rectified stereo camera: what turns disparity into metres."""

from __future__ import annotations

import os
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.errors import InputError, InputWarning
from matchattention.geometry.cloud import flying_pixel_mask
from matchattention.geometry.confidence import disagreement_of

FloatImage = NDArray[np.floating[Any]]

# No estimate claims to be better than this: two views that agree can still be wrong together.
_FINEST_DISPARITY_ERROR = 0.25  # px
_LARGEST_EXTENT = 10**6  # px
_SMALLEST_BASELINE = 0.001  # metres: endoscopes have a few millimetres
LARGEST_BASELINE = 10.0  # metres: a longer one is most likely in millimetres


@dataclass(frozen=True)
class StereoCamera:
    """Two rectified pinhole cameras side by side.

    Attributes:
        fx: focal length in px.
        baseline: distance of the two centres in metres.
        cx: principal point of the left camera, px; None: the centre of the image.
        cy: the same, vertically.
        fy: vertical focal length in px; None: the same as `fx`.
        doffs: x of the right principal point minus x of the left, px, added to every disparity
            (Middlebury's name; zero when both views were rectified to the same centre).
        width: image width the numbers belong to, px; None: unknown.
        height: the same, vertically.
    """

    fx: float
    baseline: float
    cx: float | None = None
    cy: float | None = None
    fy: float | None = None
    doffs: float = 0.0
    width: int | None = None
    height: int | None = None

    def __post_init__(self) -> None:
        numbers = [value for value in asdict(self).values() if value is not None]
        if any(isinstance(value, bool) or not isinstance(value, int | float | np.number) for value in numbers):
            raise InputError("The camera has a value that is not a number: check the calibration file.")
        if not np.all(np.isfinite(numbers)):
            raise InputError("The camera has a number that is not finite: check the calibration file.")
        if self.fx <= 0 or (self.fy is not None and self.fy <= 0):
            raise InputError(f"The focal length must be positive, not {self.fx:g} px: check the calibration file.")
        if self.baseline <= 0:
            raise InputError(
                f"The baseline must be positive, not {self.baseline:g} m: it is the distance between the two cameras."
            )
        if self.baseline > LARGEST_BASELINE:
            warnings.warn(
                f"A baseline of {self.baseline:g} m is longer than any rig's: if the number is in millimetres, give "
                f"{self.baseline / 1000:g}.",
                InputWarning,
                stacklevel=3,
            )
        if self.baseline < _SMALLEST_BASELINE:
            warnings.warn(
                f"A baseline of {self.baseline:g} m is shorter than any rig's: check its unit, which is the metre, in "
                "Middlebury's calib.txt the millimetre.",
                InputWarning,
                stacklevel=3,
            )
        if any(extent is not None and not 0 < extent < _LARGEST_EXTENT for extent in (self.width, self.height)):
            raise InputError(f"The camera's image size {self.width}x{self.height} is none: check the calibration file.")

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        right: str | os.PathLike[str] | None = None,
        *,
        baseline: float | None = None,
    ) -> StereoCamera:
        """Read a calibration: Middlebury, KITTI, K.txt, OpenCV or ROS YAML, JSON. The format is recognised.

        Args:
            path: the file; of a ROS pair the left one.
            right: the right file of a ROS pair; found by its name when the left one's says "left".
            baseline: metres, in place of the file's (or where it tells none, as a K.txt without a second line).

        Raises:
            InputError: the file is missing or its format is not known.
        """
        from matchattention.geometry.calibration_files import read_stereo_camera

        return read_stereo_camera(Path(path), right, baseline)

    def depth(self, disparity: FloatImage) -> NDArray[np.float32]:
        """Distance along the optical axis in metres; inf where the disparity leaves none (zero or unknown).

        Args:
            disparity: (H, W) px of the left view.
        """
        disparity = np.asarray(disparity, np.float32)
        shifted = disparity + np.float32(self.doffs)
        known = np.isfinite(shifted) & (shifted > 0)
        depth = np.full(disparity.shape, np.inf, np.float32)
        np.divide(np.float32(self.fx * self.baseline), shifted, out=depth, where=known)
        return depth

    def disparity(self, depth: FloatImage) -> NDArray[np.float32]:
        """Disparity in px of a depth in metres: the inverse of `depth`."""
        depth = np.asarray(depth, np.float32)
        with np.errstate(divide="ignore"):
            return np.float32(self.fx * self.baseline) / depth - np.float32(self.doffs)

    def depth_error(
        self, disparity: FloatImage, confidence: FloatImage | None = None, *, error: FloatImage | None = None
    ) -> NDArray[np.float32]:
        """One-sigma error of `depth` in metres: Z² / (f·B) times the error of the disparity.

        Args:
            disparity: (H, W) px.
            confidence: (H, W) in [0, 1] of the same prediction; its disagreement between the two views is taken
                as the disparity's error. Without it every pixel counts as a good match, 0.25 px.
            error: (H, W) px, the disparity's one-sigma error where it is known: a `Prediction` may have it.
        """
        sigma = np.full(np.shape(disparity), _FINEST_DISPARITY_ERROR, np.float32)
        if error is not None:
            sigma = np.asarray(error, np.float32)
        elif confidence is not None:
            sigma = np.hypot(sigma, disagreement_of(confidence)).astype(np.float32)
        depth = self.depth(disparity)
        with np.errstate(invalid="ignore"):
            return depth**2 / np.float32(self.fx * self.baseline) * sigma

    def points(
        self,
        disparity: FloatImage,
        image: NDArray[Any] | None = None,
        *,
        confidence: FloatImage | None = None,
        min_confidence: float = 0.5,
        max_depth: float = np.inf,
        flying_pixels: bool = False,
    ) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """3D points of a disparity map in the left camera's frame: x right, y down, z forward, metres.

        Args:
            disparity: (H, W) px.
            image: (H, W, 3) or (H, W) uint8 the colours are taken from; without it points are grey.
            confidence: (H, W) in [0, 1]; with it, points under `min_confidence` are dropped.
            min_confidence: see `confidence`.
            max_depth: metres; points beyond are dropped.
            flying_pixels: whether to keep the pixels that hang in the air between an edge and its background.

        Returns:
            points (N, 3) float32 and colours (N, 3) uint8.
        """
        if not max_depth > 0:
            raise InputError(f"max_depth is a distance in metres: give a positive number, not {max_depth:g}.")
        if not 0 <= min_confidence <= 1:
            raise InputError(f"min_confidence is between 0 and 1, not {min_confidence:g}.")
        disparity = np.asarray(disparity, np.float32)
        height, width = disparity.shape
        self.check_size(width, height)
        depth = self.depth(disparity)
        keep = np.isfinite(depth) & (depth <= max_depth)
        if confidence is not None:
            keep &= np.asarray(confidence) >= min_confidence
        if not flying_pixels:
            keep &= ~flying_pixel_mask(disparity + np.float32(self.doffs))
        y, x = np.nonzero(keep)
        z = depth[keep]
        cx, cy = self.centre(width, height)
        fy = self.fx if self.fy is None else self.fy
        points = np.stack([(x - cx) / self.fx * z, (y - cy) / fy * z, z], axis=1).astype(np.float32)
        if image is None:
            return points, np.full((len(points), 3), 160, np.uint8)
        colours = np.asarray(image)
        if colours.shape[:2] != disparity.shape:
            raise InputError(
                f"The image ({colours.shape[1]}x{colours.shape[0]}) and the disparity ({width}x{height}) "
                "differ in size: give the image the disparity was computed from."
            )
        if colours.ndim == 2:
            colours = np.repeat(colours[..., None], 3, axis=2)
        return points, np.ascontiguousarray(colours[keep][:, :3].astype(np.uint8))

    def centre(self, width: int, height: int) -> tuple[float, float]:
        """Principal point (cx, cy) in px; the image's centre where the calibration does not tell."""
        return (
            (width - 1) / 2 if self.cx is None else self.cx,
            (height - 1) / 2 if self.cy is None else self.cy,
        )

    def check_size(self, width: int, height: int) -> None:
        """Refuse images of another size than the calibration's: every number of it would be wrong."""
        known = self.width is not None and self.height is not None
        if known and (self.width, self.height) != (width, height):
            raise InputError(
                f"The calibration is for {self.width}x{self.height} images, this one is {width}x{height}: "
                f"if the images were resized, use camera.resized({width}, {height})."
            )

    def fitting(self, width: int, height: int) -> StereoCamera:
        """This camera for images of a size: resized ones are recognised by their shape, and it is said."""
        if self.width is None or (self.width, self.height) == (width, height):
            self._warn_of_centre(width, height)
            return self
        resized = self.resized(width, height)
        resized._warn_of_centre(width, height)
        warnings.warn(
            f"The calibration is for {self.width}x{self.height} images, these are {width}x{height}: scaled to fit.",
            InputWarning,
            stacklevel=2,
        )
        return resized

    def _warn_of_centre(self, width: int, height: int) -> None:
        cx, cy = self.centre(width, height)
        if not (0 <= cx < width and 0 <= cy < height):
            warnings.warn(
                f"The principal point ({cx:g}, {cy:g}) lies outside the image of {width}x{height}: check cx and cy; "
                "depth does not depend on them, the points' x and y do.",
                InputWarning,
                stacklevel=3,
            )

    def resized(self, width: int, height: int) -> StereoCamera:
        """The camera after both images were resized to `width` x `height`.

        Raises:
            InputError: the calibration does not say which size it is for, or the new shape is another crop.
        """
        if self.width is None or self.height is None:
            raise InputError("The calibration does not say for which image size it is: give width and height.")
        if abs(width / self.width - height / self.height) > 0.02 * width / self.width:
            raise InputError(
                f"{width}x{height} is not a resized {self.width}x{self.height}: cropped images need their own "
                "calibration (subtract the crop's corner from cx and cy)."
            )
        x, y = width / self.width, height / self.height
        return replace(
            self,
            fx=self.fx * x,
            fy=(self.fx if self.fy is None else self.fy) * y,
            cx=None if self.cx is None else (self.cx + 0.5) * x - 0.5,
            cy=None if self.cy is None else (self.cy + 0.5) * y - 0.5,
            doffs=self.doffs * x,
            width=width,
            height=height,
        )
