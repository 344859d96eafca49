"""The fastest way to run a network again and again on images of one size.

```python
match = compile_for_inference(matchattention.load("rt"), (512, 1024))
field = match(left, right)        # (2, H, W, 2) px: both views, from uint8 images on the GPU
```

On a GPU: fp16 weights, everything between two convolutions in one kernel (`fused_network`), and all launches of a pass
replayed as one CUDA graph. On a CPU: fp32, channels-last, optionally compiled. Shapes are fixed; `Engine`
keeps plans of the shapes that come again.
"""

from __future__ import annotations

import itertools
import logging
from typing import Literal

import torch
from torch import Tensor, nn

from matchattention.errors import InputError
from matchattention.inference.capture import capture
from matchattention.inference.frozen import freeze
from matchattention.inference.precision import choose_device, choose_precision
from matchattention.models.network import MatchNetwork

logger = logging.getLogger(__name__)

Mode = Literal["eager", "compile", "capture", "graph", "fused"]
MODES: tuple[Mode, ...] = ("eager", "compile", "capture", "graph", "fused")
CAPTURED = ("capture", "graph", "fused")


class InferencePlan:
    """One network, one shape, ready to run.

    Args:
        network: from `freeze`, or a `FusedNetwork`.
        shape: (H, W) px.
        batch: pairs at once.
        mode: "eager"; "compile" (inductor); "capture" (a CUDA graph of eager kernels: no minutes of compiling);
            "graph" (a CUDA graph of compiled ones); "fused" (a CUDA graph of a `FusedNetwork`'s kernels).

    Attributes:
        mode: how it runs.
        static_images: the two (B, 3, H, W) uint8 buffers a CUDA graph reads; write there to save a copy.
    """

    def __init__(self, network: nn.Module, shape: tuple[int, int], batch: int = 1, mode: Mode = "eager") -> None:
        if mode == "fused" and isinstance(network, MatchNetwork):
            raise InputError("A fused plan needs a FusedNetwork: make it with compile_for_inference(…, mode='fused').")
        self.network = network
        self.shape = shape
        self.mode = mode
        self.device = next(itertools.chain(network.parameters(), network.buffers())).device
        if self.device.type != "cuda" and mode in CAPTURED:
            raise InputError(f"A CUDA graph needs a GPU: mode '{mode}' cannot run on {self.device}.")
        self._run = self._field
        if mode in ("compile", "graph"):
            self._run = torch.compile(self._field, fullgraph=True, dynamic=False)
        self.static_images = tuple(
            torch.zeros(batch, 3, *shape, dtype=torch.uint8, device=self.device) for _ in range(2)
        )
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Tensor | None = None
        if mode in CAPTURED:
            self._capture()

    def _field(self, image0: Tensor, image1: Tensor) -> Tensor:
        if self.mode == "fused":
            return self.network(image0, image1)
        return self.network(image0.float(), image1.float()).field

    @torch.inference_mode()
    def _capture(self) -> None:
        self._graph, self._result = capture(lambda: self._run(*self.static_images))

    def replay(self) -> Tensor:
        """Run on whatever `static_images` hold; the result is overwritten by the next call."""
        assert self._graph is not None
        assert self._result is not None
        self._graph.replay()
        return self._result

    @torch.inference_mode()
    def __call__(self, image0: Tensor, image1: Tensor) -> Tensor:
        """Match a pair.

        Args:
            image0: (B, 3, H, W) uint8, or float in [0, 255].
            image1: the same for the other view.

        Returns:
            (2B, H, W, 2) fp32 px: offsets of the first view's pixels, then of the second's. With a CUDA graph it is
            overwritten by the next call.
        """
        for image, expected in zip((image0, image1), self.static_images):
            if image.shape != expected.shape:
                raise InputError(f"This plan is for images {tuple(expected.shape)}; got {tuple(image.shape)}.")
        if self._graph is None:
            return self._run(image0.to(self.device), image1.to(self.device))
        for buffer, image in zip(self.static_images, (image0, image1)):
            buffer.copy_(image, non_blocking=True)
        return self.replay()


def compile_for_inference(
    model: MatchNetwork,
    shape: tuple[int, int],
    device: str | torch.device = "auto",
    precision: str = "auto",
    mode: Mode | Literal["auto"] = "auto",
    batch: int = 1,
) -> InferencePlan:
    """Make a network as fast as this machine runs it, for one image size.

    Args:
        model: any `MatchNetwork`; it is copied.
        shape: (H, W) px of the images.
        device: "auto", "cpu", "cuda", …
        precision: "auto" (fp16 on a GPU, fp32 on a CPU), "fp32", "fp16", "bf16". Positions are fp32 always.
        mode: see `InferencePlan`; "auto" is "fused" on a GPU, or "capture" for networks that cannot be fused, and
            "eager" on a CPU. If one fails, "auto" steps down and says so.
        batch: pairs at once.
    """
    place = choose_device(device)
    dtype = choose_precision(precision, place)
    if mode != "auto":
        return _plan(model, shape, place, dtype, batch, mode)
    for attempt in ("fused", "capture") if place.type == "cuda" else ():
        if attempt == "fused" and not fuses_well(model, place, dtype):
            continue
        try:
            return _plan(model, shape, place, dtype, batch, attempt)  # type: ignore[arg-type]
        except Exception as error:
            reason = str(error).split("\n")[0][:300]
            logger.warning("mode '%s' failed, going on with a slower one: %s", attempt, reason)
    return _plan(model, shape, place, dtype, batch, "eager")


def _plan(
    model: MatchNetwork, shape: tuple[int, int], device: torch.device, dtype: torch.dtype, batch: int, mode: Mode
) -> InferencePlan:
    network = fuse(model, device, dtype) if mode == "fused" else freeze(model, device, dtype)
    return InferencePlan(network, shape, batch, mode)


def fuse(model: MatchNetwork, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """A copy of `model` as a `FusedNetwork`.

    Raises:
        InputError: this network cannot be fused, and why.
    """
    reason = _why_not_fused(model)
    if reason is not None:
        raise InputError(reason)
    from matchattention.inference.fused_network import FusedNetwork

    return FusedNetwork(model, dtype).to(device)


def fuses_well(model: MatchNetwork, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether fused kernels are the fastest way: on a GPU, in half precision, for networks that have them."""
    return device.type == "cuda" and dtype != torch.float32 and _why_not_fused(model) is None


def _why_not_fused(model: MatchNetwork) -> str | None:
    try:
        from matchattention.inference.fused_network import why_not_fused
    except ImportError as error:
        return f"Triton cannot be imported ({error})."
    return why_not_fused(model.config)
