"""Images from files as the predictor takes them: uint8 RGB, whatever the file holds."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.data.formats import read_exr_channels
from matchattention.data.opencv import opencv
from matchattention.data.png import check_png_size
from matchattention.data.reading import MOST_PIXELS, check_pixels, reads
from matchattention.errors import InputError

FilePath = str | os.PathLike[str]
PHOTO_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp", ".pgm", ".ppm")
# What a stranger's bytes may be: Pillow would start Ghostscript for an EPS file, whatever its name says.
PHOTO_FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "WEBP", "PPM")
IMAGE_SUFFIXES = (*PHOTO_SUFFIXES, ".exr", ".hdr")  # the last two need extras


def read_image(path: FilePath) -> NDArray[np.uint8]:
    """Read an image as ``(H, W, 3)`` uint8 RGB; 16 bits are scaled to 8. Else as `read_deep_image`."""
    image = read_deep_image(path)
    return image if image.dtype == np.uint8 else np.rint(image / 257).astype(np.uint8)


@reads("an image")
def read_deep_image(path: FilePath) -> NDArray[Any]:
    """Read an image as ``(H, W, 3)`` RGB, uint8 or, where the file holds 16 bits, uint16.

    Grey is repeated, palettes are looked up, transparency is dropped and a JPEG's rotation tag is left alone (a
    rotated view of a rectified pair would not be rectified). Linear high-range images (EXR, HDR) are scaled so that
    their 99th percentile is white, with gamma 2.2.

    Raises:
        InputError: the file is missing, a folder, empty, or not an image that can be decoded.
    """
    path = Path(path)
    if path.suffix.lower() == ".exr":
        return _read_exr(path)
    if path.suffix.lower() == ".hdr":
        check_pixels(path, *_hdr_size(path))
        return _read_by_opencv(path)
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            check_png_size(path)
            if _is_deep_colour(image):  # of which Pillow would keep the upper byte
                return _read_deep_ppm(path, image) if image.format == "PPM" else _read_by_opencv(path)
            return picture_as_rgb(image, str(path))
    except (UnidentifiedImageError, NotImplementedError):  # the latter for rare kinds of rare formats
        if path.suffix.lower() in (".tif", ".tiff"):  # Pillow refuses 16-bit colour TIFF
            check_pixels(path, *_tiff_size(path))
            return _read_by_opencv(path)
        raise InputError(f"{path} is not an image file that can be read; give a PNG, JPEG or TIFF") from None
    except Image.DecompressionBombError:
        raise InputError(
            f"{path} has more than {MOST_PIXELS // 10**6} megapixels by its header; resize it or cut it into parts"
        ) from None


def _hdr_size(path: Path) -> tuple[int, int]:
    """(height, width) of a Radiance file, from the last line of its header."""
    with path.open("rb") as file:
        found = re.search(rb"\n[-+]Y (\d{1,9}) [-+]X (\d{1,9})\n", file.read(2**16))
    if found is None:
        raise InputError(f"{path} is not an HDR image that can be read; export it again")
    return int(found[1]), int(found[2])


def _tiff_size(path: Path) -> tuple[int, int]:
    """(height, width) of a TIFF file, from the tags of its first image."""
    from PIL import TiffImagePlugin

    with path.open("rb") as file:
        tags = TiffImagePlugin.ImageFileDirectory_v2(file.read(8))
        file.seek(tags.next)
        tags.load(file)
        return int(tags[TiffImagePlugin.IMAGELENGTH]), int(tags[TiffImagePlugin.IMAGEWIDTH])


def _is_deep_colour(image: Any) -> bool:
    """Whether an opened TIFF or PPM holds more than 8 bits for each of several channels."""
    if image.format == "TIFF":
        bits = image.tag_v2.get(258, ())
        return len(bits) > 1 and max(bits) > 8
    return image.format == "PPM" and image.mode == "RGB" and image.tile[0][0] == "ppm" and image.tile[0][3][1] > 255


def _read_deep_ppm(path: Path, image: Any) -> NDArray[np.uint16]:
    """A colour PPM of two bytes a value, where an opened one says they lie; stretched to 16 bits."""
    width, height = image.size
    _, _, offset, (_, white) = image.tile[0]
    check_pixels(path, height, width)
    values = np.frombuffer(path.read_bytes(), ">u2", 3 * width * height, offset).reshape(height, width, 3)
    return np.rint(np.minimum(values, white) * np.float32(65535 / white)).astype(np.uint16)


def picture_as_rgb(image: Any, name: str) -> NDArray[Any]:
    """A Pillow image of any mode, as `read_deep_image` returns it; the name is for errors."""
    if image.mode.startswith("I;16") or image.mode == "I":
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise InputError(f"{name} has values outside 16 bits; save it with 8 or 16 bits a channel")
        return np.repeat(values.astype(np.uint16)[..., None], 3, axis=2)
    if image.mode == "F":
        return _tone_mapped(np.repeat(np.asarray(image, np.float32)[..., None], 3, axis=2), name)
    if image.mode in ("LA", "La"):
        image = image.getchannel(0)
    elif image.mode == "PA" or (image.mode == "P" and "transparency" in image.info):
        image = image.convert("RGBA")
    if image.mode in ("RGBA", "RGBa", "RGBX"):
        return np.ascontiguousarray(np.asarray(image)[..., :3])
    return np.array(image.convert("RGB"))


def _read_exr(path: Path) -> NDArray[np.uint8]:
    channels = read_exr_channels(path)
    names = ["R", "G", "B"] if {"R", "G", "B"} <= channels.keys() else [next(iter(channels))] * 3
    return _tone_mapped(np.stack([channels[name] for name in names], axis=-1).astype(np.float32), str(path))


def _read_by_opencv(path: Path) -> NDArray[Any]:
    cv2 = opencv(f"Reading {path}")
    values = cv2.imread(str(path), cv2.IMREAD_ANYDEPTH | cv2.IMREAD_COLOR)
    if values is None:
        raise InputError(f"{path} is not an image that OpenCV reads")
    rgb = values[..., ::-1]
    if rgb.dtype in (np.uint8, np.uint16):
        return np.ascontiguousarray(rgb)
    return _tone_mapped(np.asarray(rgb, np.float32), str(path))


def _tone_mapped(linear: NDArray[np.float32], name: str) -> NDArray[np.uint8]:
    finite = linear[np.isfinite(linear)]
    if finite.size == 0:
        raise InputError(f"{name} holds no finite values")
    white = max(float(np.percentile(finite, 99)), 1e-6)
    shown = np.clip(np.nan_to_num(linear, nan=0, posinf=white, neginf=0) / white, 0, 1) ** (1 / 2.2)
    return np.rint(shown * 255).astype(np.uint8)
