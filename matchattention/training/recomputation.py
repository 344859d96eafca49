"""Activation checkpointing: blocks keep their inputs only and run again on the way back.

Batch norms between the scales take their statistics from the batch and keep none, so that the second pass computes
exactly what the first one did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from matchattention.training.compilation import repeated_blocks


class Recomputed:
    """Stands in for a block's ``forward``; ``inner`` may be compiled."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        self.plain = self.inner = inner

    def __call__(self, *inputs: Any) -> Any:
        # No layer draws random numbers, so none need to be restored (which a captured graph could not do).
        return checkpoint(self.inner, *inputs, use_reentrant=False, preserve_rng_state=False)


def recompute_blocks(model: nn.Module) -> int:
    """Make every repeated block recompute its activations; returns how many there are."""
    blocks = list(repeated_blocks(model))
    for block in blocks:
        block.forward = Recomputed(block.forward)  # type: ignore[method-assign]
    return len(blocks)
