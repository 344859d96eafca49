"""Photographs and surface textures for scenes: a few hundred tiles in one small file.

`scripts/build_photo_bank.py` makes the file from freely licensed packages (docs/photo-bank.md lists them); it is
not shipped, and everything works without it. The tiles must travel to machines that have torch and little else,
so they are stored as JPEG would store them (transform and tables of `synth.sensor.jpeg`) with zlib in place
of Huffman codes: about a tenth of the raw size, decoded by matrix products.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from matchattention.data.atomic import replacing
from matchattention.data.reading import check_pixels, reads
from matchattention.errors import InputError
from matchattention.synth.sensor import jpeg

FORMAT = "matchattention-photo-bank-1"
ENVIRONMENT = "MATCHATTENTION_PHOTO_BANK"
DEFAULT_PATH = Path(__file__).resolve().parents[3] / "local" / "photo_bank.safetensors"
DECODE_AT_ONCE = 64  # tiles: bounds the memory of decoding


def _pack(coefficients: Tensor) -> Tensor:
    """(T, C, 64, h, w) integers to compressed bytes, one frequency after the other so that zeros meet zeros."""
    planar = coefficients.permute(1, 2, 0, 3, 4).contiguous().to(torch.int16).numpy()
    # High bytes are nearly all 0 or 255: apart from the low ones they cost almost nothing.
    low, high = (planar & 0xFF).astype(np.uint8), (planar >> 8).astype(np.int8).view(np.uint8)
    packed = zlib.compress(low.tobytes() + high.tobytes(), 9)
    return torch.frombuffer(bytearray(packed), dtype=torch.uint8)


def _unpack(packed: Tensor, tiles: int, planes: int, blocks: int) -> Tensor:
    """Inverse of `_pack`: (T, C, 64, blocks, blocks) int16."""
    expected = 2 * planes * 64 * tiles * blocks * blocks
    # Bounded by what the header promises: compressed zeros would fill any memory.
    raw = np.frombuffer(zlib.decompressobj().decompress(packed.numpy().tobytes(), expected + 1), dtype=np.uint8)
    low, high = raw.reshape(2, planes, 64, tiles, blocks, blocks)
    planar = low.astype(np.int16) | (high.view(np.int8).astype(np.int16) << 8)
    return torch.from_numpy(planar).permute(2, 0, 1, 3, 4)


def save(tiles: Tensor, path: str | os.PathLike[str], quality: float = 85.0) -> None:
    """Write a bank.

    Args:
        tiles: (T, 3, S, S) uint8, S a multiple of 16.
        path: where to.
        quality: as in libjpeg.
    """
    if tiles.dtype != torch.uint8 or tiles.ndim != 4 or tiles.shape[1] != 3 or tiles.shape[2] != tiles.shape[3]:
        raise InputError(f"A bank holds square uint8 tiles (T, 3, S, S), got {tiles.dtype} {tuple(tiles.shape)}")
    if tiles.shape[2] % 16:
        raise InputError(f"Tiles of {tiles.shape[2]} px do not divide into blocks; use a multiple of 16")
    luma, chroma = jpeg.encode(tiles.float(), torch.full((1,), float(quality)))
    metadata = {
        "format": FORMAT, "tiles": str(tiles.shape[0]), "size": str(tiles.shape[2]), "quality": str(quality)
    }  # fmt: skip
    with replacing(path) as temporary:
        save_file({"luma": _pack(luma), "chroma": _pack(chroma)}, temporary, metadata=metadata)


def is_there() -> bool:
    """Whether `load` finds a bank without being told where."""
    named = os.environ.get(ENVIRONMENT)
    return Path(named).is_file() if named is not None else DEFAULT_PATH.is_file()


def load(path: str | os.PathLike[str] | None = None, device: str | torch.device = "cpu") -> Tensor | None:
    """Read a bank.

    Args:
        path: the file; by default ``$MATCHATTENTION_PHOTO_BANK``, else ``local/photo_bank.safetensors`` of the
            source tree.
        device: where the tiles shall live.

    Returns:
        (T, 3, S, S) uint8, RGB as displayed; None when no path was given and there is no bank.
    """
    named = path if path is not None else os.environ.get(ENVIRONMENT)
    file = Path(named) if named is not None else DEFAULT_PATH
    if not file.is_file():
        if named is None:
            return None
        raise InputError(f"No photo bank at {file}; build one with scripts/build_photo_bank.py")
    luma, chroma, quality = _read(file)
    scale = torch.full((1,), quality, device=device)
    parts = [
        jpeg.decode(luma_part.to(device).float(), chroma_part.to(device).float(), scale).round_().byte()
        for luma_part, chroma_part in zip(luma.split(DECODE_AT_ONCE), chroma.split(DECODE_AT_ONCE))
    ]
    return torch.cat(parts)


@reads("a photo bank", "build one with scripts/build_photo_bank.py")
def _read(file: Path) -> tuple[Tensor, Tensor, float]:
    """Coefficients of brightness and colour, and the quality they were stored with."""
    with safe_open(file, "pt") as stored:
        metadata = stored.metadata() or {}
        if metadata.get("format") != FORMAT:
            raise InputError(f"{file} is not a photo bank; build one with scripts/build_photo_bank.py")
        tiles, size, quality = int(metadata["tiles"]), int(metadata["size"]), float(metadata["quality"])
        if tiles < 1 or size < 16 or size % 16 or not 1 <= quality <= 100:
            raise ValueError(f"{tiles} tiles of {size} px at quality {quality:g}")
        check_pixels(file, tiles, size, size)
        luma = _unpack(stored.get_tensor("luma"), tiles, 1, size // 8)
        chroma = _unpack(stored.get_tensor("chroma"), tiles, 2, size // 16)
    return luma, chroma, quality


def to_linear(tiles: Tensor) -> Tensor:
    """uint8 as displayed to linear light in [0, 1], the inverse of the sensor's plain display curve."""
    return (tiles.float() / 255) ** 2.2
