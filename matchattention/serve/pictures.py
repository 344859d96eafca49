"""Image files in, depth out: what `POST /depth` understands."""

from __future__ import annotations

import io
import json
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchattention.data.images import PHOTO_FORMATS
from matchattention.errors import InputError
from matchattention.geometry.camera import StereoCamera
from matchattention.inference.images import Image, read_pair
from matchattention.inference.prediction import Prediction
from matchattention.serve.errors import too_many_pixels
from matchattention.serve.settings import Settings

FORMATS = {"png": "image/png", "npy": "application/x-npy", "json": "application/json"}
CAMERA_FIELDS = ("fx", "baseline", "cx", "cy", "fy", "doffs")
DISPARITY_STEPS = 256  # of a pixel in a 16-bit PNG, as in KITTI's files
_DEPTH_STEPS = 1000  # of a metre: millimetres


_FILE = {"type": "string", "contentMediaType": "application/octet-stream"}
FORM = {  # as OpenAPI describes it
    "required": ["left", "right"],
    "properties": {
        "left": _FILE,
        "right": _FILE,
        **{name: {"type": "number"} for name in CAMERA_FIELDS},
        "format": {"enum": list(FORMATS), "default": "png"},
        "min_confidence": {"type": "number", "minimum": 0, "maximum": 1, "default": 0},
        "check": {"type": "boolean", "default": True},
    },
    "additionalProperties": False,
}


class Wanted(NamedTuple):
    """The fields of the form.

    Attributes:
        camera: None: disparity is answered in place of depth.
        format: "png", "npy" or "json".
        min_confidence: pixels below are unknown in the answer.
        check: whether to look for swapped and unrectified views first.
    """

    camera: StereoCamera | None
    format: str
    min_confidence: float
    check: bool


def read_wanted(fields: dict[str, str]) -> Wanted:
    """Understand the form's text fields.

    Raises:
        InputError: a field is unknown or no number, or the camera lacks `fx` or `baseline`.
    """
    unknown = set(fields) - {*CAMERA_FIELDS, "format", "min_confidence", "check"}
    if unknown:
        known = ", ".join([*CAMERA_FIELDS, "format", "min_confidence", "check"])
        raise InputError(f"There is no field '{sorted(unknown)[0]}': the form has left, right, {known}.")
    numbers = {name: _number(name, fields[name]) for name in CAMERA_FIELDS if name in fields}
    camera = None
    if numbers:
        if not {"fx", "baseline"} <= set(numbers):
            raise InputError("A camera needs 'fx' (px) and 'baseline' (m); without any camera field disparity is sent.")
        camera = StereoCamera(**numbers)  # type: ignore[arg-type]
    chosen = fields.get("format", "png")
    if chosen not in FORMATS:
        raise InputError(f"There is no format '{chosen}': choose {', '.join(FORMATS)}.")
    if fields.get("check", "true") not in ("true", "false"):
        raise InputError("The field 'check' is true or false.")
    least = _number("min_confidence", fields.get("min_confidence", "0"))
    if not 0 <= least <= 1:
        raise InputError(f"The field 'min_confidence' is from 0 to 1, not {least:g}.")
    return Wanted(camera, chosen, least, fields.get("check") != "false")


def read_views(left: bytes, right: bytes, settings: Settings) -> tuple[Image, Image]:
    """Decode two image files; their pixels are counted before they are decoded.

    Raises:
        InputError: not images, or of different sizes.
        Refused: too many pixels.
    """
    from PIL import Image as Pillow

    opened = []
    for name, content in (("left", left), ("right", right)):
        try:
            image = Pillow.open(io.BytesIO(content), formats=PHOTO_FORMATS)
            if image.width * image.height > settings.pixels:
                raise too_many_pixels(name, image.width, image.height, settings.megapixels)
            image.load()
        except (OSError, SyntaxError, ValueError, Pillow.DecompressionBombError):
            raise InputError(f"The {name} file is not an image that can be read: send a PNG, JPEG or TIFF.") from None
        opened.append(image)
    return read_pair(*opened)


def write_depth(prediction: Prediction, wanted: Wanted) -> tuple[bytes, dict[str, str]]:
    """Depth, or disparity without a camera, as the asked kind of file and its headers.

    In a PNG 0 is unknown: depth in millimetres, disparity in 1/256 px. In npy and JSON unknown is NaN or null:
    depth in metres, disparity in px.
    """
    disparity = prediction.disparity
    if wanted.camera is None:
        values, unit, steps = disparity, "px", DISPARITY_STEPS
    else:
        values, unit, steps = wanted.camera.depth(disparity), "m", _DEPTH_STEPS
    known = np.isfinite(values) & (prediction.confidence >= wanted.min_confidence)
    if wanted.format == "png":
        body = _png16(np.where(known, values, 0) * np.float32(steps))
        unit = "mm" if unit == "m" else f"px/{DISPARITY_STEPS}"
    else:
        body = (_npy if wanted.format == "npy" else _json)(np.where(known, values, np.nan).astype(np.float32))
    headers = {
        "Content-Type": FORMATS[wanted.format],
        "X-Quantity": "disparity" if wanted.camera is None else "depth",
        "X-Unit": unit,
    }
    return body, headers


def _png16(values: NDArray[np.float32]) -> bytes:
    from PIL import Image as Pillow

    fits = (values > 0) & (values < 65535.5)
    stored = io.BytesIO()
    levels = np.where(fits, np.maximum(np.rint(values), 1), 0).astype(np.uint16)
    Pillow.fromarray(levels).save(stored, "PNG", compress_level=3)
    return stored.getvalue()


def _npy(values: NDArray[np.float32]) -> bytes:
    stored = io.BytesIO()
    np.save(stored, values)
    return stored.getvalue()


def _json(values: NDArray[np.float32]) -> bytes:
    rows: list[list[Any]] = values.astype(object).tolist()
    finite = [[None if value != value else round(value, 4) for value in row] for row in rows]
    return json.dumps({"height": values.shape[0], "width": values.shape[1], "values": finite}).encode()


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"The field '{name}' is '{text}', not a number.") from None
