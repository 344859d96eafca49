"""Time the fused network's row kernels with other tiles, on the GPU that is here.

    python benchmarks/fused_tuning.py --output tuning.json --seconds 120

For RT's four scales at 1024x512 it tries tiles of the self- and cross-attention and of the contraction, and prints the
entries of `fused_rows.TUNED` that pay. Kernels are compiled in processes side by side, without running. Then a process
compares each candidate's numbers with the usual tile's and times it, replayed from a CUDA graph. A candidate that fails
is reported and left out; after one that leaves the GPU unusable a new process goes on. None is begun after --seconds.
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
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matchattention.bench.timing import measure_kernels
from matchattention.data.atomic import replacing
from matchattention.errors import first_line
from matchattention.layers.block import MATBlock
from matchattention.models.registry import create_model
from matchattention.runtime import fused_rows
from matchattention.runtime.fused_blocks import EPS, FusedStage
from matchattention.runtime.fused_rows import PackedContraction, PackedProjection, Tile, contract, norm_project
from matchattention.runtime.launching import compiling_only

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SPAWN = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
SCALES = {256: (16, 32), 128: (32, 64), 64: (64, 128), 32: (128, 256)}  # channels: (height, width) of 1024x512
WORTH = 0.97  # a tile replaces the rule's where it takes less than this part of its time
COMPILING = 0.5  # of the time at most
NO_TIME = "no time left"
CLOSE = 0.02  # results may differ by this part of the largest: fp16 after sums in another order


class Job(NamedTuple):
    """One kernel of one scale; `launches` of a pass of RT."""

    kernel: str
    channels: int
    launches: int
    encoder: bool = False

    def __str__(self) -> str:
        return f"{self.kernel}{' of the encoder' if self.encoder else ''}, {self.channels} channels"


def jobs() -> list[Job]:
    """What RT launches at 1/32, 1/16, 1/8 and 1/4; what takes longest first."""
    found = []
    for channels, blocks, encoder_blocks in zip(SCALES, (8, 8, 8, 2), (2, 6, 2, 2)):
        found += [Job("contract", channels, blocks), Job("contract", channels, encoder_blocks, True)]
        found += [Job("cross", channels, blocks), Job("self", channels, blocks)]
    return found


def candidates(job: Job) -> list[Tile]:
    """The rule's tile first, then those that differ from it in one or two ways that belong together."""
    height, width = SCALES[job.channels]
    fused_rows.TUNED.clear()
    usual = fused_rows.tile_of(job.kernel, job.channels, next_outputs(job), 2 * height * width)
    most = fused_rows.padded(next_outputs(job))
    made = [usual._replace(columns=c, shares=s) for c in (32, 64, 128) for s in (1, 2, 4) if c * s <= most]
    made += [usual._replace(tokens=t, warps=w) for t in (16, 32, 64, 128) for w in (4, 8) if t * job.channels <= 8192]
    if job.kernel == "contract":
        made += [usual._replace(rows=r, stages=s) for r, s in ((64, 2), (64, 4), (32, 3), (128, 2), (128, 3))]
        made += [usual._replace(rows=128, columns=128, shares=s) for s in (1, 2) if 128 * s <= most]
    else:
        made += [usual._replace(stages=s) for s in (2, 4)]
    return list(dict.fromkeys([usual, *made]))


def next_outputs(job: Job) -> int:
    """Columns of the projection at the kernel's end."""
    if job.encoder:
        return 2 * job.channels
    return {"cross": 4 * job.channels, "self": job.channels}.get(job.kernel, 3 * job.channels // 4)


def prepare(job: Job) -> Callable[[], tuple[Tensor, ...]]:
    """A launch of the job's kernel on random inputs."""
    torch.manual_seed(0)
    d = job.channels
    size = (2, *SCALES[d])
    features = torch.randn(*size, d).to(DEVICE, torch.float16)
    if job.encoder:
        hidden = torch.randn(*size, 2 * d).to(DEVICE, torch.float16)
        back = PackedContraction(torch.randn(d, 2 * d) / d, None, torch.ones(d), torch.float16).to(DEVICE)
        weight = torch.randn(2 * d, d) / d
        onward = PackedProjection(torch.ones(d), weight, None, d, EPS, True, torch.float16).to(DEVICE)
        return lambda: contract(features, hidden, back, onward)  # type: ignore[return-value]
    model = create_model("rt")
    block = next(b for stage in model.stages for b in stage if b.config.channels == d)  # type: ignore[attr-defined]
    assert isinstance(block, MATBlock)
    stage = FusedStage([block], torch.float16).to(DEVICE)
    packed: Any = stage.blocks[0]
    position = torch.randn(*size, 16).to(DEVICE)
    if job.kernel == "contract":
        hidden = torch.randn(*size, packed.gate.contract.matrix.shape[1]).to(DEVICE, torch.float16)
        return lambda: contract(features, hidden, packed.gate.contract, packed.before_self, position, packed.beta)  # type: ignore[return-value]
    cross = job.kernel == "cross"
    mixed = norm_project(features, packed.before_cross if cross else packed.before_self, position, packed.beta)
    return lambda: stage._attention(packed, features, position, mixed, cross=cross)


def build(job: Job, tiles: list[Tile], until: float) -> int:
    """Compile the job's kernel with some tiles; how many compiled. Timing the others says why they did not."""
    built = 0
    with torch.inference_mode():
        launch = prepare(job)
        for tile in tiles:
            if time.time() > until:
                break
            fused_rows.TUNED[job.kernel, job.channels] = tile
            try:
                with compiling_only():
                    launch()
                built += 1
            except Exception:
                continue
    return built


def try_tiles(job: Job, tiles: list[Tile], until: float) -> list[dict[str, Any]]:
    """Microseconds of a launch with each tile, or why there are none; ends early when the GPU no longer answers."""
    rows: list[dict[str, Any]] = []
    with torch.inference_mode():
        launch = prepare(job)
        fused_rows.TUNED.clear()
        expected = [part.float() for part in launch()]
        for tile in tiles:
            if time.time() > until:
                rows.append({"tile": tile, "failed": NO_TIME})
                continue
            fused_rows.TUNED[job.kernel, job.channels] = tile
            try:
                apart = difference(launch(), expected)
                if not apart < CLOSE:
                    rows.append({"tile": tile, "failed": f"differs by {apart:.3g} of the largest value"})
                    continue
                timing = measure_kernels(launch, DEVICE, 0.02)
                rows.append({"tile": tile, "us": 1e3 * timing.median_ms})
            except Exception as error:
                rows.append({"tile": tile, "failed": first_line(error)})
                if not answers():
                    break
    return rows


def difference(found: tuple[Tensor, ...], expected: list[Tensor]) -> float:
    """The largest, as a part of the largest value."""
    parts = [((f.float() - e).abs().max() / e.abs().max()).item() for f, e in zip(found, expected)]
    return max(parts) if all(part == part for part in parts) else float("nan")


def answers() -> bool:
    """Whether the GPU still works in this process: after an illegal access it does not."""
    try:
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


class Timer:
    """A process that tries tiles; a new one after one that was lost."""

    def __init__(self) -> None:
        self.pool = ProcessPoolExecutor(1, SPAWN)

    def measure(self, job: Job, until: float) -> list[dict[str, Any]]:
        """A row for every candidate of a job, the rule's first."""
        rows: list[dict[str, Any]] = []
        tiles = candidates(job)
        while len(rows) < len(tiles):
            left = tiles[len(rows) :]
            if time.time() > until:
                return [*rows, *({"tile": tile, "failed": NO_TIME} for tile in left)]
            try:
                rows += self.pool.submit(try_tiles, job, left, until).result()
            except Exception as error:
                rows.append({"tile": left[0], "failed": first_line(error)})
            if len(rows) < len(tiles):
                self.pool.shutdown()
                self.pool = ProcessPoolExecutor(1, SPAWN)
        return rows


def best_of(results: dict[Job, list[dict[str, Any]]]) -> dict[tuple[str, int], tuple[Tile, float, float]]:
    """For each kernel and width: the tile with the least time over a pass, that time and the rule's, in us."""
    chosen: dict[tuple[str, int], tuple[Tile, float, float]] = {}
    for key in dict.fromkeys((job.kernel, job.channels) for job in results):
        own = [job for job in results if (job.kernel, job.channels) == key]
        times = [{row["tile"]: job.launches * row["us"] for row in results[job] if "us" in row} for job in own]
        common = [tile for tile in times[0] if all(tile in others for others in times)]
        usual = [results[job][0] for job in own]
        if not common or not all("us" in row for row in usual):
            continue
        total = {tile: sum(others[tile] for others in times) for tile in common}
        tile = min(total, key=total.__getitem__)
        chosen[key] = (tile, total[tile], sum(job.launches * row["us"] for job, row in zip(own, usual)))
    return chosen


def show(job: Job, rows: list[dict[str, Any]]) -> None:
    """A job's line, and one for each tile that failed."""
    timed = sorted((row for row in rows if "us" in row), key=lambda row: row["us"])
    if timed and "us" in rows[0]:
        best = ", ".join(f"{tuple(row['tile'])} {row['us']:.2f}" for row in timed[:3])
        print(f"{job!s:36s} rule {tuple(rows[0]['tile'])} {rows[0]['us']:6.2f} us; best {best}", flush=True)
    for row in rows:
        if row.get("failed", NO_TIME) != NO_TIME:
            print(f"{job!s:36s} {tuple(row['tile'])} failed: {row['failed'][:160]}", flush=True)
    missing = sum(row.get("failed") == NO_TIME for row in rows)
    if missing:
        print(f"{job!s:36s} {missing} of {len(rows)} tiles left out: no time", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("tuning.json"))
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--workers", type=int, default=max(1, min(14, (os.cpu_count() or 1) - 1)))
    parser.add_argument("--only", default="", help="jobs whose name contains this")
    arguments = parser.parse_args()
    begin = time.time()
    until = begin + arguments.seconds
    wanted = [job for job in jobs() if arguments.only in str(job)]
    with ProcessPoolExecutor(arguments.workers, SPAWN) as pool:
        pieces = [(job, candidates(job)[first::4]) for job in wanted for first in range(4)]
        latest = begin + COMPILING * arguments.seconds
        compiling = [pool.submit(build, job, tiles, latest) for job, tiles in pieces]
        built = sum(future.result() for future in compiling if future.exception() is None)
    print(f"{built} of {sum(len(tiles) for _, tiles in pieces)} kernels compiled in {time.time() - begin:.0f} s",
          flush=True)  # fmt: skip
    results: dict[Job, list[dict[str, Any]]] = {}
    timer = Timer()
    for job in wanted:
        if time.time() > until:
            print(f"{job}: no time left")
            continue
        results[job] = timer.measure(job, until)
        show(job, results[job])
        with replacing(arguments.output) as temporary:
            temporary.write_text(json.dumps({str(job): rows for job, rows in results.items()}, indent=1) + "\n")
    timer.pool.shutdown()
    print("worth an entry in fused_rows.TUNED:")
    saved = 0.0
    for key, (tile, us, rule) in best_of(results).items():
        if us < WORTH * rule:
            saved += rule - us
            print(f"    {key!r}: {tile!r},  # {us:.0f} us a pass in place of {rule:.0f}".replace("'", '"'))
    print(f"saves {saved:.0f} us of a pass; {time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
