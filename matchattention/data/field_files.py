"""Disparity and flow files of any kind, told apart by their suffix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matchattention.data import formats
from matchattention.errors import InputError

KITTI_SCALE = 256.0
DISPARITY_SUFFIXES = (".pfm", ".png", ".npy", ".npz", ".dsp5", ".exr")
FLOW_SUFFIXES = (".flo", ".png", ".flo5", ".npy", ".npz", ".pfm")


def read_disparity(path: Path, png_scale: float = KITTI_SCALE) -> NDArray[np.float32]:
    """Read ``(H, W)`` px, unknown = inf; ``png_scale`` is what 16-bit PNG values are divided by."""
    if path.suffix == ".png":
        return formats.read_disparity_png16(path, png_scale)
    disparity = _reader(path, _DISPARITY_READERS)(path)
    if disparity.ndim != 2:
        raise InputError(f"{path} holds an array of shape {disparity.shape}, but disparity is (H, W)")
    return disparity


def read_flow(path: Path) -> NDArray[np.float32]:
    """Read ``(H, W, 2)`` px, unknown = inf; a PNG is taken as KITTI's, a PFM as Scene Flow's."""
    flow = _reader(path, _FLOW_READERS)(path)
    if path.suffix == ".pfm" and flow.ndim == 3:
        flow = flow[..., :2]
    if flow.ndim != 3 or flow.shape[2] != 2:
        raise InputError(f"{path} holds an array of shape {flow.shape}, but flow is (H, W, 2)")
    return flow


_Reader = Callable[[Path], NDArray[np.float32]]
_DISPARITY_READERS: dict[str, _Reader] = {
    ".pfm": formats.read_pfm,
    ".npy": formats.read_npy,
    ".npz": formats.read_npy,
    ".dsp5": formats.read_dsp5,
    ".exr": formats.read_exr,
}
_FLOW_READERS: dict[str, _Reader] = {
    ".flo": formats.read_flo,
    ".png": formats.read_kitti_flow_png16,
    ".flo5": formats.read_flo5,
    ".npy": formats.read_npy,
    ".npz": formats.read_npy,
    ".pfm": formats.read_pfm,
}


def _reader(path: Path, readers: dict[str, _Reader]) -> _Reader:
    try:
        return readers[path.suffix]
    except KeyError:
        raise InputError(f"{path} is none of the kinds that can be read: {', '.join(readers)}") from None
