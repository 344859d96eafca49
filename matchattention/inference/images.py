"""Whatever users call an image, as the network takes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from matchattention.data.images import picture_as_rgb, read_deep_image
from matchattention.data.png import is_png16, read_png16
from matchattention.errors import InputError

Image = NDArray[np.uint8]

SMALLEST = 16  # px a side: half a token of the coarsest scale; less than that holds nothing to match
_BIT_DEPTHS = (8, 10, 12, 14, 16)


def two_views(pair: Any) -> tuple[Any, Any]:
    """Left and right of an entry of many pairs."""
    is_path = isinstance(pair, str | os.PathLike)
    views: Any = () if is_path else pair
    try:
        left, right = views
    except (TypeError, ValueError):
        given = str(pair)[:60] if is_path else f"this {type(pair).__name__}"
        raise InputError(f"Each pair is (left, right), not {given}: give two views of one moment.") from None
    return left, right


def read_pair(left: Any, right: Any) -> tuple[Image, Image]:
    """Two views as (H, W, 3) uint8 RGB.

    Args:
        left: path, Pillow image, array (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), or tensor (3, H, W) as in
            `read_tensors`. Arrays are uint8, uint16, or float in [0, 1].
        right: the same for the other view.

    16-bit pairs are brought to 8 bits together, by the smallest usual bit depth (8, 10, 12, 14, 16) that holds
    both: cameras store 12 bits in 16, and dividing those by 257 would leave 16 grey levels.

    Raises:
        InputError: unreadable, of different sizes, or too small.
    """
    raw = _raw(left, "left"), _raw(right, "right")
    sizes = [f"{image.shape[1]}x{image.shape[0]}" for image in raw]
    if raw[0].shape[:2] != raw[1].shape[:2]:
        raise InputError(f"The left image is {sizes[0]} and the right one {sizes[1]}: give two views of the same size.")
    if min(raw[0].shape[:2]) < SMALLEST:
        raise InputError(f"The images are {sizes[0]}: too small to match, give at least {SMALLEST}x{SMALLEST} px.")
    return _eight_bits(raw)


def read_tensors(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Two views as (B, 3, H, W) uint8 on their own device.

    Args:
        left: (3, H, W) or (B, 3, H, W), uint8, or float in [0, 1].
        right: the same for the other view.
    """
    if left.shape != right.shape or left.device != right.device or left.dtype != right.dtype:
        raise InputError(
            f"The left tensor is {_described(left)} and the right one {_described(right)}: "
            "give both in one shape and number format, on one device."
        )
    if left.dim() not in (3, 4) or left.shape[-3] != 3 or min(left.shape[-2:]) < SMALLEST or len(left) == 0:
        raise InputError(
            f"The tensors are {_described(left)}: give (3, H, W) or (B, 3, H, W) with sides of at least {SMALLEST} px."
        )
    return _bytes(left), _bytes(right)


def _bytes(image: Tensor) -> Tensor:
    if image.dtype != torch.uint8:
        if not image.is_floating_point():
            raise InputError(f"The tensors are {image.dtype}: give uint8 in [0, 255] or floats in [0, 1].")
        image = image.detach().float()
        low, high = (float(value) for value in image.aminmax())
        if not (low >= 0 and high <= 1):
            raise InputError(f"The tensors' floats reach from {low:g} to {high:g}: give them in [0, 1], or uint8.")
        image = (image * 255).round_().to(torch.uint8)
    return image if image.dim() == 4 else image[None]


def _described(image: Tensor) -> str:
    return f"{tuple(image.shape)} {str(image.dtype).removeprefix('torch.')} on {image.device}"


def read_side_by_side(path: str | os.PathLike[str]) -> tuple[Image, Image]:
    """Both views, (H, W, 3) uint8 RGB each, of a file that holds them side by side; 16 bits as in `read_pair`."""
    left, right = split_side_by_side(_raw(path, "side-by-side"), str(path))
    return _eight_bits((left, right))


def split_side_by_side(image: NDArray[Any], name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Left and right half of an image that holds both views."""
    width = image.shape[1]
    if width % 2 or width < 2 * SMALLEST:
        raise InputError(f"{name} is {width} px wide: a side-by-side image has two views of the same width.")
    return np.ascontiguousarray(image[:, : width // 2]), np.ascontiguousarray(image[:, width // 2 :])


def _raw(image: Any, name: str) -> NDArray[Any]:
    """(H, W, 3) of uint8 or uint16."""
    if isinstance(image, Tensor):
        if image.dim() != 3:
            raise InputError(f"The {name} tensor is {_described(image)}: give both views as tensors, or (3, H, W).")
        return np.ascontiguousarray(read_tensors(image, image)[0][0].permute(1, 2, 0).cpu().numpy())
    if isinstance(image, str | os.PathLike):
        path = Path(image)
        if path.suffix.lower() == ".png" and is_png16(path):
            return _three_channels(read_png16(path), name)
        return read_deep_image(path)
    if hasattr(image, "convert") and hasattr(image, "mode"):  # Pillow, which need not be imported for arrays
        return picture_as_rgb(image, f"The {name} image")
    array = np.asarray(image)
    if array.dtype.kind == "f" and array.size:
        low, high = float(array.min()), float(array.max())
        if not (low >= 0 and high <= 1):
            raise InputError(
                f"The {name} image's floats reach from {low:g} to {high:g}: give them in [0, 1], or uint8."
            )
        array = np.rint(array * np.float32(255)).astype(np.uint8)
    if array.dtype not in (np.uint8, np.uint16):
        raise InputError(f"The {name} image has dtype {array.dtype}: give uint8, uint16, or floats in [0, 1].")
    return _three_channels(array, name)


def _three_channels(array: NDArray[Any], name: str) -> NDArray[Any]:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.ndim == 2:
        return np.repeat(array[..., None], 3, axis=2)
    if array.ndim == 3 and array.shape[2] in (3, 4):
        return array[..., :3]
    raise InputError(f"The {name} image has shape {array.shape}: give (H, W) grey or (H, W, 3) colour, channels last.")


def _eight_bits(raw: tuple[NDArray[Any], NDArray[Any]]) -> tuple[Image, Image]:
    if raw[0].dtype != raw[1].dtype:
        raise InputError(f"The left image is {raw[0].dtype} and the right one {raw[1].dtype}: give both in one depth.")
    if raw[0].dtype == np.uint8:
        return np.ascontiguousarray(raw[0]), np.ascontiguousarray(raw[1])
    brightest = max(int(image.max()) for image in raw)
    white = next(2**bits - 1 for bits in _BIT_DEPTHS if brightest < 2**bits)
    left, right = (np.rint(image * np.float32(255 / white)).astype(np.uint8) for image in raw)
    return left, right
