"""How a pair goes through the network: kernel by kernel, fused, or replayed as one CUDA graph where that pays."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from matchattention.errors import InputError
from matchattention.models.network import MatchNetwork
from matchattention.runtime.deploy import InferencePlan, Mode
from matchattention.runtime.memory import ran_out_of_memory

logger = logging.getLogger(__name__)

EngineMode = Mode | Literal["auto"]
_PAYS_FROM = 3  # pairs of one size: capturing costs about as much as two of them
_MOST_PLANS = 4  # each keeps the memory of a whole pass: two sizes, each with and without a warm start

# Shape of the images, and whether a field to start from came with them.
_Key = tuple[tuple[int, ...], bool]


class Engine:
    """Runs a frozen network.

    Args:
        network: from `freeze`.
        mode: "auto": on a GPU the fused network where there is one, and a CUDA graph once a size has come three times;
            what fails is logged and a slower way taken. "eager", "capture", "fused", "compile", "graph": see
            `InferencePlan`; the last two compile for minutes, once a size.
        fused: the same network from `fuse`, if it can be fused.
    """

    def __init__(self, network: MatchNetwork, mode: EngineMode = "auto", fused: nn.Module | None = None) -> None:
        if mode != "auto" and mode not in get_args(Mode):
            raise InputError(f"There is no mode '{mode}': use auto, {', '.join(get_args(Mode))}.")
        self.network = network
        self.mode = mode
        self.fused = fused
        self._ways: list[Mode] = ["capture"] if fused is None else ["fused", "capture"]
        self._met: Counter[_Key] = Counter()
        self._plans: dict[_Key, InferencePlan] = {}

    def field(self, image0: Tensor, image1: Tensor, initial: Tensor | None = None) -> Tensor:
        """(2B, H, W, 2) px of whole-numbered (B, 3, H, W) images; may be overwritten by the next call.

        Args:
            image0: uint8, or float in [0, 255].
            image1: the other view.
            initial: (2B, H, W, 2) px to start from: every mode takes it, captured ones in a graph of its own.
        """
        key = (tuple(image0.shape), initial is not None)
        self._met[key] += 1
        found = None
        if self.mode == "auto":
            found = self._quickly(key, image0, image1, initial) if _on_gpu(image0) else None
        elif self.mode != "eager":
            found = self._plan(key, self.mode)(image0, image1, initial)
        if found is not None:
            return found
        return self.network(image0.float(), image1.float(), initial).field

    def forget(self) -> None:
        """Give the memory of all plans back."""
        self._plans.clear()
        self._met.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _quickly(self, key: _Key, image0: Tensor, image1: Tensor, initial: Tensor | None) -> Tensor | None:
        """The field by the best way that works; None: only kernel by kernel, or not often enough for more."""
        shape = key[0]
        # The frame after a first one with a start is a video's: many more of them will come.
        comes_again = self._met[key] >= (1 if initial is not None else _PAYS_FROM)
        while self._ways:
            way = self._ways[0]
            try:
                if comes_again:
                    return self._plan(key, way)(image0, image1, initial)
                if way == "fused":
                    assert self.fused is not None
                    return self.fused(image0.to(torch.uint8), image1.to(torch.uint8))
                return None
            except Exception as error:
                if ran_out_of_memory(error):
                    raise
                # Both are optimisations: what they cannot do still runs kernel by kernel.
                reason = str(error).split("\n")[0][:300]
                logger.warning("mode '%s' failed at %dx%d, going on without it: %s", way, shape[3], shape[2], reason)
                self._ways.pop(0)
                self._plans.clear()
        return None

    def _plan(self, key: _Key, mode: Mode) -> InferencePlan:
        shape, starts = key
        plan = self._plans.pop(key, None)
        if plan is None:
            while len(self._plans) >= _MOST_PLANS:
                del self._plans[next(iter(self._plans))]
            network = self.fused if mode == "fused" and self.fused is not None else self.network
            plan = InferencePlan(network, (shape[2], shape[3]), shape[0], mode, starts)
        self._plans[key] = plan
        return plan


def _on_gpu(image: Tensor) -> bool:
    return image.is_cuda
