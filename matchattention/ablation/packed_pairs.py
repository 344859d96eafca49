"""Real pairs in one small file that needs no image library to read, for a GPU machine where nothing is installed.

They are measured, never trained on.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matchattention.data.atomic import replacing
from matchattention.data.reading import check_pixels, read_json, reads
from matchattention.errors import InputError
from matchattention.training.real_pairs import RealPair, read_real_pairs

_MAGIC = b"MAPAIRS1"
_UNITS = 128  # disparity steps per px in the file: finer than any ground truth here is accurate
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 0, "pb": 0}]


def read_any(texts: Sequence[str]) -> list[RealPair]:
    """Pairs of packed files and of datasets named NAME[/SPLIT]:PATH."""
    packed = [text for text in texts if Path(text).is_file()]
    pairs = [pair for text in packed for pair in read_pairs(Path(text))]
    return pairs + read_real_pairs([text for text in texts if text not in packed], most=1000)


def in_turn(pairs: Sequence[RealPair]) -> list[RealPair]:
    """The first of every dataset, then the second of every one, so that a file cut short has some of all."""
    datasets = [[pair for pair in pairs if pair.dataset == name] for name in dict.fromkeys(p.dataset for p in pairs)]
    return [pair for row in zip_longest(*datasets) for pair in row if pair is not None]


def write_pairs(path: Path, pairs: Iterable[RealPair], most_bytes: int) -> list[str]:
    """Pack stereo pairs in order as long as the file stays within ``most_bytes``; returns the names packed."""
    index: list[dict] = []
    blobs: list[bytes] = []
    total = 4096
    for pair in pairs:
        codes = np.where(np.isfinite(pair.disparity), np.round(pair.disparity * _UNITS) + 1, 0)
        if codes.min() < 0 or codes.max() > 65535:
            raise InputError(
                f"{pair.name} has disparities outside 0 to {65534 // _UNITS} px, which the file cannot hold."
            )
        parts = [_squeeze(pair.left), _squeeze(pair.right), _squeeze(codes.astype(np.uint16))]
        parts.append(_squeeze(pair.visible.astype(np.uint8)))
        size = sum(map(len, parts)) + 256
        if total + size > most_bytes:
            continue
        total += size
        height, width = pair.left.shape[:2]
        entry = {"dataset": pair.dataset, "name": pair.name, "height": height, "width": width}
        index.append({**entry, "sizes": [len(part) for part in parts]})
        blobs += parts
    if not index:
        raise InputError("Not one pair fits into the file: allow more with --megabytes.")
    header = json.dumps(index).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_bytes(_MAGIC + len(header).to_bytes(8, "little") + header + b"".join(blobs))
    return [f"{entry['dataset']}/{entry['name']}" for entry in index]


@reads("a packed set of pairs", "make one with `matchattention ablate pack`")
def read_pairs(path: Path) -> list[RealPair]:
    """Unpack a file written by `write_pairs`."""
    data = Path(path).read_bytes()
    if not data.startswith(_MAGIC):
        raise InputError(f"{path} is no packed set of pairs: make one with `matchattention ablate pack`.")
    begin = len(_MAGIC) + 8
    position = begin + int.from_bytes(data[len(_MAGIC) : begin], "little")
    pairs = []
    for entry in read_json(data[begin:position]):
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
    return pairs


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
    planes = raw.view(np.uint8).reshape(-1, raw.dtype.itemsize).T
    return lzma.compress(np.ascontiguousarray(planes).tobytes(), format=lzma.FORMAT_RAW, filters=_FILTERS)


def _expand(data: bytes, shape: tuple[int, ...], dtype: type) -> NDArray:
    size = np.dtype(dtype).itemsize
    expected = math.prod(shape) * size
    # One byte more than there should be: enough to notice, too little to fill the memory.
    raw = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_FILTERS).decompress(data, expected + 1)
    if len(raw) != expected:
        raise ValueError("a pair has another size than it says")
    planes = np.frombuffer(raw, np.uint8).reshape(size, -1)
    return _sums(np.ascontiguousarray(planes.T).view(dtype).reshape(shape))
