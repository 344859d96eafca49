"""Small trees of files in each dataset's official layout, with values that are known.

Every builder returns what a reader must give back. Files are written with Pillow, numpy, h5py and bytes, not with
the package's own writers, so that an error of scale in both would not cancel.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 4, 6
INF = np.inf


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def image(path: Path, value: int, size=(HEIGHT, WIDTH)) -> None:
    """A flat colour, so that a swapped left and right shows."""
    Image.fromarray(np.full((*size, 3), value, np.uint8)).save(write(path))


def pair(left: Path, right: Path) -> None:
    image(left, 10)
    image(right, 20)


def grey8(path: Path, values) -> None:
    Image.fromarray(np.asarray(values, np.uint8)).save(write(path))


def grey16(path: Path, values) -> None:
    Image.fromarray(np.asarray(values, np.uint16)).save(write(path))


def colour16(path: Path, values) -> None:
    import cv2

    write(path)
    assert cv2.imwrite(str(path), np.asarray(values, np.uint16)[..., ::-1])


def pfm(path: Path, values) -> None:
    values = np.asarray(values, np.float32)
    kind = "Pf" if values.ndim == 2 else "PF"
    header = f"{kind}\n{values.shape[1]} {values.shape[0]}\n-1\n".encode()
    write(path).write_bytes(header + values[::-1].astype("<f4").tobytes())


def flo(path: Path, flow) -> None:
    flow = np.asarray(flow, np.float32)
    header = struct.pack("<fii", 202021.25, flow.shape[1], flow.shape[0])
    write(path).write_bytes(header + flow.astype("<f4").tobytes())


def hdf5(path: Path, name: str, values) -> None:
    import h5py

    with h5py.File(write(path), "w") as file:
        file[name] = np.asarray(values, np.float32)


def field(*corner, base: float = 2.0) -> np.ndarray:
    """``(H, W)`` of ``base`` whose first values are ``corner``."""
    values = np.full(HEIGHT * WIDTH, base, np.float64)
    values[: len(corner)] = corner
    return values.reshape(HEIGHT, WIDTH)


def flow_field(u: float, v: float) -> np.ndarray:
    return np.broadcast_to(np.array([u, v], np.float64), (HEIGHT, WIDTH, 2)).copy()
