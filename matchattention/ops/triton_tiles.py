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

from matchattention.ops.positions import EDGE, radius

# Channels of one program, heads x channels: wide enough for 16-byte loads at two channels a head, narrow enough
# that the scores of a whole window stay in registers.
PROGRAM_CHANNELS = 64

# Feature elements of one thread and one key: one 16-byte load in fp16, two in fp32.
ELEMENTS_PER_THREAD = 8

# Queries of one program at most.
MOST_QUERIES = 128

# A small map is cut finer until about this many programs keep every multiprocessor of a large GPU busy.
WANTED_PROGRAMS = 512


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


def tiling(
    q: Tensor, v: Tensor, window: tuple[int, int], elements_per_thread: int = ELEMENTS_PER_THREAD
) -> Tiling:
    """Cut the queries of `q` (B, H, W, heads, c) into tiles.

    A 2D window's neighbours share keys in both directions, so its tiles are square: that is what lets most keys
    come from the nearest cache. A 1D window shares keys along the row only.
    """
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
    across = queries if window[0] == 1 else 2 ** math.ceil(math.log2(queries) / 2)
    tile_x = min(across, triton.next_power_of_2(width))
    tile_y = min(queries // tile_x, triton.next_power_of_2(height))
    tiles_x, tiles_y = -(-width // tile_x), -(-height // tile_y)
    return Tiling(
        tile_y=tile_y, tile_x=tile_x, head_block=head_block, channel_block=channel_block, value_block=value_block,
        groups=groups, tiles_y=tiles_y, tiles_x=tiles_x, programs=batch * tiles_y * tiles_x * groups, warps=warps,
    )


def readable(features: Tensor) -> Tensor:
    """`features` itself where a kernel can read it in place: channels of one head next to each other."""
    return features if features.stride(-1) == 1 or features.shape[-1] == 1 else features.contiguous()


def call_arguments(
    q: Tensor, k: Tensor, v: Tensor, relative_position: Tensor, window: tuple[int, int], dot: bool, cut: Tiling
) -> dict[str, Any]:
    """The arguments that the forward and the backward kernels have in common, by name."""
    _, height, width, heads, channels = q.shape
    names = ("R_BATCH", "R_ROW", "R_COLUMN", "R_HEAD", "R_AXIS")
    return {
        "HEADS": heads, "CHANNELS": channels, "VALUE_CHANNELS": v.shape[-1],
        "gamma": channels**-0.5, "DOT": dot, "PER_HEAD": relative_position.shape[3] > 1,
        "tiles_x": cut.tiles_x, "tiles_y": cut.tiles_y, "groups": cut.groups,
        "TILE_Y": cut.tile_y, "TILE_X": cut.tile_x, "G": cut.head_block,
        "C": cut.channel_block, "CV": cut.value_block, "num_warps": cut.warps,
        "LARGE": any(_overflows(t) for t in (k, v)), "K_RUN": run_of(k), "V_RUN": run_of(v),
        **dict(zip(names, relative_position.stride())),
        **_strides("Q", q), **_strides("K", k), **_strides("V", v),
        **_geometry(height, width, window),
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
        f"{name}_BATCH": batch // unit, f"{name}_ROW": row // unit, f"{name}_UNIT": unit,
        f"{name}_COLUMN": column, f"{name}_HEAD": head,
    }


def run_of(features: Tensor) -> int:
    """Elements that surely lie side by side and aligned, wherever in the map a head's channels are read."""
    return math.gcd(16, features.shape[-1], *features.stride()[:4])


def _overflows(features: Tensor) -> bool:
    """Whether an offset inside one image may not fit 32 bits."""
    return sum(abs(s) * (n - 1) for s, n in zip(features.stride()[1:], features.shape[1:])) >= 2**31


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
        "lowest_x": lowest_x, "highest_x": highest_x, "last_x": last_x,
        "lowest_y": lowest_y, "highest_y": highest_y, "last_y": last_y,
    }


def _geometry(height: int, width: int, window: tuple[int, int]) -> dict[str, Any]:
    """The map and the window as kernel arguments."""
    rows, columns = window
    return {
        "height": height, "width": width, **window_limits(height, width, window), "ROWS": rows, "COLUMNS": columns,
        "OVERHANGS": width < columns or (rows > 1 and height < rows),
    }
