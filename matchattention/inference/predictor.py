"""Two photos in, matches out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from matchattention.errors import InputError, InputWarning
from matchattention.geometry.pair_check import judge_pair, require_visible
from matchattention.inference.confidence import AUTO, choose_judge
from matchattention.inference.fields import FieldTensors
from matchattention.inference.images import Image, read_pair, read_tensors, two_views
from matchattention.inference.prediction import Prediction, of_tensors
from matchattention.models.network import Matches, MatchNetwork
from matchattention.runtime.memory import WHOLE, first_that_fits, pairs_that_fit, plans, ran_out_of_memory
from matchattention.runtime.precision import choose_device, on
from matchattention.runtime.runtime import Mode, Runtime
from matchattention.runtime.tiling import match_by_plan


class Found(NamedTuple):
    """What one pass gives for B pairs, on the device.

    Attributes:
        field: (2B, H, W, 2) px: of the first views, then of the second.
        occlusion: (B, H, W) bool of the first views.
        confidence: (B, H, W) of the first views.
        agreement: (B, H, W) of the first views, or None where it is the confidence.
        error: (B, H, W) px of the first views, one sigma, or None where no head found it.
    """

    field: Tensor
    occlusion: Tensor
    confidence: Tensor
    agreement: Tensor | None = None
    error: Tensor | None = None


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
        mode: how the network runs, see `Runtime`: "auto" on a GPU uses fused kernels where the network has them and
            replays sizes that come again as CUDA graphs.
        confidence: "auto": the head that ships for these weights, or left-right agreement where there is none;
            "agreement"; or the file of a head from `matchattention train-confidence`.
        check: whether to look at each pair of images first for swapped views, vertical error and clashing exposure
            (some hundredths of a second of one CPU core; stereo only). Tensors are checked where a call asks for it.
    """

    def __init__(
        self,
        model: MatchNetwork | str,
        device: str | torch.device = "auto",
        precision: str = "auto",
        *,
        mode: Mode | Literal["auto"] = "auto",
        confidence: str | os.PathLike[str] = AUTO,
        check: bool = True,
    ) -> None:
        if isinstance(model, str):
            from matchattention.models.checkpoint import load

            model = load(model)
        self.judge = choose_judge(model, choose_device(device), confidence)
        self.runtime = Runtime(model, device, precision, mode, finish=self.judge)
        self.check = check

    @property
    def network(self) -> MatchNetwork:
        """The network that runs, in eager mode."""
        return self.runtime.network

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.runtime.device

    @property
    def dtype(self) -> torch.dtype:
        """The number format of its features."""
        return self.runtime.dtype

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
                uint8, uint16 or float in [0, 1]; or a tensor (3, H, W) or (B, 3, H, W), uint8 or float, on any device.
                The result of a batch has arrays with an axis more in front; `result[i]` is one pair's.
            right: right view or second frame, the same size.
            initial: the prediction of a similar pair (a video's last frame) to start from.
            check: in place of the predictor's own `check`.
            trace: keep the network's full answer as `matches` (for the pictures of `viz`); needs an image that
                fits into memory in one piece.

        Raises:
            InputError: files that are no images, sizes that differ, one colour only, too small; and with `check`
                swapped views or a pair that is not rectified.
        """
        if isinstance(left, Tensor) and isinstance(right, Tensor):
            return self._of_tensors(left, right, initial, bool(check), trace)
        images = read_pair(left, right)
        thorough = self.check if check is None else check
        if self.device.type == "cpu":
            self._check(*images, thorough)
            return self.match(*images, initial=initial, trace=trace)
        result = self.match(*images, initial=initial, trace=trace)
        self._check(*images, thorough)  # while the GPU works
        return result

    def match(self, left: Image, right: Image, *, initial: Prediction | None = None, trace: bool = False) -> Prediction:
        """`__call__` for two (H, W, 3) uint8 arrays of one size, without any check."""
        return self.match_uploaded(self.upload([(left, right)]), left, initial, trace)

    def batch(self, pairs: Iterable[tuple[Any, Any]], *, check: bool | None = None) -> list[Prediction]:
        """Match many pairs, those of one size together in one pass (or as many at once as memory holds).

        Args:
            pairs: of images, as `__call__` takes them. Tensors of a batch, (B, 3, H, W), go to `__call__` themselves.
            check: in place of the predictor's own `check`.

        Returns:
            a prediction for each pair, in order.
        """
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:  # decoders let go of the interpreter
            images = list(threads.map(lambda pair: read_pair(*two_views(pair)), pairs))
        for pair in images:
            self._check(*pair, self.check if check is None else check)
        sizes: dict[tuple[int, ...], list[int]] = {}
        for index, (left, _) in enumerate(images):
            sizes.setdefault(left.shape, []).append(index)
        found: dict[int, Prediction] = {}
        for indices in sizes.values():
            found.update(zip(indices, self.match_together([images[index] for index in indices])))
        return [found[index] for index in range(len(images))]

    def match_together(self, pairs: Sequence[tuple[Image, Image]]) -> list[Prediction]:
        """`batch` for (H, W, 3) uint8 arrays of one size, without any check."""
        found = self._found(*self.upload(pairs), None)
        return [self._prediction(found, place, left) for place, (left, _) in enumerate(pairs)]

    def stream(self, pairs: Iterable[tuple[Any, Any]], *, refresh: int | None = None) -> Iterator[Prediction]:
        """Match a video or a camera's frames: each starts from the last one's field.

        While a frame is matched, the next one is read, decoded and copied to the device.

        Args:
            pairs: of images, as `__call__` takes them; read one ahead, in a thread. Tensors on the GPU stay there.
            refresh: frames after which to search without a start; see `VideoPredictor`.
        """
        from matchattention.inference.video import VideoPredictor

        video = VideoPredictor(self) if refresh is None else VideoPredictor(self, refresh)
        return video.frames(pairs)

    def upload(self, pairs: Sequence[tuple[Image, Image]]) -> tuple[Tensor, Tensor]:
        """All left and all right views, (H, W, 3) uint8 of one size, as (B, 3, H, W) uint8 on the device."""
        views = []
        for view in (0, 1):
            images = [pair[view] for pair in pairs]
            if self.device.type == "cuda":
                # From pinned memory a copy runs beside whatever computes.
                pinned = torch.empty((len(images), *images[0].shape), dtype=torch.uint8, pin_memory=True)
                np.stack(images, out=pinned.numpy())
                pixels = pinned.to(self.device, non_blocking=True)
            else:
                pixels = torch.from_numpy(np.stack(images))
            views.append(pixels.permute(0, 3, 1, 2))
        return views[0], views[1]

    def match_uploaded(
        self, views: tuple[Tensor, Tensor], image: Image | None, initial: Prediction | None = None, trace: bool = False
    ) -> Prediction:
        """`match` for what `upload` made of one pair; `image` is the first view, for the colours of points."""
        start = None if initial is None else self._start(initial, views[0])
        if trace:
            return self._traced(views, start, image)
        return self._prediction(self._found(*views, start), 0, image)

    def _of_tensors(
        self, left: Tensor, right: Tensor, initial: Prediction | None, check: bool, trace: bool
    ) -> Prediction:
        views = read_tensors(left, right)
        if check:
            lefts, rights = (view.permute(0, 2, 3, 1).cpu().numpy() for view in views)
            for left_image, right_image in zip(lefts, rights):
                self._check(left_image, right_image, True)
        single, home = left.dim() == 3, left.device
        start = None if initial is None else self._start(initial, views[0])
        on_device = views[0].to(self.device), views[1].to(self.device)
        if trace:
            if not single:
                raise InputError("A trace is of one pair: give tensors of (3, H, W).")
            return self._traced(on_device, start, None)
        parts = (part if part is None else _ordinary(part.to(home)) for part in self._found(*on_device, start))
        found = Found(*parts)  # type: ignore[arg-type]
        return self._prediction(found, 0 if single else None, None)

    def _prediction(self, found: Found, index: int | None, image: Image | None) -> Prediction:
        """The prediction of one pair of a pass, or of all of them."""
        first, second = found.field.chunk(2)
        tensors = FieldTensors(first, second, *found[1:])
        if index is not None:
            tensors = tensors.pair(index)
        return of_tensors(self.task, tensors, image)

    def _traced(self, views: tuple[Tensor, Tensor], start: Tensor | None, image: Image | None) -> Prediction:
        with torch.inference_mode(), on(self.device):
            matches = self.network(views[0].float(), views[1].float(), start)
            if self.network.config.windows[-1][0] == 1:  # see `Matches`: nobody looks there
                x, y = matches.self_position.unbind(-1)
                matches = matches._replace(self_position=torch.stack((x, torch.zeros_like(y)), -1))
            judged = self.judge(matches.field, matches.last_stage)
            tensors = FieldTensors(*matches.field, *(part[0] for part in judged))
            return of_tensors(self.task, tensors, image, _on_cpu(matches))

    def _check(self, left: Image, right: Image, thorough: bool) -> None:
        if self.task == "stereo" and thorough:
            judge_pair(left, right)
            return
        first, second = ("left", "right") if self.task == "stereo" else ("first", "second")
        require_visible(left, first)
        require_visible(right, second)

    def _start(self, initial: Prediction, image: Tensor) -> Tensor:
        """(2B, H, W, 2) px on the device."""
        tensors = initial.tensors
        views = tensors.relative_position, tensors.relative_position_right
        if initial.size != (image.shape[-1], image.shape[-2]) or views[0].numel() != image[:, :2].numel():
            raise InputError(
                f"The prediction to start from is {initial.size[0]}x{initial.size[1]}, "
                f"the images are {image.shape[-1]}x{image.shape[-2]}: leave `initial` out."
            )
        return torch.stack(views).flatten(0, -4).to(self.device)

    def _found(self, image0: Tensor, image1: Tensor, initial: Tensor | None) -> Found:
        """By the best memory plan that fits; a step down is a warning, never a stack trace."""
        pairs, _, height, width = image0.shape
        # A replay takes no memory, and to ask a GPU for what it has left takes a good part of a replay's time.
        replays = self.runtime.replays(image0.shape, initial is not None)
        if pairs > 1:
            config, number_bytes = self.network.config, self.dtype.itemsize
            if replays or pairs <= pairs_that_fit(config, height, width, self.device, number_bytes):
                try:
                    return self._whole(image0, image1, initial)
                except (RuntimeError, MemoryError) as error:
                    if not ran_out_of_memory(error):
                        raise
                    self.runtime.forget()
            half = pairs // 2
            starts = (None, None) if initial is None else _halves(initial, half)
            first = self._found(image0[:half], image1[:half], starts[0])
            second = self._found(image0[half:], image1[half:], starts[1])
            field = torch.cat([part for both in zip(first.field.chunk(2), second.field.chunk(2)) for part in both])
            return Found(field, *(_joined(*both) for both in zip(first[1:], second[1:])))  # type: ignore[arg-type]
        return self._one_found(image0, image1, initial, replays)

    def _one_found(self, image0: Tensor, image1: Tensor, initial: Tensor | None, replays: bool) -> Found:
        height, width = image0.shape[-2:]
        config = self.network.config
        first = 0 if replays else first_that_fits(config, height, width, self.device, self.dtype.itemsize)
        for plan in plans(config, height, width)[first:]:
            try:
                if plan == WHOLE:
                    return self._whole(image0, image1, initial)
                with torch.inference_mode(), on(self.device):
                    pair = image0.float(), image1.float()
                    field = match_by_plan(lambda *call: self.network(*call).field, plan, *pair, initial)
                    found = Found(field, *self.judge(field, None))
            except (RuntimeError, MemoryError) as error:
                if not ran_out_of_memory(error):
                    raise
                self.runtime.forget()
                continue
            kind = "GPU" if self.device.type == "cuda" else "computer"
            warnings.warn(
                f"A pair of {width}x{height} does not fit into this {kind}'s memory: {plan.in_words(width, height)}.",
                InputWarning,
                stacklevel=6,
            )
            return found
        raise InputError(
            f"A pair of {width}x{height} does not fit into memory, not even at the lowest resolution: "
            "close other programs or resize the images."
        )

    def _whole(self, image0: Tensor, image1: Tensor, initial: Tensor | None) -> Found:
        found = self.runtime.run(image0, image1, initial)
        if (self.runtime.ran or "").endswith("-graph"):  # the next replay writes over it
            found = tuple(part.clone() for part in found)
        return Found(*found)


def _ordinary(tensor: Tensor) -> Tensor:
    """One that autograd takes: users go on with it."""
    return tensor.clone() if tensor.is_inference() else tensor


def _joined(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return None if first is None or second is None else torch.cat((first, second))


def _halves(field: Tensor, half: int) -> tuple[Tensor, Tensor]:
    """A stacked field (2B, …) of the first `half` pairs, and of the others."""
    first, second = field.chunk(2)
    return torch.cat((first[:half], second[:half])), torch.cat((first[half:], second[half:]))


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
