"""What a network needs now and then while it trains: constants taken out, silent units woken, inputs measured."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from matchattention.models.network import MatchNetwork
from matchattention.training.batch import Batch
from matchattention.training.between_scales import Passage, watched
from matchattention.training.inside import Inside, observed
from matchattention.training.optimizer import Updater
from matchattention.training.revival import revive
from matchattention.training.settling import merge_biases, settle

INTERVAL = 500  # steps; means drift, and a pass of the network costs as much as a few steps
BATCHES = 4  # that a training looks at: what is silent on few pairs may be needed on others


class Upkeep:
    """Looks after the layers between scales, on a copy of the network that is never compiled.

    Make it before the network is compiled. Every process of a training sees the same pairs and does the same.

    Args:
        model: The network that is trained.
        updater: Its optimizer, whose weight average follows and whose standardising is told what comes in.
        batches: Typical pairs; a unit counts as silent when all of them leave it so.
        mixed_precision: Whether the training computes in bf16.
        seed: Of new weights.
    """

    def __init__(
        self, model: nn.Module, updater: Updater, batches: Sequence[Batch], mixed_precision: bool, seed: int
    ) -> None:
        self.model, self.updater, self.seed = model, updater, seed
        self._twin = copy.deepcopy(model)
        self._images = [(batch.image0.clone(), batch.image1.clone()) for batch in batches]
        self._mixed_precision = mixed_precision

    @property
    def measured(self) -> list[Tensor]:
        """What the updates are standardised with."""
        standardising = self.updater.standardising
        return [] if standardising is None else [*standardising.means.values(), *standardising.scales.values()]

    @property
    def is_due_at_once(self) -> bool:
        """Whether no state that is continued has brought means along."""
        standardising = self.updater.standardising
        return standardising is None or not any(bool(mean.any()) for mean in standardising.means.values())

    @torch.no_grad()
    def run(self, step: int) -> dict[str, tuple[int, int]]:
        """Settle, wake and measure; returns, by module, how many units got new weights, of how many."""
        for tensors in (self.updater.parameters, self.updater.average):
            merge_biases(dict(zip(self.updater.names, tensors)))
        self._twin.load_state_dict(self.model.state_dict())
        seen, found = self._settle()
        found |= revive(seen, self.seed + step)  # changes nothing of what comes into the modules
        self._take_over(biases_move=False)
        if self.updater.standardising is not None:
            self.updater.standardising.measure(seen)
        return found

    def _settle(self) -> tuple[list[Passage], dict[str, tuple[int, int]]]:
        """What comes into the layers between scales once the twin is settled, and what was folded for that."""
        twin = self._twin
        if not isinstance(twin, MatchNetwork):
            return watched(twin, self._pass), {}
        inside: list[Inside] = []
        seen = watched(twin, lambda: inside.append(observed(twin, self._pass)))
        settled = settle(twin, inside[0])
        if settled.changed:
            self._take_over(biases_move=True)
            seen = watched(twin, self._pass)
        return seen, settled.folded

    def _take_over(self, biases_move: bool) -> None:
        """The twin's weights are the network's from now on; the average gets what is new in them.

        Biases that move do so by as much in the average; everything else that is new is copied.
        """
        twins = dict(self._twin.named_parameters())
        updater = self.updater
        for name, parameter, average in zip(updater.names, updater.parameters, updater.average):
            if biases_move and parameter.dim() < 2:
                average.add_(twins[name] - parameter)
            else:
                average.copy_(torch.where(twins[name] != parameter, twins[name], average))
            parameter.copy_(twins[name])

    def _pass(self) -> None:
        device = self._images[0][0].device.type
        with torch.autocast(device, torch.bfloat16, enabled=self._mixed_precision):
            for images in self._images:
                self._twin(*images)
