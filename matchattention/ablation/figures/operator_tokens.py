"""Table S3: the operator over the number of tokens, beside global attention and a neighbourhood attention of our own.

The rival is written with PyTorch's `flex_attention`: every token attends to the same number of keys as the operator,
but around itself instead of where its match is. Its tokens lie in tiles of 8x16, so that 128 neighbours of the map
are neighbours in memory; putting them there is not counted, which favours it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.nn.functional as F
from torch import Tensor

from matchattention.ablation.figures.drawing import BLUE, GREEN, GREY, ORANGE, chip, picture
from matchattention.ablation.figures.settings import Settings
from matchattention.ablation.paper import TABLE_S3
from matchattention.bench.operator import SWEEP, attend, inputs_of, table_s3
from matchattention.bench.timing import growth_exponent, measure_kernels
from matchattention.errors import first_line

TILE = (8, 16)  # tokens; 128 of them are one block of flex_attention
BLOCK = TILE[0] * TILE[1]
# Keys from one token before to two behind the query, as the operator's 4x4 window lies around its centre.
BEFORE, BEHIND = 1, 2
MOST_GLOBAL = 256  # tokens a side; the cost grows with the fourth power
METHODS = {
    "match": "MatchAttention, 4x4",
    "neighbourhood": "neighbourhood attention, 4x4 (flex_attention)",
    "global": "global attention (PyTorch's)",
}


def tile_order(height: int, width: int) -> tuple[Tensor, Tensor]:
    """Row and column of every token, tile after tile; beyond the map where tiles overhang."""
    rows, columns = -(-height // TILE[0]), -(-width // TILE[1])
    place = torch.arange(rows * columns * BLOCK)
    tile, within = place // BLOCK, place % BLOCK
    return tile // columns * TILE[0] + within // TILE[1], tile % columns * TILE[1] + within % TILE[1]


def neighbouring_tiles(height: int, width: int) -> tuple[Tensor, Tensor]:
    """For every tile how many tiles its keys lie in, (tiles,), and which, (tiles, tiles or 9 at most), int32."""
    rows, columns = -(-height // TILE[0]), -(-width // TILE[1])
    tile = torch.arange(rows * columns)
    y, x = (tile // columns).view(-1, 1), (tile % columns).view(-1, 1)
    steps = torch.tensor([(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)])
    near_y, near_x = y + steps[:, 0], x + steps[:, 1]
    inside = (near_y >= 0) & (near_y < rows) & (near_x >= 0) & (near_x < columns)
    number = torch.where(inside, near_y * columns + near_x, rows * columns)
    # Those inside come first, in order: the rest of a row is not looked at.
    return inside.sum(1).int(), number.sort(1).values.clamp(max=rows * columns - 1).int()


def neighbourhood(height: int, width: int, device: torch.device) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Attention of (1, heads, tokens, c) in tile order to the 16 keys around each query, shifted inwards nowhere.

    Compiled on a GPU; on a CPU PyTorch's plain version, which makes all scores and serves tests alone.
    """
    from torch.nn.attention.flex_attention import BlockMask, flex_attention

    y, x = (place.to(device) for place in tile_order(height, width))

    def near(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        dy, dx = y[key] - y[query], x[key] - x[query]
        close = (dy >= -BEFORE) & (dy <= BEHIND) & (dx >= -BEFORE) & (dx <= BEHIND)
        return close & (y[key] < height) & (x[key] < width)

    counts, indices = (part.to(device)[None, None] for part in neighbouring_tiles(height, width))
    # Without the blocks of a backward pass: they would be a table of all tiles by all tiles.
    mask = BlockMask.from_kv_blocks(
        counts, indices, BLOCK_SIZE=BLOCK, mask_mod=near, seq_lengths=(len(y), len(y)), compute_q_blocks=False
    )
    torch._dynamo.reset()  # every size is compiled for itself, and dynamo gives up after eight
    run = torch.compile(flex_attention, dynamic=False) if device.type == "cuda" else flex_attention
    return lambda q, k, v: run(q, k, v, block_mask=mask)


def in_tiles(tokens: Tensor) -> Tensor:
    """(1, H, W, heads, c) to (1, heads, tokens, c), zeros where tiles overhang."""
    _, height, width, _, _ = tokens.shape
    padded = F.pad(tokens, (0, 0, 0, 0, 0, -width % TILE[1], 0, -height % TILE[0]))
    y, x = tile_order(height, width)
    return padded[:, y, x].transpose(1, 2).contiguous()


def _call(method: str, side: int, device: torch.device) -> Callable[[], Any]:
    case = table_s3(side)
    tensors = inputs_of(case, device)
    if method == "match":
        return lambda: attend(case, tensors)
    q, k, v = tensors[:3]
    if method == "neighbourhood":
        tiled = [in_tiles(part) for part in (q, k, v)]
        attention = neighbourhood(side, side, device)
        return lambda: attention(*tiled)
    q, k, v = (part.flatten(1, 2).transpose(1, 2).contiguous() for part in (q, k, v))
    return lambda: F.scaled_dot_product_attention(q, k, v)


def measure(settings: Settings) -> dict[str, Any]:
    """Time and peak memory of one call, 256 channels in 4 heads, fp32, without linear layers."""
    device = settings.device
    most = settings.count or (2048 if device.type == "cuda" else 64)
    sides = [side for side in SWEEP if side <= most] or [most]
    results: dict[str, Any] = {"methods": METHODS, "cases": []}
    for method in METHODS:
        for side in sides:
            if method == "global" and side > MOST_GLOBAL:
                continue
            row: dict[str, Any] = {"method": method, "side": side, "tokens": side * side}
            try:
                row |= _timed(_call(method, side, device), settings)
                settings.say(f"{method:14s} {side:5d}: {row['median_ms']:.3f} ms")
            except Exception as error:
                row["failed"] = first_line(error)
                settings.say(f"{method:14s} {side:5d} failed: {row['failed']}")
            results["cases"].append(row)
            settings.keep(results)
            if device.type == "cuda":
                torch.cuda.empty_cache()
    results["growth"] = {method: _growth(results["cases"], method) for method in METHODS}
    return results


def _timed(call: Callable[[], Any], settings: Settings) -> dict[str, Any]:
    with torch.no_grad():
        return measure_kernels(call, settings.device, settings.seconds).to_dict()


def _growth(cases: list[dict[str, Any]], method: str) -> float | None:
    fine = [row for row in cases if row["method"] == method and "median_ms" in row]
    if len(fine) < 2:
        return None
    return growth_exponent([float(row["tokens"]) for row in fine], [row["median_ms"] for row in fine])


def draw(data: dict[str, Any], path: Path, settings: Settings) -> None:
    """Time and memory over tokens, the paper's points hollow."""
    colours = {"match": BLUE, "neighbourhood": GREEN, "global": ORANGE}
    with picture(path, columns=2, size=(11, 4)) as (time, memory):
        for method, words in data["methods"].items():
            rows = [row for row in data["cases"] if row["method"] == method and "median_ms" in row]
            tokens = [row["tokens"] for row in rows]
            style = {"color": colours[method], "marker": "o", "label": words}
            time.loglog(tokens, [row["median_ms"] for row in rows], **style)
            held = [(row["tokens"], row["peak_bytes"] / 1e6) for row in rows if row.get("peak_bytes")]
            memory.loglog(*zip(*held), **style) if held else None
        for method, paper in TABLE_S3.items():
            tokens = [row.side**2 for row in paper]
            style = {"color": colours[method], "marker": "s", "mfc": "white", "ls": "--", "label": f"paper, {method}"}
            time.loglog(tokens, [row.milliseconds for row in paper], **style)
            memory.loglog(tokens, [row.megabytes for row in paper], **style)
        time.set(title=f"{chip(data)}; the paper's on an RTX 4090", xlabel="tokens", ylabel="ms")
        memory.set(title="peak memory", xlabel="tokens", ylabel="MB")
        time.legend(frameon=False)
        time.grid(color=GREY, alpha=0.2)
        memory.grid(color=GREY, alpha=0.2)
