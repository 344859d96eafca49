"""How far a network is with a pair, block by block: for bars, and for stopping it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import nn

from matchattention.layers.block import MATBlock
from matchattention.runtime.stand_in import StandIn


@contextmanager
def watching_blocks(network: nn.Module, on_block: Callable[[int, int], None]) -> Iterator[None]:
    """Call `on_block(block, blocks)` after every block of the decoder, counted from one.

    Images that are matched in strips or at two resolutions run through the blocks several times; the count then
    starts over. An exception of `on_block` ends the forward pass. Networks in one CUDA graph have no blocks to watch.
    """
    blocks = list(_blocks(network))
    finished = 0

    def count(*_: object) -> None:
        nonlocal finished
        block = finished % len(blocks) + 1
        finished += 1
        on_block(block, len(blocks))

    handles = [block.register_forward_hook(count) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that are called for blocks: of a prepared network those that stand for them."""
    for child in module.children():
        if isinstance(child, MATBlock) or (isinstance(child, StandIn) and isinstance(child.plain, MATBlock)):
            yield child
        else:
            yield from _blocks(child)
