"""How kernels over rows of features are cut into programs: a table by kernel and width."""

from __future__ import annotations

from typing import NamedTuple

from matchattention.runtime.kernels.rows import padded

EACH = 0
# Two programs for each multiprocessor of a large GPU.
ENOUGH_PROGRAMS = 256


class Tile(NamedTuple):
    """How a kernel over rows of features is cut into programs.

    Attributes:
        tokens: of a program; at least the 16 that a matrix product takes, few where rows are wide.
        columns: of the next projection that are multiplied at once; of a contraction's result where it stands apart.
        warps: of a program; wide rows need more registers.
        shares: programs, at most, that have the same tokens and divide the next projection's columns where the map is
            too small to fill the GPU otherwise; EACH gives each tile of columns a program, on every map.
        apart: whether the next projection is a launch of its own. Each program of a joint launch reads all matrices,
            which takes longer than the launch where they are large and a program's tokens few.
        rows: of a contraction's matrix that are multiplied at once.
        stages: pieces of a matrix that are under way or in use.
    """

    tokens: int
    columns: int
    warps: int
    shares: int = 1
    apart: bool = False
    rows: int = 64
    stages: int = 3


# By kernel and by channels, rounded up to a power of two. `benchmarks/tune_kernels.py` measures others.
TILES: dict[str, dict[int, Tile]] = {
    "project": {
        32: Tile(64, 64, 4, shares=4),
        64: Tile(64, 64, 4, shares=4),
        128: Tile(32, 64, 4, shares=4),
        256: Tile(16, 64, 8, shares=4),
    },
    "contract": {
        32: Tile(64, 64, 4),
        64: Tile(64, 64, 4),
        128: Tile(32, 64, 4),
        256: Tile(16, 64, 8),
    },
    "self": {
        32: Tile(64, 64, 4, shares=4),
        64: Tile(64, 64, 4, shares=4),
        128: Tile(32, 64, 4, shares=4),
        256: Tile(16, 64, 8, shares=4),
    },
    "cross": {
        32: Tile(64, 64, 4, shares=4),
        64: Tile(64, 64, 4, shares=4),
        128: Tile(32, 64, 4, shares=4),
        256: Tile(16, 64, 8, shares=4),
    },
    "join": {
        32: Tile(64, 64, 4),
        64: Tile(64, 64, 4),
        128: Tile(32, 64, 4),
        256: Tile(16, 64, 8),
    },
}


def tile_of(kernel: str, channels: int, outputs: int, tokens: int) -> Tile:
    """The table's tile, with no more columns and shares than there is use for.

    Args:
        kernel: "project", "contract", "self", "cross" or "join".
        channels: of a row.
        outputs: columns of the next projection.
        tokens: in all, both views.
    """
    tile = TILES[kernel][padded(channels, 32)]
    columns = min(tile.columns, padded(max(outputs, 1)))
    tiles = max(1, -(-outputs // columns))
    shares = 1
    while 2 * shares <= tile.shares and shares < tiles and 2 * shares * tokens <= ENOUGH_PROGRAMS * tile.tokens:
        shares *= 2
    return tile._replace(columns=columns, shares=min(shares, tiles) if tile.shares != EACH else tiles)
