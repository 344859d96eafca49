"""Running independent pieces of work on the CPU's cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Piece = TypeVar("Piece")


def for_each(pieces: Iterable[Piece], work: Callable[[Piece], None]) -> None:
    """Call `work` for every piece, on as many threads as torch may use.

    Pieces small enough for the cache are too small for torch to split, so it would use one core for them.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        for piece in pieces:
            work(piece)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, pieces):
            pass
