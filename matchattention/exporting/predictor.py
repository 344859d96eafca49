"""An exported file behind the predictor's interface, so that every command takes it in place of a model."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from matchattention.errors import InputError, InputWarning
from matchattention.exporting.runtime import SUFFIXES, Array, Runtime, open_runtime
from matchattention.geometry.pair_check import judge_pair, require_visible
from matchattention.inference.consistency import judge
from matchattention.inference.images import Image, read_pair
from matchattention.inference.prediction import Prediction
from matchattention.models.network import COARSEST, LARGE, at_tokens, coarse_field


def refuse_exported(name: str, what: str) -> None:
    """Raise with a sentence where a checkpoint is needed."""
    if is_exported(name):
        raise InputError(f"{name} is an exported file, and {what} needs the checkpoint it was made from.")


def is_exported(name: str | None) -> bool:
    """Whether a model's name is a file that `matchattention export` wrote."""
    return name is not None and Path(name).suffix in SUFFIXES


class ExportedPredictor:
    """Runs an exported file on image pairs of any size (or up to the one that it is fixed to).

    Args:
        path: .onnx, .xml or .pt2 file.
        engine: "onnx", "openvino" or "torch"; by the suffix unless given.
        precision: "auto", or "bf16" for OpenVINO to compute in.
        threads: 0 leaves the choice to the engine.
        check: as in `Predictor`.
        device: "auto" or "cpu".
    """

    device = torch.device("cpu")
    dtype = torch.float32

    def __init__(
        self,
        path: str | Path,
        engine: str | None = None,
        precision: str = "auto",
        threads: int = 0,
        *,
        check: bool = True,
        device: str = "auto",
    ) -> None:
        self.runtime: Runtime = open_runtime(path, engine, precision, threads, device)
        self.check = check
        if self.task == "flow" and precision == "bf16":
            warnings.warn(
                "OpenVINO's bf16 also rounds positions, and flow then is useless: leave --precision bf16 out.",
                InputWarning,
                stacklevel=2,
            )

    @property
    def task(self) -> str:
        """ "stereo" or "flow"."""
        return self.runtime.task

    def __call__(
        self,
        left: Any,
        right: Any,
        *,
        initial: Prediction | None = None,
        check: bool | None = None,
        trace: bool = False,
    ) -> Prediction:
        """Match a pair; see `Predictor`."""
        images = read_pair(left, right)
        if self.task == "stereo" and (self.check if check is None else check):
            judge_pair(*images)
        else:
            for image, name in zip(images, ("left", "right") if self.task == "stereo" else ("first", "second")):
                require_visible(image, name)
        return self.match(*images, initial=initial, trace=trace)

    def match(self, left: Image, right: Image, *, initial: Prediction | None = None, trace: bool = False) -> Prediction:
        """`__call__` for two (H, W, 3) uint8 arrays of one size, without any check."""
        if trace:
            raise InputError("An exported network shows no inner fields: use the checkpoint for --explain.")
        images = [torch.from_numpy(image.transpose(2, 0, 1)[None].astype(np.float32)) for image in (left, right)]
        start = None
        if initial is not None and self.runtime.takes_start:
            start = torch.from_numpy(np.stack([initial.relative_position, initial.relative_position_right]))
        field = self.field(images[0], images[1], start)
        occlusion, confidence = judge(field[0], field[1])
        return Prediction(
            task=self.task,
            relative_position=field[0].numpy(),
            relative_position_right=field[1].numpy(),
            occlusion=occlusion.numpy(),
            confidence=confidence.numpy(),
            image=left,
        )

    def field(self, image0: torch.Tensor, image1: torch.Tensor, initial: torch.Tensor | None = None) -> torch.Tensor:
        """(2N, H, W, 2) px of images (N, 3, H, W); large ones start at half resolution where the file can."""
        height, width = image0.shape[-2:]
        rows, columns = self._padded(height, width)
        if initial is None and self.runtime.takes_start and self.runtime.size is None and max(height, width) > LARGE:
            initial = coarse_field(self.field, image0, image1)
        if initial is None and max(height, width) > LARGE:
            warnings.warn(
                f"Above {LARGE} px the network starts at half resolution, which this file cannot: wide matches may be "
                "missed. Use an .onnx file of any size with ONNX Runtime.",
                InputWarning,
                stacklevel=2,
            )
        border = (0, columns - width, rows - height, 0)
        first, second = (F.pad(image, border, mode="replicate").numpy() for image in (image0, image1))
        start: Array | None = None
        if initial is not None:
            field = F.pad(initial.permute(0, 3, 1, 2), border, mode="replicate").permute(0, 2, 3, 1)
            start = at_tokens(field).contiguous().numpy()
        both = torch.from_numpy(np.concatenate(self.runtime(first, second, start)))
        if self.task == "flow":
            both = both.permute(0, 2, 3, 1)
        else:
            signed = torch.cat((-both[: len(image0)], both[len(image0) :]))
            both = torch.stack((signed, torch.zeros_like(signed)), -1)
        return both[:, rows - height :, :width].contiguous()

    def _padded(self, height: int, width: int) -> tuple[int, int]:
        size = self.runtime.size
        if size is None:
            rows, columns = max(height, self.runtime.least), max(width, self.runtime.least)
            return rows + -rows % COARSEST, columns + -columns % COARSEST
        if height > size[0] or width > size[1]:
            raise InputError(
                f"This file is fixed to {size[0]}x{size[1]} (height x width), the images are {height}x{width}: "
                "resize them, or export without --size."
            )
        return size
