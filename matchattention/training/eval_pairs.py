"""Real pairs in one small file that needs no image library to read.

Pairs with ground truth are packed once where Pillow is installed and carried to the training machine, to
watch a training there. They are measured, never trained on.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchattention.data.atomic import replacing
from matchattention.data.reading import check_pixels, read_json, reads
from matchattention.errors import InputError

_MAGIC = b"MAPAIRS1"
_UNITS = 128  # disparity steps per px in the file: finer than any ground truth here is accurate


class RealPair(NamedTuple):
    """A rectified pair with the left view's ground truth.

    Attributes:
        dataset: Pairs are averaged per dataset.
        name: The scene's.
        left: (H, W, 3) uint8.
        right: (H, W, 3) uint8.
        disparity: (H, W) float32 px, inf where unknown.
        visible: (H, W) bool, not occluded; all True when nobody knows.
    """

    dataset: str
    name: str
    left: NDArray[np.uint8]
    right: NDArray[np.uint8]
    disparity: NDArray[np.float32]
    visible: NDArray[np.bool_]


def _differences(array: NDArray) -> NDArray:
    """Differences to the left and then the upper neighbour, modulo the integer type: small numbers."""
    for axis in (1, 0):
        shifted = np.zeros_like(array)
        shifted[(slice(None),) * axis + (slice(1, None),)] = array[(slice(None),) * axis + (slice(None, -1),)]
        array = array - shifted
    return array


def _sums(array: NDArray) -> NDArray:
    for axis in (0, 1):
        array = np.cumsum(array, axis=axis, dtype=array.dtype)
    return array


def _squeeze(array: NDArray) -> bytes:
    raw = _differences(array)
    planes = [np.ascontiguousarray(raw.view(np.uint8).reshape(-1, raw.dtype.itemsize)[:, k]).tobytes()
              for k in range(raw.dtype.itemsize)]  # fmt: skip
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 0, "pb": 0}]
    return lzma.compress(b"".join(planes), format=lzma.FORMAT_RAW, filters=filters)


def _expand(data: bytes, shape: tuple[int, ...], dtype: type) -> NDArray:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 0, "pb": 0}]
    size = np.dtype(dtype).itemsize
    expected = math.prod(shape) * size
    # One byte more than there should be: enough to notice, too little to fill the memory.
    raw = np.frombuffer(
        lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters).decompress(data, expected + 1), np.uint8
    )
    if raw.size != expected:
        raise ValueError("a pair has another size than it says")
    packed: NDArray = np.ascontiguousarray(raw.reshape(size, -1).T).view(dtype).reshape(shape)
    return _sums(packed)


def write_pairs(path: Path, pairs: Iterable[RealPair], most_bytes: int) -> list[str]:
    """Pack pairs in order as long as the file stays within ``most_bytes``; returns the names packed."""
    index: list[dict] = []
    blobs: list[bytes] = []
    total = 4096
    for pair in pairs:
        codes = np.where(np.isfinite(pair.disparity), np.round(pair.disparity * _UNITS) + 1, 0)
        if codes.max() > 65535:
            raise InputError(f"{pair.name} has disparities above {65534 // _UNITS} px, more than the file can hold")
        parts = [_squeeze(pair.left), _squeeze(pair.right), _squeeze(codes.astype(np.uint16))]
        parts.append(_squeeze(pair.visible.astype(np.uint8)))
        size = sum(map(len, parts)) + 256
        if total + size > most_bytes:
            continue
        total += size
        index.append(
            {
                "dataset": pair.dataset,
                "name": pair.name,
                "height": pair.left.shape[0],
                "width": pair.left.shape[1],
                "sizes": [len(part) for part in parts],
            }
        )
        blobs += parts
    header = json.dumps(index).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_bytes(_MAGIC + len(header).to_bytes(8, "little") + header + b"".join(blobs))
    return [f"{entry['dataset']}/{entry['name']}" for entry in index]


@reads("a packed set of pairs", "make one with scripts/pack_eval_pairs.py")
def read_pairs(path: Path) -> list[RealPair]:
    """Unpack a file written by `write_pairs`."""
    data = Path(path).read_bytes()
    if not data.startswith(_MAGIC):
        raise InputError(f"{path} is no packed set of pairs: make one with scripts/pack_eval_pairs.py")
    begin = len(_MAGIC) + 8
    length = int.from_bytes(data[len(_MAGIC) : begin], "little")
    index = read_json(data[begin : begin + length])
    position = begin + length
    pairs = []
    for entry in index:
        parts = []
        for size in entry["sizes"]:
            if not 0 <= size <= len(data) - position:
                raise ValueError("the file ends within a pair")
            parts.append(data[position : position + size])
            position += size
        shape = (entry["height"], entry["width"])
        check_pixels(path, *shape)
        codes = _expand(parts[2], shape, np.uint16).astype(np.float32)
        pairs.append(
            RealPair(
                str(entry["dataset"]),
                str(entry["name"]),
                _expand(parts[0], (*shape, 3), np.uint8),
                _expand(parts[1], (*shape, 3), np.uint8),
                np.where(codes > 0, (codes - 1) / _UNITS, np.inf).astype(np.float32),
                _expand(parts[3], shape, np.uint8).astype(bool),
            )
        )
    if not pairs:
        raise ValueError("it holds no pairs")
    return pairs
