"""What a browser may send: how large, of which kind, and where it is kept.

A client's file name is only ever shown. The path is made here, from a counter and a suffix of a fixed list, so no
name can lead anywhere else.
"""

from __future__ import annotations

import base64
import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from matchattention.data.images import PHOTO_FORMATS
from matchattention.data.reading import MOST_PIXELS
from matchattention.errors import InputError
from matchattention.geometry.camera import StereoCamera
from matchattention.inference.images import read_pair

CAMERA_SUFFIXES = (".txt", ".json", ".yaml", ".yml")
_PREVIEW_WIDTH = 480  # px
_NO_LIMIT = "resize it, or use `matchattention predict`, which has no limit"


@dataclass(frozen=True)
class Limits:
    """How much is taken.

    Attributes:
        megabytes: of one image file.
        megapixels: of one image; known from its header, before it is decoded.
        calibration_megabytes: of one calibration file.
    """

    megabytes: float = 40.0
    megapixels: float = 16.0
    calibration_megabytes: float = 0.25


class Photo(NamedTuple):
    """An image as it arrived.

    Attributes:
        path: where it is kept.
        name: what the client calls it; to show, never to open.
        width: px.
        height: px.
        preview: a small JPEG as a data URL.
    """

    path: Path
    name: str
    width: int
    height: int
    preview: str


def shown_name(name: str) -> str:
    """A client's file name fit to be shown: its last part, of sensible length."""
    last = PurePosixPath(name.replace("\\", "/")).name
    readable = "".join(letter for letter in last if letter.isprintable()) or "the file"
    return readable if len(readable) <= 60 else readable[:40] + "…" + readable[-16:]


def known_suffix(name: str, known: tuple[str, ...]) -> str:
    """The entry of `known` that a client's file name ends with.

    Raises:
        InputError: it ends with none of them.
    """
    suffix = next((suffix for suffix in known if name.lower().endswith(suffix)), None)
    if suffix is None:
        raise InputError(f"{shown_name(name)} is of no kind that is read here: give {', '.join(known)}.")
    return suffix


async def receive(
    chunks: AsyncIterator[bytes], path: Path, megabytes: float, name: str, advice: str = _NO_LIMIT
) -> None:
    """Write what arrives into `path`, as long as it stays under the limit; past it nothing is kept.

    Raises:
        InputError: more than `megabytes` came, or nothing.
    """
    most = int(megabytes * 1e6)
    size = 0
    try:
        with path.open("wb") as file:
            async for chunk in chunks:
                size += len(chunk)
                if size > most:
                    raise InputError(f"{shown_name(name)} is larger than {megabytes:g} MB: {advice}.")
                file.write(chunk)
        if size == 0:
            raise InputError(f"{shown_name(name)} is empty: choose another file.")
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def open_photo(path: Path, name: str, limits: Limits) -> Photo:
    """Check an image that arrived: its pixels are counted before they are decoded.

    Raises:
        InputError: not an image, broken, or too many pixels.
    """
    from PIL import Image

    try:
        with Image.open(path, formats=PHOTO_FORMATS) as image:
            width, height = image.size
    except Image.DecompressionBombError:
        raise InputError(
            f"{shown_name(name)} has more than {MOST_PIXELS // 10**6} megapixels, the page takes "
            f"{limits.megapixels:g}: resize it."
        ) from None
    except (OSError, SyntaxError, ValueError):
        raise InputError(f"{shown_name(name)} is not an image that can be read: give a PNG, JPEG or TIFF.") from None
    if width * height > limits.megapixels * 1e6:
        raise InputError(
            f"{shown_name(name)} has {width}x{height} = {width * height / 1e6:.0f} megapixels, the page takes "
            f"{limits.megapixels:g}: {_NO_LIMIT}."
        )
    try:
        pixels = read_pair(path, path)[0]
    except InputError as error:
        raise InputError(in_their_words(error, path, name)) from None
    preview = Image.fromarray(pixels)
    preview.thumbnail((_PREVIEW_WIDTH, _PREVIEW_WIDTH))
    stored = io.BytesIO()
    preview.save(stored, "JPEG", quality=85)
    encoded = base64.b64encode(stored.getvalue()).decode("ascii")
    return Photo(path, shown_name(name), width, height, f"data:image/jpeg;base64,{encoded}")


def open_camera(path: Path, name: str) -> StereoCamera:
    """Read a calibration that arrived.

    Raises:
        InputError: its format is not known; the text names the client's file.
    """
    try:
        return StereoCamera.from_file(path)
    except InputError as error:
        raise InputError(in_their_words(error, path, name)) from None


def in_their_words(error: Exception, path: Path, name: str) -> str:
    """An error's text with the client's name of the file in place of ours."""
    return str(error).replace(str(path), shown_name(name))
