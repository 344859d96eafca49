"""A network that runs: (image0, image1, initial) -> field, the fastest way that works here.

```python
match = Runtime(matchattention.load("rt"))
field = match(left, right)                # (2, H, W, 2) px: both views, from uint8 images (1, 3, H, W)
field = match(left, right, field)         # the next frame starts from the last one's field
```

A mode says whose kernels run, and whether they are replayed as one CUDA graph:

| mode | kernels | replayed |
|---|---|---|
| eager, eager-graph | PyTorch's, and ours between its matrix products (`lean`); on a CPU oneDNN's (`cpu`) | no, yes |
| compiled, compiled-graph | inductor's, after minutes of compiling | no, yes |
| fused, fused-graph | ours, everything between two convolutions in one (`fused`) | no, yes |

Every mode takes a batch, and a field to start from; a graph is made for each shape with a start and without one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from matchattention.errors import InputError, first_line
from matchattention.layers.confidence_head import LastStage
from matchattention.models.network import MatchNetwork
from matchattention.ops.kernels import TRITON_IS_INSTALLED
from matchattention.runtime.graph import PassGraph
from matchattention.runtime.memory import ran_out_of_memory
from matchattention.runtime.precision import choose_device, choose_precision, on
from matchattention.runtime.prepared import prepare

logger = logging.getLogger(__name__)

Mode = Literal["eager", "compiled", "fused", "eager-graph", "compiled-graph", "fused-graph"]
MODES: tuple[Mode, ...] = get_args(Mode)
PAYS_FROM = 3  # pairs of one shape: capturing costs about as much as two of them
MOST_GRAPHS = 4  # each keeps the memory of a whole pass: two shapes, each with and without a start

# (field, what the last stage left) -> what is computed from them
Finish = Callable[[Tensor, LastStage | None], tuple[Tensor, ...]]
# Shape of an image, and whether a field to start from came with it.
_Key = tuple[tuple[int, ...], bool]


class Runtime:
    """One network on one device.

    Args:
        model: any `MatchNetwork`; it is copied.
        device: "auto" (the GPU where there is one), "cpu", "cuda", …
        precision: "auto" (fp16 on a GPU, fp32 on a CPU), "fp32", "fp16", "bf16". Positions are always fp32.
        mode: one of `MODES`, or "auto": "eager" on a CPU; on a GPU fused kernels where the network has them, replayed
            as a graph as soon as a shape comes again. What fails there is logged, and a slower way taken.
        finish: computed from every field, (2B, H, W, 2) px, and what the last stage left, in the same graph.

    Attributes:
        network: the copy, in eager mode.
        ran: the mode of the last call.
    """

    def __init__(
        self,
        model: MatchNetwork,
        device: str | torch.device = "auto",
        precision: str = "auto",
        mode: Mode | Literal["auto"] = "auto",
        finish: Finish | None = None,
    ) -> None:
        if mode != "auto" and mode not in MODES:
            raise InputError(f"There is no mode '{mode}': use auto, {', '.join(MODES)}.")
        self.device = choose_device(device)
        self.dtype = choose_precision(precision, self.device)
        if mode.endswith("-graph") and not _has_graphs(self.device):
            raise InputError(f"A CUDA graph needs a GPU: mode '{mode}' cannot run on {self.device}.")
        self.mode = mode
        self.network = prepare(model, self.device, self.dtype)
        self.ran: str | None = None
        self._finish = finish
        self._passes: dict[str, Callable[..., tuple[Tensor, LastStage | None]]] = {"eager": self._eager}
        if mode.startswith("compiled"):
            self._passes["compiled"] = torch.compile(self._eager, fullgraph=True, dynamic=False)
        if mode.startswith("fused") or (mode == "auto" and fuses_well(model, self.device, self.dtype)):
            self._passes["fused"] = fuse(model, self.device, self.dtype)
        self._ways = [name for name in ("fused", "eager") if name in self._passes] if _has_graphs(self.device) else []
        self._captures = True
        self._ahead: set[tuple[str, _Key]] = set()  # passes whose kernels are compiled, many at a time
        self._met: Counter[_Key] = Counter()
        self._pays_from: dict[_Key, int] = {}  # of shapes whose graphs had to make room
        self._too_large: set[_Key] = set()  # their passes fit into memory, but not a graph's of their own
        self._graphs: dict[_Key, PassGraph] = {}

    def __call__(self, image0: Tensor, image1: Tensor, initial: Tensor | None = None) -> Tensor:
        """Match pairs.

        Args:
            image0: (B, 3, H, W) uint8, or float with whole numbers in [0, 255], on any device.
            image1: the same for the other view.
            initial: (2B, H, W, 2) px to start from instead of the search.

        Returns:
            (2B, H, W, 2) fp32 px: offsets of the first views' pixels, then of the second's. It may be overwritten by
            the next call.
        """
        return self.run(image0, image1, initial)[0]

    @torch.inference_mode()
    def run(self, image0: Tensor, image1: Tensor, initial: Tensor | None = None) -> tuple[Tensor, ...]:
        """The field, then what `finish` makes of it."""
        with on(self.device):
            return self._run(image0, image1, initial)

    def _run(self, image0: Tensor, image1: Tensor, initial: Tensor | None) -> tuple[Tensor, ...]:
        key = (tuple(image0.shape), initial is not None)
        self._met[key] += 1
        call = image0.to(self.device), image1.to(self.device), None if initial is None else initial.to(self.device)
        if self.mode != "auto":
            return self._in_mode(self.mode, key, call)
        comes_again = self._met[key] >= self._pays(key)
        while self._ways:
            kernels = self._ways[0]
            mode = f"{kernels}-graph" if comes_again and self._captures and key not in self._too_large else kernels
            try:
                return self._in_mode(mode, key, call)
            except Exception as error:
                if ran_out_of_memory(error) and mode.endswith("-graph"):
                    self._too_large.add(key)
                    self.forget()
                    continue
                if ran_out_of_memory(error) or mode == "eager":
                    raise
                # Both are optimisations: what they cannot do still runs kernel by kernel.
                height, width = image0.shape[-2:]
                logger.warning("mode '%s' failed at %dx%d, going on without it: %s", mode, width, height, _why(error))
                # What cannot be captured may still run by itself; what cannot do that either was to blame alone.
                self._captures = not mode.endswith("-graph")
                if self._captures:
                    self._ways.pop(0)
                self._graphs.clear()
        return self._in_mode("eager", key, call)

    def replays(self, shape: tuple[int, ...], starts: bool) -> bool:
        """Whether images of this shape, with a field to start from or without one, only need their graph replayed."""
        return (tuple(shape), starts) in self._graphs

    def forget(self) -> None:
        """Give the memory of all graphs back."""
        self._graphs.clear()
        self._met.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _in_mode(self, mode: str, key: _Key, call: tuple[Tensor, Tensor, Tensor | None]) -> tuple[Tensor, ...]:
        kernels, _, graph = mode.partition("-")
        if self.device.type == "cuda" and kernels != "compiled" and (kernels, key) not in self._ahead:
            self._ahead.add((kernels, key))
            self._compile_ahead(lambda: self._pass(kernels, *call))
        result = self._graph(key, kernels)(*call) if graph else self._pass(kernels, *call)
        self.ran = mode
        return result

    def _compile_ahead(self, run: Callable[[], object]) -> None:
        if TRITON_IS_INSTALLED:
            from matchattention.runtime.compiling import compile_ahead

            major, minor = torch.cuda.get_device_capability(self.device)
            compile_ahead(run, 10 * major + minor)

    def _pass(self, kernels: str, image0: Tensor, image1: Tensor, initial: Tensor | None) -> tuple[Tensor, ...]:
        field, last = self._passes[kernels](image0, image1, initial)
        return (field,) if self._finish is None else (field, *self._finish(field, last))

    def _eager(self, image0: Tensor, image1: Tensor, initial: Tensor | None) -> tuple[Tensor, LastStage | None]:
        matches = self.network(image0.float(), image1.float(), initial)
        return matches.field, matches.last_stage

    def _pays(self, key: _Key) -> int:
        """How often a shape must have come for a graph of its own."""
        _, starts = key  # a field to start from is a video's: many more frames will come
        return self._pays_from.get(key, 1 if starts else PAYS_FROM)

    def _graph(self, key: _Key, kernels: str) -> PassGraph:
        shape, starts = key
        graph = self._graphs.pop(key, None)
        if graph is None:
            while len(self._graphs) >= MOST_GRAPHS:
                oldest = next(iter(self._graphs))
                # Shapes that take turns would be captured again and again: twice as rarely each time.
                self._pays_from[oldest], self._met[oldest] = 2 * self._pays(oldest), 0
                del self._graphs[oldest]
            graph = PassGraph(lambda *call: self._pass(kernels, *call), shape, self.device, starts)
        self._graphs[key] = graph
        return graph


def fuse(
    model: MatchNetwork, device: torch.device, dtype: torch.dtype
) -> Callable[..., tuple[Tensor, LastStage | None]]:
    """A copy of `model` as a `FusedNetwork` that takes bytes.

    Raises:
        InputError: this network cannot be fused, and why.
    """
    reason = why_not_fused(model)
    if reason is not None:
        raise InputError(reason)
    from matchattention.runtime.fused.network import FusedNetwork

    network = FusedNetwork(model, dtype).to(device)

    def matched(image0: Tensor, image1: Tensor, initial: Tensor | None = None) -> tuple[Tensor, LastStage | None]:
        return network.matched(image0.to(torch.uint8), image1.to(torch.uint8), initial)

    return matched


def fuses_well(model: MatchNetwork, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether fused kernels are the fastest way: on a GPU, in half precision, for networks that have them."""
    return device.type == "cuda" and dtype != torch.float32 and why_not_fused(model) is None


def why_not_fused(model: MatchNetwork) -> str | None:
    """One sentence that says why a network is not fused here, or None when it is."""
    try:
        from matchattention.runtime.fused.network import why_not_fused
    except ImportError as error:
        return f"Triton cannot be imported ({error})."
    return why_not_fused(model.config)


def _has_graphs(device: torch.device) -> bool:
    return device.type == "cuda"


def _why(error: Exception) -> str:
    return first_line(error)[:300]
