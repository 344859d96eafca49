"""Does an exported file say what the network says? Both run on photographs of three sizes.

Whatever goes wrong in a file must show: the first size comes as a batch of two, and the last is so wide that positions
in half precision, which step by a whole pixel and more beyond column 1024, are further off than fp16 files may be.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from matchattention.data.images import read_image
from matchattention.errors import InputError
from matchattention.examples import example
from matchattention.exporting.runtime import Array, Runtime
from matchattention.models.network import MatchNetwork

TOLERANCE = {"fp32": 0.01, "fp16": 0.05, "int8": 0.5}  # px, mean
SIZES = ((192, 320), (256, 384), (64, 2048))


class Difference(NamedTuple):
    """One comparison, in px over both outputs."""

    size: tuple[int, int]
    mean: float
    largest: float


def compare(model: MatchNetwork, runtime: Runtime, size: tuple[int, int] | None = None) -> list[Difference]:
    """Run both on three crops of the bundled pairs: of three sizes, or of `size` where a file is fixed to it."""
    found = []
    for index, (height, width) in enumerate(SIZES if size is None else (size,) * 3):
        left, right = _crops(index, height, width, batch=2 if size is None and index == 0 else 1)
        with torch.inference_mode():
            field = model(torch.from_numpy(left), torch.from_numpy(right), None).field.numpy()
        first, second = np.split(field, 2)
        if model.config.task == "stereo":
            expected = np.maximum(-first[..., 0], 0), np.maximum(second[..., 0], 0)
        else:
            expected = first.transpose(0, 3, 1, 2), second.transpose(0, 3, 1, 2)
        apart = np.abs(np.stack(runtime(left, right)) - np.stack(expected))
        found.append(Difference((height, width), float(apart.mean()), float(apart.max())))
    return found


def require_agreement(differences: list[Difference], precision: str, name: str) -> None:
    """Raise with a sentence when a file is further from the network than its precision allows."""
    allowed = TOLERANCE[precision]
    for size, mean, largest in differences:
        if not mean <= allowed:  # also when it is not a number
            raise InputError(
                f"{name} was not written: at {size[0]}x{size[1]} it differs from PyTorch by {mean:.4f} px on average "
                f"(largest {largest:.2f}), more than the {allowed} px allowed for {precision}."
            )


def _crops(index: int, height: int, width: int, batch: int) -> tuple[Array, Array]:
    """Left and right views (batch, 3, height, width) fp32 out of the photographs."""
    pairs = [example(name) for name in ("donkey", "workbench")]
    views = []
    for paths in ([pair.left for pair in pairs], [pair.right for pair in pairs]):
        photos = [read_image(path) for path in paths]
        # Side by side, then upside down: wide, and every match is where it was, which a mirror would not keep.
        strip = np.hstack([*photos, *(photo[::-1] for photo in photos)])
        crops = []
        for number in range(index, index + batch):
            crop = strip[40 * number :, number % 2 * photos[0].shape[1] :][:height, :width]
            more = [(0, height - crop.shape[0]), (0, width - crop.shape[1]), (0, 0)]
            crops.append(np.pad(crop, more, mode="symmetric").transpose(2, 0, 1))
        views.append(np.stack(crops).astype(np.float32))
    return views[0], views[1]
