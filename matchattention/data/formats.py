"""Files of disparity and flow, each read with the scale its name says.

Every reader returns float32 in px with unknown pixels as ``inf``, whatever the file marks them with
(``inf``, ``nan``, zero, 1e9 …), so ``numpy.isfinite`` is the validity mask everywhere. Every writer marks
non-finite pixels the way its format does. Malformed files are refused with an ``InputError``.
"""

from __future__ import annotations

import math
import os
import re
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from matchattention.data.atomic import replacing
from matchattention.data.png import check_png_size, read_png16, write_png16
from matchattention.data.reading import check_pixels, reads
from matchattention.errors import InputError

FilePath = str | os.PathLike[str]
Field = NDArray[np.float32]

UNKNOWN = np.float32(np.inf)
_FLO_TAG = b"PIEH"  # the float 202021.25, little endian
_FLO_UNKNOWN = 1e9
_PFM_HEADER = re.compile(rb"(P[Ff])\s+(\d{1,9})\s+(\d{1,9})\s+([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[ \t\r]*\n")
_LONGEST_PFM_HEADER = 256  # bytes


def known_pixels(field: NDArray[Any]) -> NDArray[np.bool_]:
    """``(H, W)`` where a disparity ``(H, W)`` or flow ``(H, W, 2)`` is known."""
    finite = np.isfinite(field)
    return finite if finite.ndim == 2 else np.logical_and.reduce(finite, axis=-1)


@reads("a PFM file")
def read_pfm(path: FilePath) -> Field:
    """Read a portable float map: ``(H, W)``, or ``(H, W, 3)`` for the colour kind.

    Lines are stored bottom-up; the sign of the scale gives the byte order and its size is a unit that
    the benchmarks leave at 1, so values are returned as stored. NaN becomes ``inf``.
    """
    content = Path(path).read_bytes()
    # Exactly one white-space byte ends the header; the pixels may begin with bytes that look like more.
    header = _PFM_HEADER.match(content[:_LONGEST_PFM_HEADER])
    if header is None:
        raise InputError(f"{path} is not a PFM file: it must begin with Pf or PF, its size and its scale")
    kind, width, height, scale = header[1], int(header[2]), int(header[3]), float(header[4])
    if scale == 0 or not math.isfinite(scale):
        raise InputError(f"{path} has a PFM header with a scale of {scale:g}; fetch or export it again")
    check_pixels(path, height, width)
    shape = (height, width, 3) if kind == b"PF" else (height, width)
    pixels = _pixels(path, content[header.end() :], "<f4" if scale < 0 else ">f4", shape)
    return _unknown_as_inf(pixels[::-1])


def write_pfm(path: FilePath, values: NDArray[Any]) -> None:
    """Write ``(H, W)`` or ``(H, W, 3)`` as a little-endian PFM with scale 1; unknown pixels become inf."""
    if values.ndim != 2 and not (values.ndim == 3 and values.shape[2] == 3):
        raise ValueError(f"a PFM file holds (H, W) or (H, W, 3), not {values.shape}")
    height, width = values.shape[:2]
    header = f"{'Pf' if values.ndim == 2 else 'PF'}\n{width} {height}\n-1.0\n".encode()
    _write(path, header + _unknown_as_inf(values)[::-1].astype("<f4").tobytes())


@reads("a .flo file")
def read_flo(path: FilePath) -> Field:
    """Read Middlebury's ``.flo``: ``(H, W, 2)`` as (u, v); components beyond 1e9 are unknown."""
    content = Path(path).read_bytes()
    if content[:4] != _FLO_TAG:
        raise InputError(f"{path} is not a .flo file: it must begin with PIEH")
    if len(content) < 12:
        raise InputError(f"{path} ends within its header; fetch it again")
    width, height = (int(n) for n in np.frombuffer(content, "<i4", 2, 4))
    check_pixels(path, height, width)
    flow = _unknown_as_inf(_pixels(path, content[12:], "<f4", (height, width, 2)))
    flow[(np.abs(flow) > _FLO_UNKNOWN).any(axis=-1)] = UNKNOWN
    return flow


def write_flo(path: FilePath, flow: NDArray[Any]) -> None:
    """Write ``(H, W, 2)`` as Middlebury's ``.flo``; unknown pixels become 1e10."""
    _expect_flow(flow)
    height, width = flow.shape[:2]
    stored = np.where(np.isfinite(flow).all(axis=-1, keepdims=True), flow, 1e10).astype("<f4")
    _write(path, _FLO_TAG + np.array([width, height], "<i4").tobytes() + stored.tobytes())


def read_disparity_png16(path: FilePath, scale: float) -> Field:
    """Read a grey 16-bit PNG as ``value / scale``; zero is unknown."""
    stored = read_png16(path)
    if stored.ndim != 2:
        raise InputError(f"{path} has {stored.shape[2]} channels; a disparity map has one")
    return np.where(stored > 0, stored / np.float32(scale), UNKNOWN).astype(np.float32)


def read_kitti_disparity_png16(path: FilePath) -> Field:
    """KITTI's disparity (also DrivingStereo's): value / 256, zero is unknown."""
    return read_disparity_png16(path, 256.0)


def write_kitti_disparity_png16(path: FilePath, disparity: NDArray[Any]) -> None:
    """Write ``round(disparity * 256)``, at least 1 where known, because zero means unknown."""
    if disparity.ndim != 2:
        raise ValueError(f"expected (H, W), got {disparity.shape}")
    known = np.isfinite(disparity)
    scaled = np.clip(np.rint(np.where(known, disparity, 0) * 256.0), 1, 65535)
    write_png16(path, np.where(known, scaled, 0).astype(np.uint16))


def read_kitti_flow_png16(path: FilePath) -> Field:
    """KITTI's flow (also HD1K's): (value - 2^15) / 64 of two channels; the third is zero where unknown."""
    stored = read_png16(path)
    if stored.ndim != 3 or stored.shape[2] != 3:
        raise InputError(f"{path} is not KITTI flow: it must have 3 channels of 16 bits")
    flow = (stored[..., :2].astype(np.float32) - np.float32(2**15)) / np.float32(64)
    flow[stored[..., 2] == 0] = UNKNOWN
    return flow


def write_kitti_flow_png16(path: FilePath, flow: NDArray[Any]) -> None:
    """Write ``(H, W, 2)`` as KITTI's flow: ``round(flow * 64 + 2^15)``; flow beyond ±512 px is clipped."""
    _expect_flow(flow)
    known = np.isfinite(flow).all(axis=-1)
    stored = np.zeros((*known.shape, 3), np.uint16)
    scaled = np.clip(np.rint(np.where(known[..., None], flow, 0) * 64.0 + 2**15), 0, 65535)
    stored[..., :2] = np.where(known[..., None], scaled, 0)
    stored[..., 2] = known
    write_png16(path, stored)


def read_sintel_disparity_rgb8(path: FilePath) -> Field:
    """Sintel's disparity: R * 4 + G / 2^6 + B / 2^14 of an 8-bit colour PNG. Every pixel is known."""
    rgb = read_rgb8(path)
    return (rgb @ np.array([4, 2.0**-6, 2.0**-14])).astype(np.float32)


def read_fsd_disparity_rgb8(path: FilePath) -> Field:
    """The FoundationStereo dataset's disparity: (R * 255^2 + G * 255 + B) / 1000 of an 8-bit colour PNG."""
    rgb = read_rgb8(path)
    disparity = ((rgb @ np.array([255.0**2, 255.0, 1.0])) / 1000).astype(np.float32)
    return np.where(disparity > 0, disparity, UNKNOWN)


def read_flo5(path: FilePath) -> Field:
    """Spring's flow: ``(H, W, 2)`` of the HDF5 dataset ``flow``, NaN is unknown."""
    flow = _read_hdf5(path, "flow")
    if flow.ndim != 3 or flow.shape[2] != 2:
        raise InputError(f"{path} holds an array of shape {flow.shape}, but flow is (H, W, 2)")
    flow[~np.isfinite(flow).all(axis=-1)] = UNKNOWN
    return flow


def write_flo5(path: FilePath, flow: NDArray[Any]) -> None:
    """Write ``(H, W, 2)`` as Spring's compressed HDF5; unknown pixels become NaN."""
    _expect_flow(flow)
    _write_hdf5(path, "flow", flow)


def read_dsp5(path: FilePath) -> Field:
    """Spring's disparity: ``(H, W)`` of the HDF5 dataset ``disparity``, NaN is unknown."""
    disparity = _read_hdf5(path, "disparity")
    if disparity.ndim != 2:
        raise InputError(f"{path} holds an array of shape {disparity.shape}, but disparity is (H, W)")
    return disparity


def write_dsp5(path: FilePath, disparity: NDArray[Any]) -> None:
    """Write ``(H, W)`` as Spring's compressed HDF5; unknown pixels become NaN."""
    if disparity.ndim != 2:
        raise ValueError(f"expected (H, W), got {disparity.shape}")
    _write_hdf5(path, "disparity", disparity)


@reads("a numpy file of numbers", "write it with numpy.save")
def read_npy(path: FilePath) -> Field:
    """An array in ``.npy``, or the only (or the ``disparity`` / ``flow``) array of an ``.npz``, in px."""
    with Path(path).open("rb") as file:
        if not zipfile.is_zipfile(file):
            file.seek(0)
            return _read_array(path, file)
        with zipfile.ZipFile(file) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            chosen = [name for name in members if name in ("disparity", "flow")] or list(members)
            if len(chosen) != 1:
                found = ", ".join(members)[:200] or "nothing"
                raise InputError(f"{path} holds {found}; name the one to read disparity or flow")
            with archive.open(members[chosen[0]]) as member:
                return _read_array(path, member)


def _read_array(path: FilePath, file: IO[bytes]) -> Field:
    """The array that begins here; its header is looked at before room is made for what it promises."""
    layout = np.lib.format
    version = layout.read_magic(file)
    read_header = layout.read_array_header_1_0 if version == (1, 0) else layout.read_array_header_2_0
    shape, by_columns, dtype = read_header(file)
    if dtype.kind not in "fiu":
        raise InputError(f"{path} holds {dtype}, not numbers; write it with numpy.save of a float array")
    if len(shape) not in (2, 3):
        raise InputError(f"{path} holds an array of shape {shape}, which is no image; write (H, W) or (H, W, 2)")
    check_pixels(path, *shape)
    expected = math.prod(shape) * dtype.itemsize
    content = file.read(expected)
    if len(content) != expected:
        raise InputError(f"{path} holds {len(content)} bytes of values where its header promises {expected}")
    values: NDArray[Any] = np.frombuffer(content, dtype).reshape(shape, order="F" if by_columns else "C")
    return _unknown_as_inf(values)


def write_npy(path: FilePath, values: NDArray[Any]) -> None:
    """Write float32 in px; unknown pixels become inf. The suffix must be ``.npy`` or ``.npz``."""
    with replacing(path) as temporary:
        if Path(path).suffix == ".npz":
            named: dict[str, Any] = {"flow" if values.ndim == 3 else "disparity": _unknown_as_inf(values)}
            np.savez_compressed(temporary, **named)
        else:
            np.save(temporary, _unknown_as_inf(values))


def read_exr(path: FilePath) -> Field:
    """The values of an OpenEXR file, ``(H, W)``: its only channel, or the one named R, Y or Z."""
    channels = read_exr_channels(path)
    chosen = next(name for name in ("R", "Y", "Z", *channels) if name in channels)
    return _unknown_as_inf(channels[chosen])


@reads("an EXR file")
def read_exr_channels(path: FilePath) -> dict[str, NDArray[Any]]:
    """Every channel ``(H, W)`` of an OpenEXR file by its name."""
    try:
        import OpenEXR
    except ImportError:
        raise InputError(f"Reading {path} needs OpenEXR: pip install 'matchattention[exr]'") from None
    with OpenEXR.File(str(path), header_only=True) as file:
        lowest, highest = (np.asarray(corner, np.int64) for corner in file.header()["dataWindow"])
        width, height = (int(extent) for extent in highest - lowest + 1)
    check_pixels(path, height, width)
    with OpenEXR.File(str(path), separate_channels=True) as file:
        channels = {name: np.array(channel.pixels) for name, channel in file.channels().items()}
    if not channels:
        raise InputError(f"{path} holds no channels; export it again")
    for name, values in channels.items():
        if values.shape != (height, width) or values.dtype.kind not in "fu":
            raise InputError(f"{path} has a channel {name[:40]!r} that is no plain image; export it without deep data")
    return channels


def _write(path: FilePath, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def _pixels(path: FilePath, content: bytes, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    expected = math.prod(shape) * np.dtype(dtype).itemsize
    if len(content) != expected:
        raise InputError(f"{path} holds {len(content)} bytes of pixels where its header promises {expected}")
    return np.frombuffer(content, dtype).reshape(shape)


def _unknown_as_inf(values: NDArray[Any]) -> Field:
    with np.errstate(over="ignore"):  # float64 beyond float32 is unknown too
        values = np.array(values, np.float32)
    values[~np.isfinite(values)] = UNKNOWN
    return values


def _expect_flow(flow: NDArray[Any]) -> None:
    if flow.ndim != 3 or flow.shape[2] != 2:
        raise ValueError(f"expected (H, W, 2), got {flow.shape}")


@reads("a colour image")
def read_rgb8(path: FilePath) -> NDArray[np.float64]:
    """The stored bytes ``(H, W, 3)`` of an 8-bit colour image."""
    from PIL import Image

    with Image.open(path) as image:
        check_png_size(path)
        if image.mode not in ("RGB", "RGBA"):
            raise InputError(f"{path} is not 8-bit colour (it is {image.mode}), so it holds no disparity")
        return np.asarray(image, np.float64)[..., :3]


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise InputError("Spring's files need h5py: pip install 'matchattention[spring]'") from None
    return h5py


@reads("an HDF5 file")
def _read_hdf5(path: FilePath, name: str) -> Field:
    h5py = _h5py()
    with h5py.File(path, "r") as file:
        if name not in file:
            raise InputError(f"{path} has no dataset named {name!r}; it holds {', '.join(sorted(file))[:200]}")
        if isinstance(file.get(name, getlink=True), h5py.ExternalLink):
            raise InputError(f"{path} only points to another file; give the one that holds {name!r}")
        dataset = file[name]
        if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind not in "fiu" or dataset.ndim not in (2, 3):
            raise InputError(f"{path} holds no array of numbers named {name!r}; fetch or export it again")
        check_pixels(path, *dataset.shape)
        return _unknown_as_inf(dataset[()])


def _write_hdf5(path: FilePath, name: str, values: NDArray[Any]) -> None:
    h5py = _h5py()
    stored = np.where(np.isfinite(values), values, np.nan).astype(np.float32)
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        file.create_dataset(name, data=stored, compression="gzip", compression_opts=5)
