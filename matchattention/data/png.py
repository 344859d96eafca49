"""PNG files with 16 bits a channel.

Pillow reads grey ones but cuts colour ones to 8 bits, and KITTI's flow is 16-bit colour, so the decoder
for those lives here.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matchattention.data.atomic import replacing
from matchattention.errors import InputError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS_OF_COLOUR_TYPE = {0: 1, 2: 3, 4: 2, 6: 4}
_NONE, _SUB, _UP, _AVERAGE, _PAETH = range(5)


def read_png16(path: str | os.PathLike[str]) -> NDArray[np.uint16]:
    """Read a 16-bit PNG without losing a bit.

    Returns:
        ``(H, W)`` for grey, ``(H, W, C)`` for 2 (grey + alpha), 3 or 4 channels.

    Raises:
        InputError: not a PNG, not 16 bits a channel, interlaced, truncated or corrupt.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    if not content.startswith(_SIGNATURE) or content[12:16] != b"IHDR" or len(content) < 33:
        raise InputError(f"{path} is not a PNG file")
    width, height, bits, colour_type, _, _, interlaced = struct.unpack(">IIBBBBB", content[16:29])
    if bits != 16 or colour_type not in _CHANNELS_OF_COLOUR_TYPE:
        raise InputError(f"{path} has {bits} bits a channel, but this format stores 16: it was converted")
    if interlaced:
        raise InputError(f"{path} is an interlaced PNG; save it without interlacing")
    channels = _CHANNELS_OF_COLOUR_TYPE[colour_type]
    if channels == 1:
        return _read_grey(path, content)
    try:
        raw = zlib.decompress(_image_data(content))
    except (zlib.error, struct.error) as error:
        raise InputError(f"{path} is a broken PNG file ({error}); fetch it again") from None
    if width == 0 or height == 0 or len(raw) != height * (1 + width * channels * 2):
        raise InputError(f"{path} is a broken PNG file (wrong amount of pixels); fetch it again")
    lines = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * channels * 2)
    filters = lines[:, 0]
    if filters.max() > _PAETH:
        raise InputError(f"{path} is a broken PNG file (unknown filter); fetch it again")
    pixels = _unfilter(lines[:, 1:].reshape(height, width, channels * 2), filters)
    return pixels.view(">u2").astype(np.uint16)  # (H, W, C)


def is_png16(path: str | os.PathLike[str]) -> bool:
    """Whether a file's header says PNG with 16 bits a channel."""
    with Path(path).open("rb") as file:
        header = file.read(25)
    return header.startswith(_SIGNATURE) and header[24:25] == b"\x10"


def write_png16(path: str | os.PathLike[str], image: NDArray[np.uint16]) -> None:
    """Write ``(H, W)`` grey or ``(H, W, 3)`` colour, uint16, as a PNG."""
    if image.dtype != np.uint16 or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)):
        raise ValueError(f"expected uint16 (H, W) or (H, W, 3), got {image.dtype} {image.shape}")
    height, width = image.shape[:2]
    colour_type = 0 if image.ndim == 2 else 2
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


def _read_grey(path: Path, content: bytes) -> NDArray[np.uint16]:
    """Grey by Pillow, which is ten times faster than the decoder here and just as exact."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.asarray(image).astype(np.uint16)
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"{path} is a broken PNG file ({error}); fetch it again") from None


def _image_data(content: bytes) -> bytes:
    """The compressed pixels: all IDAT chunks joined, each checked against its sum."""
    parts = []
    position = len(_SIGNATURE)
    while True:
        length, kind = struct.unpack(">I4s", content[position : position + 8])
        data = content[position + 8 : position + 8 + length]
        (checksum,) = struct.unpack(">I", content[position + 8 + length : position + 12 + length])
        if zlib.crc32(kind + data) != checksum:
            raise zlib.error("checksum of a chunk does not match")
        if kind == b"IDAT":
            parts.append(data)
        if kind == b"IEND":
            return b"".join(parts)
        position += 12 + length


def _unfilter(filtered: NDArray[np.uint8], filters: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Undo PNG's line filters.

    A byte is predicted from its left, upper and upper-left neighbours, which looks sequential; but the
    pixels of one anti-diagonal only need the two before it, so each anti-diagonal is one array operation.

    Args:
        filtered: ``(H, W, bytes of a pixel)``.
        filters: ``(H,)`` the filter of each line.
    """
    height, width, depth = filtered.shape
    if np.all(filters == _NONE):
        return filtered.copy()
    if np.all(filters <= _SUB):
        summed = np.cumsum(filtered, axis=1, dtype=np.uint8)
        return np.where((filters == _SUB)[:, None, None], summed, filtered)
    # Sheared so that an anti-diagonal is a column; one line and one pixel of zeros stand for "outside".
    pixels = np.zeros((width + height, height + 1, depth), np.int16)  # [x + y + 1, y + 1]
    rows = np.arange(height)
    selector = filters[:, None]
    for diagonal in range(width + height - 1):
        first, last = max(0, diagonal - width + 1), min(height, diagonal + 1)
        y = rows[first:last]
        x = diagonal - y
        left = np.where((x > 0)[:, None], pixels[diagonal, first + 1 : last + 1], 0)
        up = pixels[diagonal, first:last]
        up_left = np.where((x > 0)[:, None], pixels[diagonal - 1, first:last], 0)
        kind = selector[first:last]
        estimate = left + up - up_left
        to_left, to_up, to_up_left = abs(estimate - left), abs(estimate - up), abs(estimate - up_left)
        paeth = np.where((to_left <= to_up) & (to_left <= to_up_left), left, np.where(to_up <= to_up_left, up, up_left))
        predicted = np.select(
            [kind == _SUB, kind == _UP, kind == _AVERAGE, kind == _PAETH],
            [left, up, (left + up) >> 1, paeth],
            0,
        )
        pixels[diagonal + 1, first + 1 : last + 1] = (filtered[y, x] + predicted) & 255
    straight = pixels[np.arange(width)[None, :] + rows[:, None] + 1, rows[:, None] + 1]  # (H, W, depth)
    return straight.astype(np.uint8)
