"""Two photos in, matches out."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from matchattention.errors import InputError, InputWarning
from matchattention.geometry.pair_check import judge_pair, require_visible
from matchattention.inference.consistency import judge
from matchattention.inference.images import Image, read_pair
from matchattention.inference.prediction import Prediction
from matchattention.models.network import Matches, MatchNetwork
from matchattention.runtime.deploy import fuse, fuses_well
from matchattention.runtime.engine import Engine, EngineMode
from matchattention.runtime.frozen import freeze
from matchattention.runtime.memory import WHOLE, first_that_fits, plans, ran_out_of_memory
from matchattention.runtime.precision import choose_device, choose_precision
from matchattention.runtime.tiling import match_by_plan


class Predictor:
    """Runs a network on image pairs of any kind and size.

    ```python
    predict = Predictor(matchattention.load("rt"))
    result = predict("left.png", "right.png")
    result.disparity, result.occlusion, result.confidence
    ```

    Args:
        model: a network, or the name or file of one.
        device: "auto" (the GPU where there is one), "cpu", "cuda", "cuda:1", …
        precision: "auto" (fp16 on a GPU, fp32 on a CPU), "fp32", "fp16" or "bf16". Positions are always fp32.
        mode: how the network runs, see `Engine`: "auto" on a GPU uses fused kernels where the network has them and
            replays sizes that come again as CUDA graphs.
        check: whether to look at each pair first for swapped views, vertical error and clashing exposure
            (about half a second of one CPU core; stereo only).
    """

    def __init__(
        self,
        model: MatchNetwork | str,
        device: str | torch.device = "auto",
        precision: str = "auto",
        *,
        mode: EngineMode = "auto",
        check: bool = True,
    ) -> None:
        if isinstance(model, str):
            from matchattention.models.checkpoint import load

            model = load(model)
        self.device = choose_device(device)
        self.dtype = choose_precision(precision, self.device)
        self.network = freeze(model, self.device, self.dtype)
        self.check = check
        fused = None
        if mode == "fused" or (mode == "auto" and fuses_well(model, self.device, self.dtype)):
            fused = fuse(model, self.device, self.dtype)
        self._engine = Engine(self.network, mode, fused)

    @property
    def task(self) -> str:
        """ "stereo" or "flow"."""
        return self.network.config.task

    def __call__(
        self,
        left: Any,
        right: Any,
        *,
        initial: Prediction | None = None,
        check: bool | None = None,
        trace: bool = False,
    ) -> Prediction:
        """Match a pair.

        Args:
            left: left view or first frame: a path, a Pillow image, or an array (H, W), (H, W, 3) or (H, W, 4),
                uint8 or uint16.
            right: right view or second frame, the same size.
            initial: the prediction of a similar pair (a video's last frame) to start from.
            check: in place of the predictor's own `check`.
            trace: keep the network's full answer as `matches` (for the pictures of `viz`); needs an image that
                fits into memory in one piece.

        Raises:
            InputError: files that are no images, sizes that differ, one colour only, too small; and with `check`
                swapped views or a pair that is not rectified.
        """
        images = read_pair(left, right)
        self._check(*images, self.check if check is None else check)
        return self.match(*images, initial=initial, trace=trace)

    def match(self, left: Image, right: Image, *, initial: Prediction | None = None, trace: bool = False) -> Prediction:
        """`__call__` for two (H, W, 3) uint8 arrays of one size, without any check."""
        tensors = self._tensor(left), self._tensor(right)
        start = None if initial is None else self._start(initial, left)
        with torch.inference_mode():
            matches = None
            if trace:
                matches = self.network(tensors[0].float(), tensors[1].float(), start)
                field = matches.field
                if self.network.config.windows[-1][0] == 1:  # see `Matches`: nobody looks there
                    x, y = matches.self_position.unbind(-1)
                    matches = matches._replace(self_position=torch.stack((x, torch.zeros_like(y)), -1))
                matches = _on_cpu(matches)
            else:
                field = self._field(*tensors, start)
            occlusion, confidence = judge(field[0], field[1])
            return Prediction(
                task=self.task,
                relative_position=field[0].cpu().numpy(),
                relative_position_right=field[1].cpu().numpy(),
                occlusion=occlusion.cpu().numpy(),
                confidence=confidence.cpu().numpy(),
                matches=matches,
                image=left,
            )

    def _check(self, left: Image, right: Image, thorough: bool) -> None:
        if self.task == "stereo" and thorough:
            judge_pair(left, right)
            return
        first, second = ("left", "right") if self.task == "stereo" else ("first", "second")
        require_visible(left, first)
        require_visible(right, second)

    def _tensor(self, image: Image) -> Tensor:
        pixels = torch.from_numpy(np.ascontiguousarray(image)) if image.flags.writeable else torch.tensor(image)
        return pixels.to(self.device, non_blocking=True).permute(2, 0, 1)[None]

    def _start(self, initial: Prediction, image: Image) -> Tensor:
        if initial.relative_position.shape[:2] != image.shape[:2]:
            raise InputError(
                f"The prediction to start from is {initial.size[0]}x{initial.size[1]}, "
                f"the images are {image.shape[1]}x{image.shape[0]}: leave `initial` out."
            )
        fields = np.stack([initial.relative_position, initial.relative_position_right])
        return torch.from_numpy(fields).to(self.device)

    def _field(self, image0: Tensor, image1: Tensor, initial: Tensor | None) -> Tensor:
        """(2, H, W, 2) px by the best plan that fits; a step down is a warning, never a stack trace."""
        height, width = image0.shape[-2:]
        config = self.network.config
        options = plans(config, height, width)
        number_bytes = self.dtype.itemsize
        for plan in options[first_that_fits(config, height, width, self.device, number_bytes) :]:
            try:
                if plan == WHOLE:
                    field = self._engine.field(image0, image1, initial)
                else:
                    pair = image0.float(), image1.float()
                    field = match_by_plan(lambda *call: self.network(*call).field, plan, *pair, initial)
            except (RuntimeError, MemoryError) as error:
                if not ran_out_of_memory(error):
                    raise
                self._engine.forget()
                continue
            if plan != WHOLE:
                kind = "GPU" if self.device.type == "cuda" else "computer"
                warnings.warn(
                    f"A pair of {width}x{height} does not fit into this {kind}'s memory: "
                    f"{plan.in_words(width, height)}.",
                    InputWarning,
                    stacklevel=4,
                )
            return field
        raise InputError(
            f"A pair of {width}x{height} does not fit into memory, not even at the lowest resolution: "
            "close other programs or resize the images."
        )


def _on_cpu(matches: Matches) -> Matches:
    """The same answer with every tensor on the CPU."""

    def moved(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.cpu()
        if isinstance(value, tuple):
            parts = [moved(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return value

    return moved(matches)
