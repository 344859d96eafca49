"""How a call of the operator is cut into Triton programs: tiles of queries, groups of heads, strides.

Everything here is a pure function of shapes and strides: no tuning at run time, so that a launch inside a
CUDA graph is the launch that was captured, and a shape always runs the same code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import triton
from torch import Tensor

from matchattention.ops.match_attention.positions import EDGE, radius

# Channels of one program, heads x channels: wide enough for 16-byte loads at two channels a head, narrow enough
# that the scores of a whole window stay in registers.
PROGRAM_CHANNELS = 64

# Feature elements of one thread and one key: one 16-byte load in fp16, two in fp32.
ELEMENTS_PER_THREAD = 8

# Queries of one program at most.
MOST_QUERIES = 128

# A small map is cut finer until about this many programs keep every multiprocessor of a large GPU busy.
WANTED_PROGRAMS = 512

# Heads from this many channels on, and all heads under a window of several rows, have programs of their own.
WIDE_FROM = 24

# Bytes that one thread loads at once.
LOAD_BYTES = 16


@dataclass(frozen=True)
class WideCut:
    """How a kernel of `triton_wide` or `triton_gather` is cut."""

    chunk_bytes: int
    """Bytes of a query's or key's channels that are worked on at once: 128 is one cache line, eight threads."""
    threads: int
    """Threads of one program."""
    queries_per_thread: int = 1
    """Queries, or keys, that one thread works on side by side."""
    band: int = 256
    """Tokens across a band of tiles; the map is worked on band by band."""
    most_registers: int | None = None
    """Registers of a thread at most; None leaves it to the compiler."""
    heads_in_turn: int = 1
    """Heads that a program of the forward kernel works on one after the other, where there are programs enough."""
    queries_at_once: int = 2
    """Queries whose features the gathering kernel fetches at once."""


# The fastest of what `benchmarks/operator_tuning.py` compares, on an H200 at the paper's table S3.
FORWARD_CUT = WideCut(chunk_bytes=128, threads=256, most_registers=64, heads_in_turn=4)
COEFFICIENTS_CUT = WideCut(chunk_bytes=128, threads=128)
GATHER_CUT = WideCut(chunk_bytes=128, threads=128)


@dataclass(frozen=True)
class Tiling:
    """One launch: `tile_y` x `tile_x` queries times `head_block` heads a program."""

    tile_y: int
    tile_x: int
    head_block: int
    channel_block: int
    value_block: int
    groups: int
    tiles_y: int
    tiles_x: int
    programs: int
    warps: int


def tiling(q: Tensor, v: Tensor, window: tuple[int, int], elements_per_thread: int = ELEMENTS_PER_THREAD) -> Tiling:
    """Cut the queries of `q` (B, H, W, heads, c) into tiles of a group of heads."""
    batch, height, width, heads, channels = q.shape
    channel_block = triton.next_power_of_2(channels)
    value_block = triton.next_power_of_2(v.shape[-1])
    widest = max(channel_block, value_block)
    head_block = max(1, min(triton.next_power_of_2(heads), PROGRAM_CHANNELS // widest))
    groups = -(-heads // head_block)
    row = head_block * widest
    # Larger tiles share more keys in 2D, where each key serves sixteen queries.
    threads = 128 if window[0] == 1 else 256
    queries = max(8, min(MOST_QUERIES, threads * elements_per_thread // row))
    while queries > 8 and batch * height * width * groups // queries < WANTED_PROGRAMS:
        queries //= 2
    warps = max(1, min(threads // 32, queries * row // (32 * elements_per_thread)))
    tile_y, tile_x = _tile(queries, height, width, window)
    tiles_x, tiles_y = -(-width // tile_x), -(-height // tile_y)
    return Tiling(
        tile_y=tile_y,
        tile_x=tile_x,
        head_block=head_block,
        channel_block=channel_block,
        value_block=value_block,
        groups=groups,
        tiles_y=tiles_y,
        tiles_x=tiles_x,
        programs=batch * tiles_y * tiles_x * groups,
        warps=warps,
    )


def is_wide(q: Tensor, v: Tensor, window: tuple[int, int]) -> bool:
    """Whether each head has programs of its own, as in `triton_wide`."""
    return window[0] > 1 or max(q.shape[-1], v.shape[-1]) >= WIDE_FROM


def wide_tiling(
    q: Tensor, v: Tensor, window: tuple[int, int], cut: WideCut
) -> tuple[tuple[int, int, int], dict[str, Any]]:
    """Cut the queries of `q` (B, H, W, heads, c) into tiles of one head.

    Tiles run across a band and down it, before the next band: rows of keys that the next row of tiles reads again are
    then still in the L2 cache.

    Returns:
        Tiles across a band, tiles down it, bands of all images; and the arguments of a kernel that say how it is cut.
    """
    batch, height, width, heads, channels = q.shape
    widest = max(channels, v.shape[-1])
    chunk = min(triton.next_power_of_2(widest), max(1, cut.chunk_bytes // q.element_size()))
    vector = min(chunk, LOAD_BYTES // q.element_size())
    # A last chunk that is at most half full would waste more than narrower chunks do.
    while chunk > vector and -widest % chunk >= chunk // 2:
        chunk //= 2
    lanes = chunk // vector
    queries = cut.threads * cut.queries_per_thread // lanes
    while queries > 8 and batch * height * width * heads // queries < WANTED_PROGRAMS:
        queries //= 2
    tile_y, tile_x = _tile(queries, height, width, window)
    tiles_x, tiles_y = -(-width // tile_x), -(-height // tile_y)
    bands = -(-tiles_x // max(1, cut.band // tile_x))
    across = -(-tiles_x // bands)
    arguments = {
        "band": across,
        "bands": bands,
        "TILE_Y": tile_y,
        "TILE_X": tile_x,
        "CHUNK": chunk,
        "L": lanes,
        "V": vector,
        "N": max(lanes, triton.next_power_of_2(window[0] * window[1])),
        "num_warps": max(1, tile_y * tile_x * lanes // (32 * cut.queries_per_thread)),
    }
    if cut.most_registers is not None:
        arguments["maxnreg"] = cut.most_registers
    return (across, tiles_y, bands * batch), arguments


def heads_in_turn(tiles: int, heads: int, cut: WideCut) -> int:
    """Heads of one program: fewer programs than some sixteen times those that run at once would end unevenly."""
    return math.gcd(heads, cut.heads_in_turn) if tiles >= 16 * WANTED_PROGRAMS else 1


def _tile(queries: int, height: int, width: int, window: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of a tile of about so many queries.

    A 2D window's neighbours share keys in both directions, so its tiles are square: that is what lets most keys
    come from the nearest cache. A 1D window shares keys along the row only.
    """
    across = queries if window[0] == 1 else 2 ** math.ceil(math.log2(queries) / 2)
    tile_x = min(across, triton.next_power_of_2(width))
    return min(queries // tile_x, triton.next_power_of_2(height)), tile_x


def readable(features: Tensor) -> Tensor:
    """`features` itself where a kernel can read it in place: channels of one head next to each other."""
    return features if features.stride(-1) == 1 or features.shape[-1] == 1 else features.contiguous()


def call_arguments(
    q: Tensor, k: Tensor, v: Tensor, relative_position: Tensor, window: tuple[int, int], dot: bool
) -> dict[str, Any]:
    """The arguments that all kernels over queries have in common, by name."""
    _, height, width, heads, channels = q.shape
    names = ("R_BATCH", "R_ROW", "R_COLUMN", "R_HEAD", "R_AXIS")
    return {
        "HEADS": heads,
        "CHANNELS": channels,
        "VALUE_CHANNELS": v.shape[-1],
        "gamma": channels**-0.5,
        "DOT": dot,
        "PER_HEAD": relative_position.shape[3] > 1,
        "LARGE": any(may_overflow(t, 1) for t in (k, v)),  # inside one image
        **dict(zip(names, relative_position.stride())),
        **_strides("Q", q),
        **_strides("K", k),
        **_strides("V", v),
        **_geometry(height, width, window),
    }


def group_arguments(k: Tensor, v: Tensor, cut: Tiling) -> dict[str, Any]:
    """The arguments of the kernels that work on a group of heads, by name."""
    return {
        "tiles_x": cut.tiles_x,
        "tiles_y": cut.tiles_y,
        "groups": cut.groups,
        "TILE_Y": cut.tile_y,
        "TILE_X": cut.tile_x,
        "G": cut.head_block,
        "C": cut.channel_block,
        "CV": cut.value_block,
        "num_warps": cut.warps,
        "K_RUN": run_of(k),
        "V_RUN": run_of(v),
    }


def _strides(name: str, features: Tensor) -> dict[str, int]:
    """Strides of (B, H, W, heads, c) as kernel arguments.

    Strides over heads and columns belong to a network and are compiled in; those over rows and images change with
    the image's size and are passed in multiples of a unit, which is compiled in too: the compiler then knows the
    alignment of every address without a new kernel for each size.
    """
    batch, row, column, head, _ = features.stride()
    unit = math.gcd(16, batch, row)
    return {
        f"{name}_BATCH": batch // unit,
        f"{name}_ROW": row // unit,
        f"{name}_UNIT": unit,
        f"{name}_COLUMN": column,
        f"{name}_HEAD": head,
    }


def run_of(features: Tensor) -> int:
    """Elements that surely lie side by side and aligned, wherever in the map a head's channels are read."""
    return math.gcd(16, features.shape[-1], *features.stride()[:4])


def may_overflow(tensor: Tensor, first_axis: int = 0) -> bool:
    """Whether an offset over the axes from `first_axis` on may not fit 32 bits."""
    return sum(abs(s) * (n - 1) for s, n in zip(tensor.stride()[first_axis:], tensor.shape[first_axis:])) >= 2**31


def _axis_limits(size: int, extent: int) -> tuple[float, float, float]:
    """Lowest and highest centre on one axis, and the highest floor of it.

    The last one repeats what the clamp says for every map narrower than 2^13 tokens; beyond, where fp32 cannot tell
    `highest` from the integer above, it keeps the window inside the map.
    """
    rad = radius(extent)
    return float(rad), max(float(rad), size - 1 - rad - EDGE), float(max(rad, size - 2 - rad))


def window_limits(height: int, width: int, window: tuple[int, int]) -> dict[str, float]:
    """How far a window's centre may go, as kernel arguments."""
    rows, columns = window
    lowest_x, highest_x, last_x = _axis_limits(width, columns)
    lowest_y, highest_y, last_y = _axis_limits(height, rows) if rows > 1 else (0.0, 0.0, 0.0)
    return {
        "lowest_x": lowest_x,
        "highest_x": highest_x,
        "last_x": last_x,
        "lowest_y": lowest_y,
        "highest_y": highest_y,
        "last_y": last_y,
    }


def _geometry(height: int, width: int, window: tuple[int, int]) -> dict[str, Any]:
    """The map and the window as kernel arguments."""
    rows, columns = window
    return {
        "height": height,
        "width": width,
        **window_limits(height, width, window),
        "ROWS": rows,
        "COLUMNS": columns,
        "OVERHANGS": width < columns or (rows > 1 and height < rows),
    }
