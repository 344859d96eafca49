"""Time the operator's kernels for wide heads with other cuts, on the GPU that is here.

    python benchmarks/operator_tuning.py --output operator_tuning.json --seconds 60

At the paper's table S3 (4 heads of 64 channels, 4x4 window, fp32, smooth positions) it times every candidate cut of the
forward kernel, and of the backward pass the coefficients, the sort and the gathering apart, beside the floor of their
bytes; each is compared with the reference at a small size first. It prints the constants of `triton_tiles` that would
be fastest. Kernels are compiled side by side in processes that need no GPU, then timed one after the other. No
candidate is timed after --seconds. Where there is no GPU it only compiles, for an H100 or H200.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matchattention.bench.operator import bytes_of, inputs_of, table_s3
from matchattention.bench.timing import copy_bandwidth, measure
from matchattention.errors import first_line
from matchattention.ops.match_attention import triton_tiles
from matchattention.ops.match_attention.reference import match_attention_reference
from matchattention.ops.match_attention.triton_backward import backward, coefficients_of
from matchattention.ops.match_attention.triton_forward import forward
from matchattention.ops.match_attention.triton_gather import collect, sorted_by_start
from matchattention.ops.match_attention.triton_tiles import WideCut

WINDOW = (4, 4)
PARTS = {"forward": "FORWARD_CUT", "coefficients": "COEFFICIENTS_CUT", "gather": "GATHER_CUT"}


class Candidate(NamedTuple):
    """One part of the operator with one cut."""

    part: str
    cut: WideCut

    def use(self) -> None:
        """Make it the operator's own, on a small map as on a large one."""
        setattr(triton_tiles, PARTS[self.part], self.cut)
        triton_tiles.WANTED_PROGRAMS = 0

    def __str__(self) -> str:
        usual = WideCut(0, 0)
        given = {name: value for name, value in asdict(self.cut).items() if value != getattr(usual, name)}
        return f"WideCut({', '.join(f'{name}={value}' for name, value in given.items())})"


def candidates() -> list[Candidate]:
    """For each part today's cut first, then those that differ from it in ways that belong together."""
    shapes = [WideCut(128, threads) for threads in (128, 256, 512)]
    shapes += [WideCut(64, threads) for threads in (128, 256)]
    shapes += [WideCut(32, threads) for threads in (64, 128, 256)]
    shapes += [WideCut(256, 256), WideCut(128, 128, queries_per_thread=2), WideCut(128, 256, queries_per_thread=2)]
    forward_cuts = [triton_tiles.FORWARD_CUT, *shapes]
    forward_cuts += [WideCut(128, 256, band=band) for band in (64, 1 << 20)]
    forward_cuts += [WideCut(128, 256, heads_in_turn=4), WideCut(128, 256, heads_in_turn=4, most_registers=64)]
    forward_cuts += [WideCut(64, 256, heads_in_turn=4), WideCut(64, 256, most_registers=64)]
    coefficient_cuts = [triton_tiles.COEFFICIENTS_CUT, *shapes[:-1]]
    coefficient_cuts += [WideCut(128, 256, most_registers=registers) for registers in (80, 96)]
    coefficient_cuts += [WideCut(64, 256, most_registers=registers) for registers in (80, 96)]
    coefficient_cuts += [WideCut(128, 256, band=1 << 20)]
    gather_cuts = [triton_tiles.GATHER_CUT]
    gather_cuts += [WideCut(128, threads, queries_at_once=n) for threads in (128, 256) for n in (1, 2, 4)]
    for threads in (64, 128):
        gather_cuts += [WideCut(64, threads, queries_at_once=n) for n in (1, 2)]
    gather_cuts += [WideCut(128, 512), WideCut(128, 64), WideCut(256, 256)]
    found = [Candidate("forward", cut) for cut in forward_cuts]
    found += [Candidate("coefficients", cut) for cut in coefficient_cuts]
    found += [Candidate("gather", cut) for cut in gather_cuts]
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Sample:
    """Inputs of all parts: of the gathering, what the parts before it leave."""

    tensors: list[Tensor]
    grad_out: Tensor
    grad_weights: Tensor
    coefficients: Tensor
    sorted_starts: Tensor
    order: Tensor
    first: Tensor

    def launch(self, part: str) -> Callable[[], Any]:
        """One part of the operator on these inputs."""
        q, k, v, position = self.tensors
        if part == "forward":
            return lambda: forward(q, k, v, position, WINDOW, False, True)
        if part == "coefficients":
            return lambda: coefficients_of(self.grad_out, self.grad_weights, q, k, v, position, WINDOW, False)
        return lambda: collect(
            q, k, v, self.grad_out, self.coefficients, self.sorted_starts, self.order, self.first, WINDOW, False, False
        )

    def bytes_moved(self, part: str) -> int:
        """What a part reads and writes once."""
        q, k, v, position = self.tensors
        if part == "forward":
            return bytes_of(q, k, v, position, v, self.grad_weights)
        if part == "coefficients":
            return bytes_of(q, k, v, self.grad_out, self.grad_weights, position, q, self.coefficients, self.first)
        return bytes_of(q, k, self.grad_out, self.coefficients, self.order, self.sorted_starts, self.first, k, v)


def sample(side: int, device: torch.device) -> Sample:
    """Real inputs."""
    tensors = inputs_of(table_s3(side), device)
    q, k, v, position = tensors
    grad_out = torch.randn_like(v)
    grad_weights = torch.randn((*q.shape[:4], 16), device=device)
    _, _, coefficients, start = coefficients_of(grad_out, grad_weights, q, k, v, position, WINDOW, False)
    return Sample(tensors, grad_out, grad_weights, coefficients, *sorted_by_start(start))


def blank_sample(side: int) -> Sample:
    """Tensors of the same shapes that nobody fills: enough to compile for."""
    size = (1, side, side, 4)
    q, k, v, grad_out = (torch.empty(*size, 64) for _ in range(4))
    tokens = side * side
    return Sample(
        [q, k, v, torch.empty(1, side, side, 1, 2)], grad_out, torch.empty(*size, 16), torch.empty(*size, 16, 2),
        torch.empty(tokens, dtype=torch.int32), torch.empty(tokens, dtype=torch.int64),
        torch.empty(tokens + 1, dtype=torch.int32),
    )  # fmt: skip


def build(chosen: list[Candidate], capability: int, side: int, until: float) -> dict[Candidate, dict[str, Any]]:
    """Compile kernels into Triton's cache without a GPU; what the compiler says of each."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    class Absent:
        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", capability, 32)

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: Any = None) -> int:
            return 0

    driver.set_active(Absent())
    launch, facts = JITFunction.run, {}
    current: dict[str, Any] = {}

    def compile_instead(self: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> None:
        begin = time.perf_counter()
        kernel = launch(self, *args, grid=grid, warmup=True, **named)
        current.update(shared=kernel.metadata.shared, seconds=time.perf_counter() - begin)

    JITFunction.run = compile_instead  # type: ignore[method-assign]
    blank = blank_sample(side)
    for candidate in chosen:
        if time.time() > until:
            break
        candidate.use()
        current = {}
        try:
            blank.launch(candidate.part)()
        except Exception as error:
            current["failed"] = first_line(error)
        facts[candidate] = current
    return facts


class Exact:
    """The reference at a small size, by which every candidate is checked."""

    def __init__(self, side: int, device: torch.device) -> None:
        self.sample = sample(side, device)
        leaves = [t.double().requires_grad_() for t in self.sample.tensors]
        q, k, v, position = leaves
        out, weights = match_attention_reference(q, k, v, position, WINDOW, "l1")
        assert weights is not None
        cotangents = [self.sample.grad_out.double(), self.sample.grad_weights.double()]
        self.grads = torch.autograd.grad([out, weights], leaves, cotangents)
        self.outputs = (out.detach(), weights.detach())

    def error(self, part: str) -> float:
        """Greatest difference of the operator's results, in parts of the greatest value of each."""
        q, k, v, position = self.sample.tensors
        if part == "forward":
            pairs = zip(forward(q, k, v, position, WINDOW, False, True), self.outputs)
        else:
            given = (self.sample.grad_out, self.sample.grad_weights)
            pairs = zip(backward(*given, q, k, v, position, WINDOW, False, atomic=False), self.grads)
        return max(((f.double() - e).abs().max() / e.abs().max()).item() for f, e in pairs)


def time_candidates(
    chosen: list[Candidate],
    facts: dict[Candidate, dict[str, Any]],
    sides: list[int],
    device: torch.device,
    bandwidth: float,
    until: float,
    small: int = 128,
) -> list[dict[str, Any]]:
    """Milliseconds of every candidate at every side, and how far it is from the reference at a small one."""
    usual = {part: getattr(triton_tiles, name) for part, name in PARTS.items()}
    exact = Exact(small, device)
    samples = {side: sample(side, device) for side in sides}
    rows: list[dict[str, Any]] = []
    for candidate in chosen:
        if time.time() > until:
            break
        candidate.use()
        row: dict[str, Any] = {"part": candidate.part, "cut": str(candidate), **facts.get(candidate, {})}
        try:
            row["error"] = exact.error(candidate.part)
            for side, its in samples.items():
                ms = measure(its.launch(candidate.part), device, 0.03).median_ms
                row[f"ms_{side}"] = ms
                row[f"over_floor_{side}"] = ms / (1e3 * its.bytes_moved(candidate.part) / bandwidth)
        except Exception as error:
            row["failed"] = first_line(error)
        rows.append(row)
        print(line_of(row, sides), flush=True)
        for part, name in PARTS.items():
            setattr(triton_tiles, name, usual[part])
    return rows


def line_of(row: dict[str, Any], sides: list[int]) -> str:
    """One line of the table."""
    if "failed" in row:
        return f"{row['part']:13s} failed: {row['failed']}  {row['cut']}"
    times = "  ".join(f"{row[f'ms_{side}']:8.3f} ms {row[f'over_floor_{side}']:5.2f}x" for side in sides)
    return f"{row['part']:13s} {times}  error {row['error']:.0e}  {row['cut']}"


def whole(sides: list[int], device: torch.device) -> dict[str, float]:
    """Milliseconds of what has no cut: the sort; and of the whole backward pass, as it is set now."""
    found = {}
    for side in sides:
        its = sample(side, device)
        q, k, v, position = its.tensors
        start = its.sorted_starts[torch.randperm(its.sorted_starts.numel(), device=device)]
        found[f"sort_{side}"] = measure(functools.partial(sorted_by_start, start), device, 0.03).median_ms
        call = (q, k, v, position, WINDOW, False)
        found[f"backward_{side}"] = measure(
            functools.partial(backward, its.grad_out, its.grad_weights, *call), device, 0.1
        ).median_ms
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("operator_tuning.json"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--sides", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--workers", type=int, default=max(1, min(16, os.cpu_count() or 1)))
    parser.add_argument("--only", choices=tuple(PARTS), help="one part of the operator")
    arguments = parser.parse_args()
    begin = time.time()
    chosen = [c for c in candidates() if arguments.only in (None, c.part)]
    present = torch.cuda.is_available()
    major, minor = torch.cuda.get_device_capability() if present else (9, 0)
    facts: dict[Candidate, dict[str, Any]] = {}
    with ProcessPoolExecutor(arguments.workers, multiprocessing.get_context("spawn")) as pool:
        share = (10 * major + minor, max(arguments.sides), begin + 0.6 * arguments.seconds)
        futures = [pool.submit(build, chosen[i :: arguments.workers], *share) for i in range(arguments.workers)]
        for future in futures:
            facts.update(future.result())
    failed = {str(candidate): fact["failed"] for candidate, fact in facts.items() if "failed" in fact}
    print(f"{len(facts) - len(failed)} kernels compiled in {time.time() - begin:.0f} s {failed or ''}", flush=True)
    if not present:
        return
    device = torch.device("cuda")
    bandwidth = copy_bandwidth(device)
    rows = time_candidates(chosen, facts, arguments.sides, device, bandwidth, begin + 0.9 * arguments.seconds)
    largest = max(arguments.sides)
    print("fastest:")
    for part, name in PARTS.items():
        timed = [row for row in rows if row["part"] == part and f"ms_{largest}" in row]
        if timed:
            best = min(timed, key=lambda row: row[f"ms_{largest}"])
            print(f"    {name} = {best['cut']}  # {best[f'ms_{largest}']:.3f} ms, today's "
                  f"{timed[0][f'ms_{largest}']:.3f} ms")  # fmt: skip
            next(c for c in chosen if c.part == part and str(c) == best["cut"]).use()
    together = whole(arguments.sides, device)
    print("with these: " + ", ".join(f"{name} {ms:.3f} ms" for name, ms in together.items()))
    report = {"copy_bandwidth_bytes_per_s": bandwidth, "candidates": rows, "fastest_together_ms": together}
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
