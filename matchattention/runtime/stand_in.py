"""Modules of a prepared network that stand for plain ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class StandIn(nn.Module):
    """Computes what a plain module computes, in another way; the plain one runs when something is compiled.

    Attributes:
        plain: the plain module.
        run: the other way; every kind has its own.
        serves: whether `run` takes these tokens.
    """

    run: Callable[..., Any]
    serves: Callable[[Tensor], bool]

    def __init__(self, plain: nn.Module) -> None:
        super().__init__()
        self.plain: Any = plain

    def forward(self, *inputs: Tensor) -> Any:
        plain = torch.compiler.is_compiling() or not self.serves(inputs[0])
        return self.plain(*inputs) if plain else self.run(*inputs)
