"""PNG files with 16 bits a channel.

Pillow reads grey ones exactly but keeps only the upper byte of colour ones, and KITTI's flow is 16-bit colour. The
bytes of a pixel lie as the word order says, so the same file read in the other order gives the lower bytes: two fast
passes, each bounded by the size in the header, and no package that not everybody has.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.data.atomic import replacing
from matchattention.data.reading import check_pixels, reads
from matchattention.errors import InputError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GREY, _COLOUR, _GREY_ALPHA, _COLOUR_ALPHA = 0, 2, 4, 6
# By colour type, Pillow's names for a pixel's bytes of which the first, or the second, of every two is kept.
_LAYOUTS: dict[int, tuple[str, ...]] = {
    _GREY: (),
    _COLOUR: ("RGB;16B", "RGB;16L"),
    _GREY_ALPHA: (),
    _COLOUR_ALPHA: ("RGBA;16B", "RGBA;16L"),
}
_CHANNELS = {_GREY: 1, _COLOUR: 3, _GREY_ALPHA: 2, _COLOUR_ALPHA: 4}
_MOST_PACKED = 1032  # bytes that deflate packs into one, at the very most
_UP = 2  # the line filter we write


def check_png_size(path: str | os.PathLike[str]) -> None:
    """Refuse a PNG whose header promises more than its bytes can hold; other files pass."""
    try:
        with Path(path).open("rb") as file:
            header = file.read(26)
    except (OSError, ValueError):  # whoever reads it next says why
        return
    if not header.startswith(_SIGNATURE) or len(header) < 26:
        return
    width, height, bits, colour_type = struct.unpack_from(">IIBB", header, 16)
    promised = height * (width * bits * _CHANNELS.get(colour_type, 1) // 8)
    if promised > _MOST_PACKED * os.path.getsize(path):
        raise InputError(
            f"{path} says it is {width} x {height} px, which its bytes cannot hold; fetch or export it again"
        )


@reads("a PNG file")
def read_png16(path: str | os.PathLike[str]) -> NDArray[np.uint16]:
    """Read a 16-bit PNG without losing a bit.

    Returns:
        ``(H, W)`` for grey, ``(H, W, C)`` for 2 (grey + alpha), 3 or 4 channels.

    Raises:
        InputError: not a PNG, not 16 bits a channel, truncated or corrupt.
    """
    content = Path(path).read_bytes()
    if not content.startswith(_SIGNATURE) or content[12:16] != b"IHDR" or len(content) < 33:
        raise InputError(f"{path} is not a PNG file")
    width, height, bits, colour_type = struct.unpack_from(">IIBB", content, 16)
    if bits != 16 or colour_type not in _LAYOUTS:
        raise InputError(f"{path} has {bits} bits a channel, but this format stores 16: it was converted")
    check_pixels(path, height, width)
    check_png_size(path)
    _check_sums(content)
    if colour_type == _GREY:
        return _decoded(content).astype(np.uint16)
    if colour_type == _GREY_ALPHA:  # its four bytes a pixel pass as four channels of one
        return _decoded(content, "RGBA").astype(">u1").view(">u2").astype(np.uint16)
    high, low = (_decoded(content, layout).astype(np.uint16) for layout in _LAYOUTS[colour_type])
    return (high << 8 | low).astype(np.uint16)  # (H, W, C)


def is_png16(path: str | os.PathLike[str]) -> bool:
    """Whether a file's header says PNG with 16 bits a channel."""
    try:
        with Path(path).open("rb") as file:
            header = file.read(25)
    except (OSError, ValueError):  # whoever reads it next says why
        return False
    return header.startswith(_SIGNATURE) and header[24:25] == b"\x10"


def write_png16(path: str | os.PathLike[str], image: NDArray[np.uint16]) -> None:
    """Write ``(H, W)`` grey or ``(H, W, 3)`` colour, uint16, as a PNG."""
    if image.dtype != np.uint16 or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)):
        raise ValueError(f"expected uint16 (H, W) or (H, W, 3), got {image.dtype} {image.shape}")
    height, width = image.shape[:2]
    colour_type = _GREY if image.ndim == 2 else _COLOUR
    pixels = image.astype(">u2").reshape(height, -1).view(np.uint8)  # (H, bytes of a line)
    lines = np.empty((height, 1 + pixels.shape[1]), np.uint8)
    lines[:, 0] = _UP
    lines[0, 1:] = pixels[0]
    lines[1:, 1:] = pixels[1:] - pixels[:-1]
    header = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(_SIGNATURE)
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b"")):
            file.write(struct.pack(">I", len(data)) + kind + data)
            file.write(struct.pack(">I", zlib.crc32(kind + data)))


def _decoded(content: bytes, pixel_layout: str | None = None) -> NDArray[Any]:
    """What Pillow makes of a PNG when it is told how the bytes of a pixel lie; no more than the image's size."""
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        if pixel_layout is not None:
            codec, extents, offset, _ = image.tile[0]
            image.tile = [type(image.tile[0])(codec, extents, offset, pixel_layout)]
        return np.asarray(image)


def _check_sums(content: bytes) -> None:
    """Compare every chunk with its checksum, which Pillow leaves out for the pixels."""
    position, kind = len(_SIGNATURE), b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", content, position)
        (checksum,) = struct.unpack_from(">I", content, position + 8 + length)
        if zlib.crc32(memoryview(content)[position + 4 : position + 8 + length]) != checksum:
            raise ValueError("the checksum of a chunk does not match")
        position += 12 + length
