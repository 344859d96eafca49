"""How a pair goes through the network: kernel by kernel, fused, or replayed as one CUDA graph where that pays."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from matchattention.errors import InputError
from matchattention.inference.deploy import InferencePlan, Mode
from matchattention.inference.memory import ran_out_of_memory
from matchattention.models.network import MatchNetwork

logger = logging.getLogger(__name__)

EngineMode = Mode | Literal["auto"]
_PAYS_FROM = 3  # pairs of one size: capturing costs about as much as two of them
_MOST_PLANS = 2  # each keeps the memory of a whole pass


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
        self._met: Counter[tuple[int, ...]] = Counter()
        self._plans: dict[tuple[int, ...], InferencePlan] = {}

    def field(self, image0: Tensor, image1: Tensor) -> Tensor:
        """(2, H, W, 2) px of a pair of whole-numbered (1, 3, H, W) images; may be overwritten by the next call."""
        shape = tuple(image0.shape)
        self._met[shape] += 1
        found = None
        if self.mode == "auto":
            found = self._quickly(image0, image1) if _on_gpu(image0) else None
        elif self.mode != "eager":
            found = self._plan(shape, self.mode)(image0, image1)
        return self.network(image0, image1).field if found is None else found

    def forget(self) -> None:
        """Give the memory of all plans back."""
        self._plans.clear()
        self._met.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _quickly(self, image0: Tensor, image1: Tensor) -> Tensor | None:
        """The field by the best way that works; None: only kernel by kernel, or not often enough for more."""
        shape = tuple(image0.shape)
        comes_again = self._met[shape] >= _PAYS_FROM
        while self._ways:
            way = self._ways[0]
            try:
                if comes_again:
                    return self._plan(shape, way)(image0, image1)
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

    def _plan(self, shape: tuple[int, ...], mode: Mode) -> InferencePlan:
        plan = self._plans.pop(shape, None)
        if plan is None:
            while len(self._plans) >= _MOST_PLANS:
                del self._plans[next(iter(self._plans))]
            network = self.fused if mode == "fused" and self.fused is not None else self.network
            plan = InferencePlan(network, (shape[2], shape[3]), shape[0], mode)
        self._plans[shape] = plan
        return plan


def _on_gpu(image: Tensor) -> bool:
    return image.is_cuda
