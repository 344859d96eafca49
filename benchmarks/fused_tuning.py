"""Time the fused network's row kernels with other tiles, on the GPU that is here.

    python benchmarks/fused_tuning.py --output tuning.json --seconds 120

For RT's four scales at 1024x512 it times candidate tiles of the self- and cross-attention and of the contraction, alone
and with the depthwise convolution before it inside, and prints the entries of `fused_rows.TUNED` and `MIXED_INSIDE`
that pay. Kernels are compiled in processes side by side first, then timed one after the other, replayed from CUDA
graphs. No candidate is timed after --seconds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matchattention.bench.timing import measure_kernels
from matchattention.data.atomic import replacing
from matchattention.errors import first_line
from matchattention.inference import fused_rows
from matchattention.inference.fused_blocks import EPS, FusedStage
from matchattention.inference.fused_rows import (
    PackedContraction,
    PackedMixing,
    PackedProjection,
    Tile,
    contract,
    mix_contract,
    norm_project,
)
from matchattention.layers.block import MATBlock
from matchattention.models.registry import create_model

SCALES = {256: (16, 32), 128: (32, 64), 64: (64, 128), 32: (128, 256)}  # channels: (height, width) of 1024x512
WORTH = 0.97  # a tile replaces the rule's where it takes less than this part of its time


class Job(NamedTuple):
    """One kernel of one scale; `launches` of a pass of RT."""

    kernel: str
    channels: int
    launches: int
    encoder: bool = False

    def __str__(self) -> str:
        return f"{self.kernel}{' of the encoder' if self.encoder else ''}, {self.channels} channels"


def jobs() -> list[Job]:
    """What RT launches at 1/32, 1/16, 1/8 and 1/4."""
    found = []
    for channels, blocks, encoder_blocks in zip(SCALES, (8, 8, 8, 2), (2, 6, 2, 2)):
        found += [Job("cross", channels, blocks), Job("self", channels, blocks)]
        for kernel in ("contract", "mix"):
            found += [Job(kernel, channels, blocks), Job(kernel, channels, encoder_blocks, True)]
    return found


def candidates(job: Job) -> list[Tile]:
    """The rule's tile first, then those that differ from it in one or two ways that belong together."""
    height, width = SCALES[job.channels]
    fused_rows.TUNED.clear()
    usual = fused_rows.tile_of(job.kernel, job.channels, next_outputs(job), 2 * height * width)
    most = fused_rows.padded(next_outputs(job))
    made = [usual._replace(tokens=t, warps=w) for t in (16, 32, 64, 128) for w in (4, 8) if t * job.channels <= 8192]
    made += [usual._replace(columns=c, shares=s) for c in (32, 64, 128) for s in (1, 2, 4) if c * s <= most]
    made += [usual._replace(rows=r, stages=s) for r, s in ((64, 2), (64, 5), (32, 3), (128, 3))]
    if job.kernel in ("contract", "mix"):
        made = [tile for tile in made if tile.shares == 1]
    else:
        made = [tile for tile in made if tile.rows == usual.rows]
    return list(dict.fromkeys([usual, *made]))


def next_outputs(job: Job) -> int:
    """Columns of the projection at the kernel's end."""
    if job.encoder:
        return 2 * job.channels
    return {"cross": 4 * job.channels, "self": job.channels}.get(job.kernel, 3 * job.channels // 4)


def prepare(job: Job) -> Callable[[], Any]:
    """A launch of the job's kernel on random inputs."""
    torch.manual_seed(0)
    d = job.channels
    size = (2, *SCALES[d])
    features = torch.randn(*size, d, device="cuda", dtype=torch.float16)
    if job.encoder:
        hidden = torch.randn(*size, 2 * d, device="cuda", dtype=torch.float16)
        back = PackedContraction(torch.randn(d, 2 * d) / d, None, torch.ones(d), torch.float16).cuda()
        onward = PackedProjection(torch.ones(d), torch.randn(2 * d, d) / d, None, d, EPS, True, torch.float16).cuda()
        mixing = PackedMixing(torch.nn.Conv2d(2 * d, 2 * d, 3, groups=2 * d, bias=False)).cuda()
        if job.kernel == "mix":
            return lambda: mix_contract(features, hidden, mixing, back, onward)
        return lambda: contract(features, hidden, back, onward)
    model = create_model("rt")
    block = next(b for stage in model.stages for b in stage if b.config.channels == d)  # type: ignore[attr-defined]
    assert isinstance(block, MATBlock)
    stage = FusedStage([block], torch.float16).cuda()
    packed: Any = stage.blocks[0]
    position = torch.randn(*size, 16, device="cuda")
    if job.kernel == "mix":
        hidden = torch.randn(*size, packed.expand.outputs, device="cuda", dtype=torch.float16)
        return lambda: packed.gate(features, hidden, packed.before_self, position, packed.beta)
    if job.kernel == "contract":
        hidden = torch.randn(*size, packed.gate.contract.matrix.shape[1], device="cuda", dtype=torch.float16)
        return lambda: contract(features, hidden, packed.gate.contract, packed.before_self, position, packed.beta)
    mixed = norm_project(features, packed.before_cross if job.kernel == "cross" else packed.before_self, position,
                         packed.beta)  # fmt: skip
    return lambda: stage._attention(packed, features, position, mixed, cross=job.kernel == "cross")


def build(job: Job, tiles: list[Tile], until: float) -> int:
    """Compile the job's kernel with some tiles, by launching it; how many worked."""
    fused_rows.MIXED_INSIDE.add(job.channels)
    with torch.inference_mode():
        launch, built = prepare(job), 0
        for tile in tiles:
            if time.time() > until:
                break
            fused_rows.TUNED[job.kernel, job.channels] = tile
            try:
                launch()
                built += 1
            except Exception:  # not every tile compiles; timing it later says so with the reason
                continue
        torch.cuda.synchronize()
    return built


def measure_job(job: Job, until: float) -> list[dict[str, Any]]:
    """Microseconds of a launch with every candidate; the rule's first, for "mix" two kernels in place of one."""
    rows: list[dict[str, Any]] = []
    tiles: list[Tile | None] = [None, *candidates(job)] if job.kernel == "mix" else [*candidates(job)]
    with torch.inference_mode():
        launch = prepare(job)
        for tile in tiles:
            if time.time() > until:
                break
            fused_rows.MIXED_INSIDE.clear()
            if tile is not None:
                fused_rows.MIXED_INSIDE.add(job.channels)
                fused_rows.TUNED[job.kernel, job.channels] = tile
            try:
                timing = measure_kernels(launch, torch.device("cuda"), 0.02)
                rows.append({"tile": tile, "us": 1e3 * timing.median_ms})
            except Exception as error:
                rows.append({"tile": tile, "failed": first_line(error)})
    fused_rows.TUNED.clear()
    fused_rows.MIXED_INSIDE.clear()
    return rows


def best_of(results: dict[Job, list[dict[str, Any]]]) -> dict[tuple[str, int], tuple[Tile, float, float]]:
    """For each kernel and width: the tile with the least time over a pass, that time and the rule's, in us."""
    chosen: dict[tuple[str, int], tuple[Tile, float, float]] = {}
    for key in dict.fromkeys((job.kernel, job.channels) for job in results):
        own = [job for job in results if (job.kernel, job.channels) == key]
        times = [{row["tile"]: job.launches * row["us"] for row in results[job] if "us" in row} for job in own]
        common = [tile for tile in times[0] if tile is not None and all(tile in others for others in times)]
        usual = [results[job][0] for job in own]
        if not common or not all("us" in row for row in usual):
            continue
        total = {tile: sum(others[tile] for others in times) for tile in common}
        tile = min(total, key=total.__getitem__)
        rule = sum(job.launches * row["us"] for job, row in zip(own, usual))
        chosen[key] = (tile, total[tile], rule)
    return chosen


def shown(tile: Tile | None) -> str:
    return "two kernels" if tile is None else str(tuple(tile))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("tuning.json"))
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--workers", type=int, default=max(1, min(14, (os.cpu_count() or 1) - 1)))
    arguments = parser.parse_args()
    begin = time.time()
    until = begin + arguments.seconds
    pieces = [(job, candidates(job)[first::4]) for job in jobs() for first in range(4)]
    with ProcessPoolExecutor(arguments.workers, multiprocessing.get_context("spawn")) as pool:
        compiling = [pool.submit(build, job, tiles, begin + 0.7 * arguments.seconds) for job, tiles in pieces]
        print(f"{sum(f.result() for f in compiling)} kernels compiled in {time.time() - begin:.0f} s", flush=True)
    results: dict[Job, list[dict[str, Any]]] = {}
    for job in jobs():
        results[job] = measure_job(job, until)
        timed = sorted((row for row in results[job] if "us" in row), key=lambda row: row["us"])
        if timed and "us" in results[job][0]:
            print(f"{job!s:38s} rule {shown(results[job][0]['tile'])} {results[job][0]['us']:6.2f} us; best "
                  + ", ".join(f"{shown(row['tile'])} {row['us']:.2f}" for row in timed[:3]), flush=True)
        with replacing(arguments.output) as temporary:
            temporary.write_text(json.dumps({str(job): rows for job, rows in results.items()}, indent=1) + "\n")
    print("worth an entry in fused_rows.TUNED (with \"mix\", its width in MIXED_INSIDE too):")
    saved = 0.0
    for key, (tile, us, rule) in best_of(results).items():
        if us < WORTH * rule:
            saved += rule - us
            print(f"    {key!r}: {tile!r},  # {us:.0f} us a pass in place of {rule:.0f}".replace("'", '"'))
    print(f"saves {saved:.0f} us of a pass; {time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
