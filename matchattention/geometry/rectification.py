"""Raw pairs made rectified with an OpenCV stereo calibration."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.data.opencv import opencv
from matchattention.data.reading import MOST_TEXT, read_text, reads
from matchattention.errors import InputError
from matchattention.geometry.calibration_files import (
    from_projections,
    in_metres,
    yaml_matrices,
    yaml_size,
)
from matchattention.geometry.camera import StereoCamera

# What calibration tools call the same six matrices.
_NAMES = {
    "left_matrix": ("K1", "M1", "cameraMatrix1", "camera_matrix_1", "CM1", "left_camera_matrix"),
    "left_distortion": ("D1", "distCoeffs1", "dist_coeffs_1", "left_distortion"),
    "right_matrix": ("K2", "M2", "cameraMatrix2", "camera_matrix_2", "CM2", "right_camera_matrix"),
    "right_distortion": ("D2", "distCoeffs2", "dist_coeffs_2", "right_distortion"),
    "rotation": ("R", "rotation"),
    "translation": ("T", "translation"),
}
_DISTORTION_SIZES = (4, 5, 8, 12, 14)


@dataclass(frozen=True)
class RawCalibration:
    """What `cv2.stereoCalibrate` returns: two cameras and the way from the left to the right one.

    Attributes:
        left_matrix: (3, 3) px.
        left_distortion: 4, 5, 8, 12 or 14 coefficients of OpenCV's model.
        right_matrix: (3, 3) px.
        right_distortion: see `left_distortion`.
        rotation: (3, 3) from the left camera's frame to the right one's.
        translation: (3,) metres, the same way; x is negative for a right camera on the right.
        width: image width the numbers belong to, px; None: that of the images.
        height: the same, vertically.
    """

    left_matrix: NDArray[np.float64]
    left_distortion: NDArray[np.float64]
    right_matrix: NDArray[np.float64]
    right_distortion: NDArray[np.float64]
    rotation: NDArray[np.float64]
    translation: NDArray[np.float64]
    width: int | None = None
    height: int | None = None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> RawCalibration:
        """Read an OpenCV YAML with K1, D1, K2, D2, R, T (or the other usual names)."""
        return _read_raw_calibration(Path(path))


@reads("an OpenCV stereo calibration", "write K1, D1, K2, D2, R and T with cv2.FileStorage", MOST_TEXT)
def _read_raw_calibration(path: Path) -> RawCalibration:
    text = read_text(path)
    matrices = yaml_matrices(text)
    chosen = {}
    for attribute, names in _NAMES.items():
        found = next((name for name in names if name in matrices), None)
        if found is None:
            raise InputError(
                f"{path} has no {names[0]} (also looked for: {', '.join(names[1:])}); "
                "write K1, D1, K2, D2, R and T of cv2.stereoCalibrate with cv2.FileStorage."
            )
        chosen[attribute] = matrices[found]
    for name in ("left_matrix", "right_matrix", "rotation"):
        if chosen[name].shape != (3, 3):
            raise InputError(f"{path}: {_NAMES[name][0]} must be 3x3, not {chosen[name].shape}.")
    translation = chosen.pop("translation").ravel()
    if translation.size != 3:
        raise InputError(f"{path}: T must have 3 numbers, not {translation.size}.")
    length = float(np.linalg.norm(translation))
    if length == 0:
        raise InputError(f"{path}: T is zero; the two cameras cannot be at the same place.")
    translation = translation * (in_metres(length, path) / length)
    for name in ("left_matrix", "right_matrix"):
        if min(chosen[name][0, 0], chosen[name][1, 1]) <= 0:
            raise InputError(f"{path}: the focal lengths of {_NAMES[name][0]} must be positive.")
    for name in ("left_distortion", "right_distortion"):
        if chosen[name].size not in _DISTORTION_SIZES:
            raise InputError(f"{path}: {_NAMES[name][0]} must have 4, 5, 8, 12 or 14 numbers, not {chosen[name].size}.")
    rotation = chosen["rotation"]
    if not np.allclose(rotation @ rotation.T, np.eye(3), atol=0.01) or np.linalg.det(rotation) < 0:
        raise InputError(f"{path}: R is no rotation; store what cv2.stereoCalibrate returns as R.")
    width, height = yaml_size(text, ("image_width", "width", "imageWidth"), ("image_height", "height", "imageHeight"))
    if any(extent is not None and extent <= 0 for extent in (width, height)):
        raise InputError(f"{path}: the image size {width}x{height} must be positive.")
    return RawCalibration(**chosen, translation=translation, width=width, height=height)


def rectify(
    left: NDArray[Any], right: NDArray[Any], calibration: RawCalibration, *, keep: float = 0.0
) -> tuple[NDArray[Any], NDArray[Any], StereoCamera]:
    """Undistort and rotate both views so that matches lie on the same row.

    Args:
        left: (H, W) or (H, W, 3) raw image.
        right: the other one, the same size.
        calibration: of the two cameras.
        keep: 0 crops to pixels both lenses saw, 1 keeps every pixel and leaves black borders.

    Returns:
        left and right rectified, and the camera that turns their disparity into metres.
    """
    cv2 = opencv("Rectifying")
    if left.shape != right.shape:
        raise InputError(
            f"The images differ in size ({left.shape[1]}x{left.shape[0]} and {right.shape[1]}x{right.shape[0]})."
        )
    height, width = left.shape[:2]
    if calibration.width is not None and (calibration.width, calibration.height) != (width, height):
        raise InputError(
            f"The calibration is for {calibration.width}x{calibration.height} images, these are {width}x{height}: "
            "calibrate at the size you use."
        )
    shift = calibration.translation
    if abs(shift[1]) > abs(shift[0]):
        raise InputError("The cameras stand one above the other: rotate both images by 90° and calibrate again.")
    if shift[0] > 0:
        raise InputError("By the calibration the right camera stands on the left: swap the two images and matrices.")
    rotation_left, rotation_right, projection_left, projection_right, *_ = cv2.stereoRectify(
        calibration.left_matrix, calibration.left_distortion,
        calibration.right_matrix, calibration.right_distortion,
        (width, height), calibration.rotation, calibration.translation.reshape(3, 1),
        flags=cv2.CALIB_ZERO_DISPARITY, alpha=keep,
    )  # fmt: skip

    def remapped(image: NDArray[Any], matrix: Any, distortion: Any, rotation: Any, projection: Any) -> NDArray[Any]:
        map_x, map_y = cv2.initUndistortRectifyMap(
            matrix, distortion, rotation, projection, (width, height), cv2.CV_32FC1
        )
        return np.asarray(cv2.remap(image, map_x, map_y, cv2.INTER_LINEAR))

    return (
        remapped(left, calibration.left_matrix, calibration.left_distortion, rotation_left, projection_left),
        remapped(right, calibration.right_matrix, calibration.right_distortion, rotation_right, projection_right),
        from_projections(np.asarray(projection_left), np.asarray(projection_right), width, height),
    )
