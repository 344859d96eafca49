"""How a pair goes through the network: kernel by kernel, or replayed as one CUDA graph where that pays."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Literal, get_args

import torch
from torch import Tensor

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
        mode: "auto": on a GPU, eager at first and a CUDA graph once a size has come three times; "eager", "capture",
            "compile", "graph": see `InferencePlan`; the last two compile for minutes, once a size.
    """

    def __init__(self, network: MatchNetwork, mode: EngineMode = "auto") -> None:
        if mode != "auto" and mode not in get_args(Mode):
            raise InputError(f"There is no mode '{mode}': use auto, {', '.join(get_args(Mode))}.")
        self.network = network
        self.mode = mode
        self._met: Counter[tuple[int, ...]] = Counter()
        self._plans: dict[tuple[int, ...], InferencePlan] = {}

    def field(self, image0: Tensor, image1: Tensor) -> Tensor:
        """(2, H, W, 2) px of a pair of whole-numbered (1, 3, H, W) images; may be overwritten by the next call."""
        shape = tuple(image0.shape)
        self._met[shape] += 1
        mode = self._mode_for(shape, image0.is_cuda)
        if mode == "eager":
            return self.network(image0, image1).field
        try:
            return self._plan(shape, mode)(image0, image1)
        except Exception as error:
            if ran_out_of_memory(error) or self.mode != "auto":
                raise
            # A graph is an optimisation: what it cannot hold still runs kernel by kernel.
            logger.warning("no CUDA graph for images of %dx%d: %s", shape[3], shape[2], str(error).split("\n")[0])
            self.mode = "eager"
            return self.network(image0, image1).field

    def forget(self) -> None:
        """Give the memory of all plans back."""
        self._plans.clear()
        self._met.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _mode_for(self, shape: tuple[int, ...], on_gpu: bool) -> Mode:
        if self.mode != "auto":
            return self.mode
        return "capture" if on_gpu and self._met[shape] >= _PAYS_FROM else "eager"

    def _plan(self, shape: tuple[int, ...], mode: Mode) -> InferencePlan:
        plan = self._plans.pop(shape, None)
        if plan is None:
            while len(self._plans) >= _MOST_PLANS:
                del self._plans[next(iter(self._plans))]
            plan = InferencePlan(self.network, (shape[2], shape[3]), shape[0], mode)
        self._plans[shape] = plan
        return plan
