"""Does an exported file say what the network says? Both run on photographs of three sizes."""

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
SIZES = ((192, 320), (256, 384), (160, 448))


class Difference(NamedTuple):
    """One comparison, in px over both outputs."""

    size: tuple[int, int]
    mean: float
    largest: float


def compare(model: MatchNetwork, runtime: Runtime, size: tuple[int, int] | None = None) -> list[Difference]:
    """Run both on three crops of the bundled pairs: of three sizes, or of `size` where a file is fixed to it."""
    found = []
    for index, (height, width) in enumerate(SIZES if size is None else (size,) * 3):
        left, right = _crop(index, height, width)
        with torch.inference_mode():
            field = model(torch.from_numpy(left), torch.from_numpy(right), None).field.numpy()
        first, second = field[:1], field[1:]
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


def _crop(index: int, height: int, width: int) -> tuple[Array, Array]:
    """A part of a bundled pair as (1, 3, H, W) fp32, repeated where the photograph ends."""
    files = example("donkey" if index % 2 == 0 else "workbench")
    crops = []
    for path in (files.left, files.right):
        image = read_image(path)[40 * index :, 60 * index :]
        more = [(0, max(0, side - have)) for side, have in zip((height, width), image.shape)]
        image = np.pad(image, (*more, (0, 0)), mode="symmetric")[:height, :width]
        crops.append(np.ascontiguousarray(image.transpose(2, 0, 1)[None], dtype=np.float32))
    return crops[0], crops[1]
