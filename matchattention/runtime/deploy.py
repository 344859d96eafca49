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
from matchattention.models.network import MatchNetwork
from matchattention.runtime.capture import capture
from matchattention.runtime.frozen import freeze
from matchattention.runtime.precision import choose_device, choose_precision

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
        starts: whether calls bring a field to start from; a graph is captured with one or without.

    Attributes:
        mode: how it runs.
        static_initial: the (2B, H, W, 2) fp32 field that a graph with a warm start reads, or None.
        static_images: the two (B, 3, H, W) uint8 buffers a CUDA graph reads; write there to save a copy.
    """

    def __init__(
        self, network: nn.Module, shape: tuple[int, int], batch: int = 1, mode: Mode = "eager", starts: bool = False
    ) -> None:
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
        self.static_initial = torch.zeros(2 * batch, *shape, 2, device=self.device) if starts else None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Tensor | None = None
        if mode in CAPTURED:
            self._capture()

    def _field(self, image0: Tensor, image1: Tensor, initial: Tensor | None = None) -> Tensor:
        if self.mode == "fused":
            return self.network(image0, image1, initial)
        return self.network(image0.float(), image1.float(), initial).field

    @torch.inference_mode()
    def _capture(self) -> None:
        image0, image1 = self.static_images
        self._graph, self._result = capture(lambda: self._run(image0, image1, self.static_initial))

    def replay(self) -> Tensor:
        """Run on whatever the static buffers hold; the result is overwritten by the next call."""
        assert self._graph is not None
        assert self._result is not None
        self._graph.replay()
        return self._result

    @torch.inference_mode()
    def __call__(self, image0: Tensor, image1: Tensor, initial: Tensor | None = None) -> Tensor:
        """Match a pair.

        Args:
            image0: (B, 3, H, W) uint8, or float in [0, 255].
            image1: the same for the other view.
            initial: (2B, H, W, 2) px to start from, exactly where the plan was made with `starts`.

        Returns:
            (2B, H, W, 2) fp32 px: offsets of the first view's pixels, then of the second's. With a CUDA graph it is
            overwritten by the next call.
        """
        for image, expected in zip((image0, image1), self.static_images):
            if image.shape != expected.shape:
                raise InputError(f"This plan is for images {tuple(expected.shape)}; got {tuple(image.shape)}.")
        if (initial is None) != (self.static_initial is None):
            raise InputError(
                "This plan was made "
                + ("without" if self.static_initial is None else "with")
                + " a field to start from."
            )
        if self._graph is None:
            return self._run(image0.to(self.device), image1.to(self.device), initial)
        for buffer, image in zip(self.static_images, (image0, image1)):
            buffer.copy_(image, non_blocking=True)
        if self.static_initial is not None and initial is not None:
            self.static_initial.copy_(initial, non_blocking=True)
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
    from matchattention.runtime.fused_network import FusedNetwork

    return FusedNetwork(model, dtype).to(device)


def fuses_well(model: MatchNetwork, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether fused kernels are the fastest way: on a GPU, in half precision, for networks that have them."""
    return device.type == "cuda" and dtype != torch.float32 and _why_not_fused(model) is None


def _why_not_fused(model: MatchNetwork) -> str | None:
    try:
        from matchattention.runtime.fused_network import why_not_fused
    except ImportError as error:
        return f"Triton cannot be imported ({error})."
    return why_not_fused(model.config)
