"""Point clouds: which pixels to leave out, and binary PLY files."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.data.atomic import replacing
from matchattention.data.png import write_png16
from matchattention.errors import InputError

FilePath = str | os.PathLike[str]

_MILLIMETRES = 1000.0


def flying_pixel_mask(
    disparity: NDArray[np.floating[Any]], *, jump: float = 0.05, support: int = 5
) -> NDArray[np.bool_]:
    """Pixels that belong to no surface: those an interpolated depth edge leaves hanging in the air.

    A pixel is kept when at least `support` of its eight neighbours lie on its surface, that is within
    `jump` (relative; at least half a pixel) of its disparity. Disparity rather than depth, because a plane
    that recedes has steps in depth that grow without bound while its disparity stays linear.

    Args:
        disparity: (H, W) px; unknown pixels are not finite.
        jump: largest relative step between neighbours of one surface.
        support: neighbours needed of eight; fewer exist at the border, which is replicated.

    Returns:
        (H, W) bool, True where the pixel flies.
    """
    disparity = np.asarray(disparity, np.float32)
    if disparity.size == 0:
        return np.zeros(disparity.shape, bool)
    height, width = disparity.shape
    padded = np.pad(disparity, 1, mode="edge")
    tolerance = np.maximum(0.5, jump * np.abs(disparity))
    near = np.zeros(disparity.shape, np.int8)
    for dy in range(3):
        for dx in range(3):
            if (dy, dx) != (1, 1):
                with np.errstate(invalid="ignore"):
                    near += np.abs(padded[dy : dy + height, dx : dx + width] - disparity) <= tolerance
    return near < support


def write_ply(path: FilePath, points: NDArray[Any], colours: NDArray[Any]) -> None:
    """Write points (N, 3) in metres and colours (N, 3) uint8 as a binary little-endian PLY.

    Every viewer reads it: MeshLab, CloudCompare, Blender, Open3D.
    """
    if points.shape != colours.shape or points.ndim != 2 or points.shape[1] != 3:
        raise InputError(f"Points and colours must both be (N, 3), not {points.shape} and {colours.shape}.")
    vertices = np.empty(len(points), dtype=[("position", "<f4", 3), ("colour", "u1", 3)])
    vertices["position"] = points
    vertices["colour"] = colours
    header = (
        "ply\nformat binary_little_endian 1.0\ncomment matchattention; metres, x right, y down, z forward\n"
        f"element vertex {len(points)}\n"
        "property float x\nproperty float y\nproperty float z\n"
        "property uchar red\nproperty uchar green\nproperty uchar blue\nend_header\n"
    )
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(header.encode("ascii"))
        file.write(vertices.tobytes())


def write_depth_png16(path: FilePath, depth: NDArray[Any]) -> None:
    """Write metres as a 16-bit PNG in millimetres; 0 is unknown or beyond 65.535 m."""
    millimetres = np.where(np.isfinite(depth), depth, 0) * _MILLIMETRES
    fits = (millimetres > 0) & (millimetres < 65535.5)
    write_png16(path, np.where(fits, np.maximum(np.rint(millimetres), 1), 0).astype(np.uint16))
