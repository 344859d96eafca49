"""Between ROS messages and arrays, without importing ROS: messages are only read by their attributes.

Conventions are image_pipeline's:

- a disparity is d = x_left - x_right - (cx_left - cx_right), px, so that Z = f T / d; invalid is `min_disparity - 1`;
- T is the baseline, positive, from the right camera's P[3] = -fx T;
- depth follows REP 118: 32FC1 metres with NaN unknown, or 16UC1 millimetres with 0 unknown;
- points follow REP 103 in the left optical frame: x right, y down, z forward.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchattention.errors import InputError
from matchattention.geometry.camera import StereoCamera

MIN_DISPARITY = 0.0  # px
DELTA_DISPARITY = 1 / 16  # px: the step image_pipeline's matchers have; this network's answer is continuous
POINT_STEP = 16  # bytes: x, y, z, rgb as float32

_CHANNELS = {"mono8": 1, "8UC1": 1, "mono16": 1, "16UC1": 1, "8UC3": 3, "16UC3": 3}
_CHANNELS |= {"rgb8": 3, "bgr8": 3, "rgb16": 3, "bgr16": 3, "rgba8": 4, "bgra8": 4, "rgba16": 4, "bgra16": 4}
_BLUE_FIRST = ("bgr8", "bgra8", "bgr16", "bgra16", "8UC3", "16UC3")


class DisparityFields(NamedTuple):
    """What a stereo_msgs/DisparityImage holds; `image` becomes its 32FC1 image."""

    image: NDArray[np.float32]
    f: float
    t: float
    valid_window: tuple[int, int, int, int]  # x_offset, y_offset, width, height
    min_disparity: float
    max_disparity: float
    delta_d: float


def image_of(message: Any) -> NDArray[Any]:
    """(H, W) grey or (H, W, 3) RGB, uint8 or uint16, of a sensor_msgs/Image.

    Raises:
        InputError: raw Bayer or compressed encodings; debayer and rectify first.
    """
    channels = _CHANNELS.get(message.encoding)
    if channels is None:
        raise InputError(f"The encoding {message.encoding} is not rectified colour or grey: run image_proc first.")
    dtype = np.dtype(np.uint16 if "16" in message.encoding else np.uint8)
    dtype = dtype.newbyteorder(">" if message.is_bigendian else "<")
    line = message.width * channels * dtype.itemsize
    if message.step < line or len(message.data) < message.step * message.height:
        raise InputError(f"The image message is cut short: {message.width}x{message.height} {message.encoding}.")
    rows = np.frombuffer(message.data, np.uint8)[: message.step * message.height].reshape(message.height, message.step)
    pixels = np.ascontiguousarray(rows[:, :line]).view(dtype).astype(dtype.newbyteorder("="))
    if channels == 1:
        return pixels.reshape(message.height, message.width)
    pixels = pixels.reshape(message.height, message.width, channels)[..., :3]
    return np.ascontiguousarray(pixels[..., ::-1] if message.encoding in _BLUE_FIRST else pixels)


def camera_of(left: Any, right: Any) -> StereoCamera:
    """The rectified camera of two sensor_msgs/CameraInfo, from their P matrices.

    A region of interest and binning are taken into account, as image_geometry does.

    Raises:
        InputError: the cameras are not calibrated as a stereo pair, or left and right are swapped.
    """
    fx, fy, cx, cy = _pinhole(left)
    right_fx, _, right_cx, _ = _pinhole(right)
    if fx <= 0 or right_fx <= 0:
        raise InputError("The camera_info has no projection matrix P: calibrate the stereo pair.")
    baseline = -right.p[3] / right.p[0]
    if baseline <= 0:
        raise InputError(
            f"The right camera_info says the baseline is {baseline:g} m: it needs P[3] = -fx * baseline; "
            "check that left and right are not swapped and that the pair was calibrated together."
        )
    return StereoCamera(fx=fx, fy=fy, baseline=baseline, cx=cx, cy=cy, doffs=right_cx - cx)


def require_own_size(image: Any, info: Any) -> None:
    """Check that a sensor_msgs/CameraInfo speaks of the pixels of a sensor_msgs/Image; 0 px says nothing, as in ROS.

    Raises:
        InputError: the image was resized and its calibration was not, or the other way round.
    """
    width = (info.roi.width or info.width) // max(info.binning_x, 1)
    height = (info.roi.height or info.height) // max(info.binning_y, 1)
    if width and height and max(abs(image.width - width), abs(image.height - height)) > 1:  # drivers round
        raise InputError(
            f"The left image is {image.width}x{image.height}, its camera_info is for {width}x{height}: "
            "depths would be wrong; resize both, as image_proc's resize node does."
        )


def _pinhole(info: Any) -> tuple[float, float, float, float]:
    """fx, fy, cx, cy in px of the image as it is sent."""
    across, down = max(info.binning_x, 1), max(info.binning_y, 1)
    return (
        info.p[0] / across,
        info.p[5] / down,
        (info.p[2] - info.roi.x_offset) / across,
        (info.p[6] - info.roi.y_offset) / down,
    )


def known_pixels(
    disparity: NDArray[np.float32], confidence: NDArray[np.float32], camera: StereoCamera, min_confidence: float
) -> NDArray[np.bool_]:
    """(H, W) bool: sure enough and in front of the camera."""
    shifted = disparity + np.float32(camera.doffs)
    return np.isfinite(shifted) & (shifted > MIN_DISPARITY) & (confidence >= min_confidence)


def disparity_fields(disparity: NDArray[np.float32], known: NDArray[np.bool_], camera: StereoCamera) -> DisparityFields:
    """A DisparityImage's content; `disparity` is x_left - x_right as the network found it."""
    height, width = disparity.shape
    adjusted = disparity + np.float32(camera.doffs)  # - (cx_left - cx_right)
    image = np.where(known, adjusted, np.float32(MIN_DISPARITY - 1)).astype(np.float32)
    return DisparityFields(
        image=image,
        f=camera.fx,
        t=camera.baseline,
        valid_window=(0, 0, width, height),
        min_disparity=MIN_DISPARITY,
        max_disparity=float(width) + max(camera.doffs, 0.0),  # nothing is searched: any match in view can be found
        delta_d=DELTA_DISPARITY,
    )


def depth_metres(disparity: NDArray[np.float32], known: NDArray[np.bool_], camera: StereoCamera) -> NDArray[np.float32]:
    """32FC1: metres, NaN unknown."""
    return np.where(known, camera.depth(disparity), np.float32(np.nan)).astype(np.float32)


def depth_millimetres(depth: NDArray[np.float32]) -> NDArray[np.uint16]:
    """16UC1: millimetres, 0 unknown or beyond 65.535 m."""
    values = np.nan_to_num(depth, nan=0, posinf=0, neginf=0) * np.float32(1000)
    fits = (values >= 0.5) & (values < 65535.5)
    return np.where(fits, np.rint(values), 0).astype(np.uint16)


def cloud_bytes(
    depth: NDArray[np.float32], image: NDArray[Any], camera: StereoCamera, max_depth: float
) -> NDArray[np.float32]:
    """(H, W, 4) float32 x, y, z, rgb of an organised PointCloud2; unknown points are NaN."""
    height, width = depth.shape
    cx, cy = camera.centre(width, height)
    z = np.where(depth <= max_depth, depth, np.float32(np.nan))  # NaN stays NaN
    x = (np.arange(width, dtype=np.float32) - np.float32(cx)) / np.float32(camera.fx) * z
    y = (np.arange(height, dtype=np.float32)[:, None] - np.float32(cy)) / np.float32(camera.fy or camera.fx) * z
    colours = image if image.dtype == np.uint8 else (image >> 8).astype(np.uint8)
    if colours.ndim == 2:
        colours = np.repeat(colours[..., None], 3, axis=2)
    red, green, blue = (colours[..., channel].astype(np.uint32) for channel in range(3))
    packed = (red << 16 | green << 8 | blue).view(np.float32)  # PCL's way: three bytes inside a float
    return np.stack([x, y, z, packed], axis=-1).astype("<f4", copy=False)
