"""Calibration files of rectified pairs, by the formats people have: each recognised from its content."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.data.reading import MOST_TEXT, number, read_json, read_text, reads
from matchattention.errors import InputError, InputWarning
from matchattention.geometry.camera import LARGEST_BASELINE, StereoCamera

Matrix = NDArray[np.float64]
FilePath = str | os.PathLike[str]

_FORMATS = (
    "Middlebury calib.txt, KITTI calib_cam_to_cam or calib (P2/P3), K.txt (9 numbers, then the baseline in metres), "
    "OpenCV or ROS YAML, or JSON with fx and baseline"
)


@reads("a calibration", "docs/cameras.md shows what each format looks like", MOST_TEXT)
def read_stereo_camera(path: Path, right: FilePath | None, baseline: float | None) -> StereoCamera:
    """See `StereoCamera.from_file`."""
    text = read_text(path)
    if path.suffix.lower() == ".json" or text.lstrip().startswith("{"):
        return _json(path, text, baseline)
    lines = text.splitlines()
    if any(_named(line, "=")[0] == "cam0" for line in lines):
        return _middlebury(path, lines, baseline)
    if path.suffix.lower() in (".yaml", ".yml") or "rows:" in text:
        return _yaml(path, text, right, baseline)
    if any(_named(line, ":")[0] in _KITTI_NAMES for line in lines):
        return _kitti(path, lines, baseline)
    return _k_txt(path, text, baseline)


def yaml_matrices(text: str) -> dict[str, Matrix]:
    """Every matrix of an OpenCV (`!!opencv-matrix`) or ROS (`rows`, `cols`, `data`) YAML file by its name.

    Covers what these two tools write, lists in brackets or in dashes; needs no YAML library. A vector, which
    OpenCV 5 writes with `sizes` in place of `rows` and `cols`, is one row. Matrices that do not have the numbers
    they promise are left out.
    """
    matrices: dict[str, Matrix] = {}
    lines = iter(text.splitlines())
    line = next(lines, None)
    name, shape = "", {}  # type: str, dict[str, list[float]]
    while line is not None:
        key, value = _named(line, ":")
        following = next(lines, None)
        if key in ("rows", "cols", "sizes"):
            shape[key] = _numbers_or_none(value) or []
        elif key == "data":
            pieces = [value]
            if value.startswith("["):
                while following is not None and "]" not in pieces[-1]:
                    pieces.append(following)
                    following = next(lines, None)
            else:
                while following is not None and following.lstrip().startswith("- "):
                    pieces.append(following.replace("- ", " ", 1))
                    following = next(lines, None)
            matrix = _shaped(_numbers_or_none(" ".join(pieces)), shape)
            if matrix is not None:
                matrices[name] = matrix
            shape = {}
        elif value in ("", "!!opencv-matrix", "!!opencv-nd-matrix"):
            name, shape = key, {}
        line = following
    return matrices


def _shaped(numbers: list[float] | None, shape: dict[str, list[float]]) -> Matrix | None:
    extents = shape["sizes"] if "sizes" in shape else [*shape.get("rows", []), *shape.get("cols", [])]
    if len(extents) == 1:
        extents = [1, *extents]
    if numbers is None or len(extents) != 2 or len(numbers) != extents[0] * extents[1]:
        return None
    return np.array(numbers).reshape(int(extents[0]), int(extents[1]))


def yaml_number(text: str, *names: str) -> float | None:
    """The first plain number found under one of `names`."""
    entries = dict(_named(line, ":") for line in reversed(text.splitlines()))
    return next((_number(entries[name], name) for name in names if entries.get(name)), None)


def yaml_size(text: str, widths: Sequence[str], heights: Sequence[str]) -> tuple[int | None, int | None]:
    """Image width and height in px, each under the first of its names that is there."""
    width, height = yaml_number(text, *widths), yaml_number(text, *heights)
    return _whole(width, "width"), _whole(height, "height")


def in_metres(baseline: float, path: Path) -> float:
    """A baseline as metres: OpenCV keeps the unit of the calibration board, often millimetres."""
    if abs(baseline) > LARGEST_BASELINE:
        warnings.warn(
            f"{path}: a baseline of {abs(baseline):g} is taken as millimetres "
            f"({abs(baseline) / 1000:g} m); depth follows it.",
            InputWarning,
            stacklevel=3,
        )
        return baseline / 1000
    return baseline


_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_LONGEST_NUMBER = 64  # characters
_KITTI_NAMES = {f"{prefix}{camera}": camera for camera in range(4) for prefix in ("P", "P_rect_0")}


def _named(line: str, separator: str) -> tuple[str, str]:
    """A line's name and its value, without quotes and blanks around them."""
    name, _, value = line.partition(separator)
    return name.strip().strip("\"'"), value.strip()


def _number(word: str, name: str) -> float:
    if len(word) > _LONGEST_NUMBER or not _NUMBER.fullmatch(word):
        raise ValueError(f"{name} must be a number, not {word[:40]!r}")
    return float(word)


def _numbers(text: str, name: str) -> list[float]:
    """The numbers of a list or matrix, whatever separates them."""
    return [_number(word, name) for word in text.translate(_SEPARATORS).split()]


def _numbers_or_none(text: str) -> list[float] | None:
    try:
        return _numbers(text, "")
    except ValueError:
        return None


_SEPARATORS = str.maketrans("[],;", "    ")


def _whole(value: float | None, name: str) -> int | None:
    if value is not None and not (math.isfinite(value) and value == int(value)):
        raise ValueError(f"{name} must be a whole number of px, not {value:g}")
    return None if value is None else int(value)


def _camera(path: Path, **numbers: Any) -> StereoCamera:
    """A camera, or a sentence that names the file its numbers come from."""
    try:
        return StereoCamera(**numbers)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _middlebury(path: Path, lines: list[str], baseline: float | None) -> StereoCamera:
    entries = dict(_named(line, "=") for line in lines)
    matrices = {}
    for name in ("cam0", "cam1"):
        numbers = _numbers(entries.get(name, ""), name)
        if len(numbers) != 9:
            raise InputError(f"{path}: {name} must be a 3x3 matrix like cam0=[f 0 cx; 0 f cy; 0 0 1].")
        matrices[name] = np.array(numbers).reshape(3, 3)
    left, right = matrices["cam0"], matrices["cam1"]
    values = {
        name: _number(entries[name], name) for name in ("baseline", "doffs", "width", "height") if entries.get(name)
    }
    if baseline is None:
        if "baseline" not in values:
            raise InputError(f"{path} has no baseline; add a line baseline=… in millimetres.")
        baseline = values["baseline"] / 1000  # the format fixes millimetres
    return _camera(
        path, fx=float(left[0, 0]), fy=float(left[1, 1]), cx=float(left[0, 2]), cy=float(left[1, 2]),
        baseline=baseline, doffs=values.get("doffs", float(right[0, 2] - left[0, 2])),
        width=_whole(values.get("width"), "width"), height=_whole(values.get("height"), "height"),
    )  # fmt: skip


def _kitti(path: Path, lines: list[str], baseline: float | None) -> StereoCamera:
    entries = dict(_named(line, ":") for line in lines)
    projections = {}
    for name, camera in _KITTI_NAMES.items():
        if name in entries:
            numbers = _numbers(entries[name], name)
            if len(numbers) != 12:
                raise InputError(f"{path}: P{camera} must have 12 numbers, not {len(numbers)}.")
            projections[camera] = np.array(numbers).reshape(3, 4)
    # Cameras 2 and 3 are the colour pair, 0 and 1 the grey one.
    for left, right in ((2, 3), (0, 1)):
        if left in projections and right in projections:
            width: int | None = None
            height: int | None = None
            if f"S_rect_0{left}" in entries:
                size = _numbers(entries[f"S_rect_0{left}"], "S_rect")
                if len(size) != 2:
                    raise InputError(f"{path}: S_rect_0{left} must be the width and the height.")
                width, height = (_whole(value, "S_rect") for value in size)
            try:
                return from_projections(projections[left], projections[right], width, height, baseline)
            except InputError as error:
                raise InputError(f"{path}: {error}") from None
    raise InputError(f"{path} has no pair of projection matrices (P2 and P3, or P0 and P1).")


def from_projections(
    left: Matrix,
    right: Matrix,
    width: int | None = None,
    height: int | None = None,
    baseline: float | None = None,
) -> StereoCamera:
    """The camera of two rectified 3x4 projection matrices.

    Args:
        left: of the left camera; the fourth column is -f times its x, in the unit of the translation.
        right: of the right camera.
        width: image size in px where known.
        height: the same, vertically.
        baseline: metres, in place of what the matrices say.
    """
    found = projected_baseline(left, right)
    if baseline is None:
        baseline = found
    return StereoCamera(
        fx=float(left[0, 0]), fy=float(left[1, 1]), cx=float(left[0, 2]), cy=float(left[1, 2]),
        baseline=baseline, doffs=float(right[0, 2] - left[0, 2]), width=width, height=height,
    )  # fmt: skip


def projected_baseline(left: Matrix, right: Matrix) -> float:
    """Distance of two rectified projection matrices, in the unit they were calibrated in."""
    if left.shape != (3, 4) or right.shape != (3, 4):
        raise InputError(f"A projection matrix has 3 rows and 4 columns, not {left.shape} and {right.shape}.")
    if left[0, 0] <= 0 or right[0, 0] <= 0:
        raise InputError("The focal length in a projection matrix must be positive: check the calibration file.")
    return float(left[0, 3] / left[0, 0] - right[0, 3] / right[0, 0])


def _k_txt(path: Path, text: str, baseline: float | None) -> StereoCamera:
    numbers = _numbers_or_none(text)
    if numbers is None or len(numbers) not in (9, 10) or numbers[8] != 1:
        raise InputError(f"{path} is not a calibration that is known here: give {_FORMATS}.")
    if baseline is None:
        if len(numbers) == 9:
            raise InputError(f"{path} has no baseline; add it in metres as a second line or give --baseline.")
        baseline = numbers[9]
    return _camera(path, fx=numbers[0], fy=numbers[4], cx=numbers[2], cy=numbers[5], baseline=baseline)


def _yaml(path: Path, text: str, right: FilePath | None, baseline: float | None) -> StereoCamera:
    matrices = yaml_matrices(text)
    width, height = yaml_size(text, ("image_width", "width"), ("image_height", "height"))
    if "P1" in matrices and "P2" in matrices:
        camera_left, camera_right = matrices["P1"], matrices["P2"]
    elif "projection_matrix" in matrices:
        other = Path(right) if right is not None else _ros_partner(path)
        others = yaml_matrices(read_text(other))
        if "projection_matrix" not in others:
            raise InputError(f"{other} has no projection_matrix; give the right camera's ROS calibration.")
        camera_left, camera_right = matrices["projection_matrix"], others["projection_matrix"]
    else:
        names = ", ".join(sorted(matrices))[:200] or "no matrix"
        raise InputError(
            f"{path} has neither P1 and P2 (OpenCV's stereoRectify) nor a projection_matrix (ROS); found: "
            f"{names}. A raw calibration goes to `matchattention rectify` first."
        )
    try:
        if baseline is None:
            found = projected_baseline(camera_left, camera_right)
            if found <= 0:
                raise InputError(
                    f"By its matrices the right camera is {-found:g} to the left of the left one; "
                    "give the left camera's matrix or file first."
                )
            baseline = in_metres(found, path)
        return from_projections(camera_left, camera_right, width, height, baseline)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _ros_partner(path: Path) -> Path:
    partner = path.with_name(path.name.replace("left", "right").replace("Left", "Right"))
    if partner == path or not partner.is_file():
        raise InputError(
            f"{path} is one camera of a pair; give the right one too: StereoCamera.from_file(left, right), "
            "or name the files left.yaml and right.yaml."
        )
    return partner


def _json(path: Path, text: str, baseline: float | None) -> StereoCamera:
    entries = read_json(text)
    if not isinstance(entries, dict):
        raise InputError(f"{path} is not a calibration in JSON: give an object with the keys fx (px) and baseline (m).")
    values = {name: number(entries[name], name) for name in _JSON_NAMES if entries.get(name) is not None}
    metres = baseline if baseline is not None else values.get("baseline_meters", values.get("baseline"))
    if metres is None or "fx" not in values:
        raise InputError(f"{path} needs the keys fx (px) and baseline (m).")
    left_centre = values.get("cx", values.get("cx0"))
    between = values["cx1"] - left_centre if "cx1" in values and left_centre is not None else 0.0
    return _camera(
        path, fx=values["fx"], fy=values.get("fy"), cx=left_centre, cy=values.get("cy"), baseline=metres,
        doffs=values.get("doffs", between),
        width=_whole(values.get("width"), "width"), height=_whole(values.get("height"), "height"),
    )  # fmt: skip


_JSON_NAMES = ("fx", "fy", "cx", "cx0", "cx1", "cy", "doffs", "baseline", "baseline_meters", "width", "height")
