"""Calibration files of rectified pairs, by the formats people have: each recognised from its content."""

from __future__ import annotations

import json
import os
import re
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matchattention.errors import InputError, InputWarning
from matchattention.geometry.camera import StereoCamera

Matrix = NDArray[np.float64]
FilePath = str | os.PathLike[str]

_LARGEST_BASELINE = 10.0  # m: beyond it the number is surely in millimetres
_FORMATS = (
    "Middlebury calib.txt, KITTI calib_cam_to_cam or calib (P2/P3), K.txt (9 numbers, then the baseline in metres), "
    "OpenCV or ROS YAML, or JSON with fx and baseline"
)


def read_stereo_camera(path: FilePath, right: FilePath | None, baseline: float | None) -> StereoCamera:
    """See `StereoCamera.from_file`."""
    path = Path(path)
    text = read_calibration_text(path)
    if path.suffix.lower() == ".json":
        return _json(path, text, baseline)
    if re.search(r"^\s*cam0\s*=", text, re.MULTILINE):
        return _middlebury(path, text, baseline)
    if path.suffix.lower() in (".yaml", ".yml") or "rows:" in text:
        return _yaml(path, text, right, baseline)
    if re.search(r"^\s*P(_rect_0)?[0-3]\s*:", text, re.MULTILINE):
        return _kitti(path, text)
    return _k_txt(path, text, baseline)


def read_calibration_text(path: Path) -> str:
    """A calibration file's text, or a sentence."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the calibration file in it.")
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; give a calibration file.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a calibration file: it is not text.") from None


def yaml_matrices(text: str) -> dict[str, Matrix]:
    """Every matrix of an OpenCV (`!!opencv-matrix`) or ROS (`rows`, `cols`, `data`) YAML file by its name.

    Covers what these two tools write, lists in brackets or in dashes; needs no YAML library.
    """
    matrices = {}
    entry = re.compile(
        r"^[ \t]*[\"']?(?P<name>[\w./ -]+?)[\"']?:[ \t]*(?:!!opencv-matrix)?[ \t]*\r?\n"
        r"(?P<body>(?:[ \t]+(?:rows|cols|dt):.*\r?\n)+)"
        r"[ \t]*data:\s*(?:\[(?P<list>[^\]]*)\]|(?P<dashes>(?:\s*-\s*\S+)+))",
        re.MULTILINE,
    )
    for found in entry.finditer(text):
        rows = re.search(r"rows:\s*(\d+)", found["body"])
        cols = re.search(r"cols:\s*(\d+)", found["body"])
        values = found["list"] if found["list"] is not None else re.sub(r"(?m)^\s*-\s+", " ", found["dashes"])
        numbers = _numbers(values)
        if rows and cols and len(numbers) == int(rows[1]) * int(cols[1]):
            matrices[found["name"].strip()] = np.array(numbers).reshape(int(rows[1]), int(cols[1]))
    return matrices


def yaml_number(text: str, *names: str) -> float | None:
    """The first plain number found under one of `names`."""
    for name in names:
        found = re.search(rf"^\s*{name}\s*:\s*({_NUMBER})\s*$", text, re.MULTILINE)
        if found:
            return float(found[1])
    return None


def in_metres(baseline: float, path: Path) -> float:
    """A baseline as metres: OpenCV keeps the unit of the calibration board, often millimetres."""
    if abs(baseline) > _LARGEST_BASELINE:
        warnings.warn(
            f"{path}: a baseline of {abs(baseline):g} is taken as millimetres "
            f"({abs(baseline) / 1000:g} m); depth follows it.",
            InputWarning,
            stacklevel=3,
        )
        return baseline / 1000
    return baseline


_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


def _numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(_NUMBER, text)]


def _middlebury(path: Path, text: str, baseline: float | None) -> StereoCamera:
    entries = dict(re.findall(r"^\s*(\w+)\s*=\s*(.+?)\s*$", text, re.MULTILINE))
    matrices = {}
    for name in ("cam0", "cam1"):
        numbers = _numbers(entries.get(name, ""))
        if len(numbers) != 9:
            raise InputError(f"{path}: {name} must be a 3x3 matrix like cam0=[f 0 cx; 0 f cy; 0 0 1].")
        matrices[name] = np.array(numbers).reshape(3, 3)
    left, right = matrices["cam0"], matrices["cam1"]
    if baseline is None:
        if "baseline" not in entries:
            raise InputError(f"{path} has no baseline; add a line baseline=… in millimetres.")
        baseline = float(entries["baseline"]) / 1000  # the format fixes millimetres
    doffs = float(entries["doffs"]) if "doffs" in entries else float(right[0, 2] - left[0, 2])
    width, height = (int(float(entries[name])) if name in entries else None for name in ("width", "height"))
    return StereoCamera(
        fx=float(left[0, 0]), fy=float(left[1, 1]), cx=float(left[0, 2]), cy=float(left[1, 2]),
        baseline=baseline, doffs=doffs, width=width, height=height,
    )  # fmt: skip


def _kitti(path: Path, text: str) -> StereoCamera:
    projections = {}
    for index, values in re.findall(r"^\s*P(?:_rect_0)?([0-3])\s*:(.*)$", text, re.MULTILINE):
        numbers = _numbers(values)
        if len(numbers) != 12:
            raise InputError(f"{path}: P{index} must have 12 numbers, not {len(numbers)}.")
        projections[int(index)] = np.array(numbers).reshape(3, 4)
    # Cameras 2 and 3 are the colour pair, 0 and 1 the grey one.
    for left, right in ((2, 3), (0, 1)):
        if left in projections and right in projections:
            size = re.search(rf"^\s*S_rect_0{left}\s*:(.*)$", text, re.MULTILINE)
            width, height = (int(value) for value in _numbers(size[1])) if size else (None, None)
            return from_projections(projections[left], projections[right], width, height)
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
    if baseline is None:
        baseline = projected_baseline(left, right)
    return StereoCamera(
        fx=float(left[0, 0]), fy=float(left[1, 1]), cx=float(left[0, 2]), cy=float(left[1, 2]),
        baseline=baseline, doffs=float(right[0, 2] - left[0, 2]), width=width, height=height,
    )  # fmt: skip


def projected_baseline(left: Matrix, right: Matrix) -> float:
    """Distance of two rectified projection matrices, in the unit they were calibrated in."""
    return float(left[0, 3] / left[0, 0] - right[0, 3] / right[0, 0])


def _k_txt(path: Path, text: str, baseline: float | None) -> StereoCamera:
    try:
        numbers = [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise InputError(f"{path} is not a calibration that is known here: give {_FORMATS}.") from None
    if len(numbers) not in (9, 10) or numbers[8] != 1:
        raise InputError(f"{path} is not a calibration that is known here: give {_FORMATS}.")
    if baseline is None:
        if len(numbers) == 9:
            raise InputError(f"{path} has no baseline; add it in metres as a second line or give --baseline.")
        baseline = numbers[9]
    return StereoCamera(fx=numbers[0], fy=numbers[4], cx=numbers[2], cy=numbers[5], baseline=baseline)


def _yaml(path: Path, text: str, right: FilePath | None, baseline: float | None) -> StereoCamera:
    matrices = yaml_matrices(text)
    size = (yaml_number(text, "image_width", "width"), yaml_number(text, "image_height", "height"))
    width, height = (None if value is None else int(value) for value in size)
    if "P1" in matrices and "P2" in matrices:
        camera_left, camera_right = matrices["P1"], matrices["P2"]
    elif "projection_matrix" in matrices:
        other = Path(right) if right is not None else _ros_partner(path)
        others = yaml_matrices(read_calibration_text(other))
        if "projection_matrix" not in others:
            raise InputError(f"{other} has no projection_matrix; give the right camera's ROS calibration.")
        camera_left, camera_right = matrices["projection_matrix"], others["projection_matrix"]
    else:
        raise InputError(
            f"{path} has neither P1 and P2 (OpenCV's stereoRectify) nor a projection_matrix (ROS); found: "
            f"{', '.join(sorted(matrices)) or 'no matrix'}. A raw calibration goes to `matchattention rectify` first."
        )
    if baseline is None:
        found = projected_baseline(camera_left, camera_right)
        if found <= 0:
            raise InputError(
                f"{path}: by its matrices the right camera is {-found:g} to the left of the left one; "
                "give the left camera's matrix or file first."
            )
        baseline = in_metres(found, path)
    return from_projections(camera_left, camera_right, width, height, baseline)


def _ros_partner(path: Path) -> Path:
    partner = path.with_name(path.name.replace("left", "right").replace("Left", "Right"))
    if partner == path or not partner.is_file():
        raise InputError(
            f"{path} is one camera of a pair; give the right one too: StereoCamera.from_file(left, right), "
            "or name the files left.yaml and right.yaml."
        )
    return partner


def _json(path: Path, text: str, baseline: float | None) -> StereoCamera:
    try:
        entries = json.loads(text)
        metres = baseline if baseline is not None else entries.get("baseline_meters", entries.get("baseline"))
        if metres is None or "fx" not in entries:
            raise InputError(f"{path} needs the keys fx (px) and baseline (m).")
        left_centre = entries.get("cx", entries.get("cx0"))
        doffs = entries.get("doffs", entries["cx1"] - entries["cx0"] if "cx1" in entries else 0.0)
        return StereoCamera(
            fx=float(entries["fx"]), fy=entries.get("fy"), cx=left_centre, cy=entries.get("cy"),
            baseline=float(metres), doffs=float(doffs),
            width=entries.get("width"), height=entries.get("height"),
        )  # fmt: skip
    except (json.JSONDecodeError, TypeError, AttributeError, KeyError) as error:
        raise InputError(f"{path} is not a calibration in JSON ({error}).") from None
