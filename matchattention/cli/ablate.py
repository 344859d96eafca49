"""`matchattention ablate`: the paper's ablation tables, every row under the same budget."""

from __future__ import annotations

import argparse
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matchattention.cli.sizes import parse_size
from matchattention.errors import InputError

if TYPE_CHECKING:
    from matchattention.ablation.budget import Budget
    from matchattention.ablation.results import Results
    from matchattention.ablation.rows import Row

PAGE = Path("docs") / "ablations.md"
EPILOG = """\
what:
  run      trains the rows that are missing and measures each on held-out rendered pairs (the usual)
  costs    parameters, FLOPs, time and memory of the rows, nothing trained
  page     writes the tables of the results into docs/ablations.md
  rows     lists the rows
  pack     writes the pairs of --real into one small file (--output) that needs no image library to read

examples:
  matchattention ablate --table 6 --seeds 1,2,3                     12 288 pairs for every row and seed
  matchattention ablate --table 6 --seeds 1,2 --minutes 1           a minute for each instead
  matchattention ablate --rows rt-dot,rt-1x8 --seeds 4,5,6          more seeds where differences are small
  matchattention ablate --table scenes --seeds 1,2,3                what each ingredient of the scenes is worth
  matchattention ablate --time-limit 570 --at-once 3                ends in time, three trainings take turns
  matchattention ablate page

Every row of a seed sees the same pairs in the same order. Each result is written when it is there; the same command
goes on where the file ends, also from a file of another machine (--resume).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.epilog = EPILOG
    parser.add_argument("what", nargs="?", default="run", choices=("run", "costs", "page", "rows", "pack"))
    which = parser.add_argument_group("which rows")
    which.add_argument("--table", default="6", help="6, 7, scenes or all (6); the baseline is always among them")
    which.add_argument("--rows", metavar="NAME,…", help="these rows instead of a table's")
    which.add_argument("--seeds", default="1,2,3", metavar="N,…", help="of weights and order, the same for all (1,2,3)")
    budget = parser.add_argument_group("budget of every training")
    budget.add_argument("--pairs", type=int, help="pairs it sees (12288, unless --minutes)")
    budget.add_argument("--minutes", type=float, help="time it has, instead of --pairs")
    budget.add_argument("--size", default="256x512", metavar="HxW", help="of the pairs, px (256x512)")
    budget.add_argument("--batch", type=int, default=16, help="pairs a step (16)")
    budget.add_argument("--pool", type=int, help="rendered pairs; also seen mirrored (half of --pairs, or 6144)")
    budget.add_argument("--held-out", type=int, default=48, help="pairs of each kind of scene to measure on (48)")
    budget.add_argument("--rate", type=float, default=8e-4, help="peak learning rate (8e-4)")
    budget.add_argument("--scenes", default="mixed", help="the renderer's preset (mixed)")
    budget.add_argument("--base", default="rt", help="the network that rows are variants of; tiny for a test (rt)")
    how = parser.add_argument_group("how")
    how.add_argument(
        "--real",
        action="append",
        default=[],
        metavar="NAME[/SPLIT]:PATH",
        help="real pairs to measure on, too: a dataset, or a file of `pack`; may come again",
    )
    how.add_argument("--time-limit", type=float, metavar="SECONDS", help="of the process; no training begins too late")
    how.add_argument("--at-once", type=int, default=1, help="trainings that take turns on one GPU (1)")
    how.add_argument(
        "--mode",
        choices=("graph", "capture", "compile", "eager"),
        default="capture",
        help="of a training step on a GPU; graph is fastest after minutes of compiling a row (capture)",
    )
    how.add_argument("--no-costs", action="store_true", help="leave parameters, FLOPs, time and memory out")
    how.add_argument("--cost-size", default="512x1024", metavar="HxW", help="image of the costs (512x1024)")
    how.add_argument("--pool-folder", type=Path, help="keeps rendered pairs for the next process")
    how.add_argument("--cache", type=Path, default=Path("runs/cache"), help="compile caches (runs/cache)")
    how.add_argument("--device", default="auto", help="auto, cpu or cuda")
    files = parser.add_argument_group("files")
    files.add_argument("--output", type=Path, help="results (benchmarks/results/ablations-DEVICE.json)")
    files.add_argument("--resume", type=Path, help="go on from this file, too")
    files.add_argument("--megabytes", type=float, default=13.0, help="largest file of `pack` (13)")
    files.add_argument("--page", type=Path, default=PAGE, help="of `page` (docs/ablations.md)")


def run(arguments: argparse.Namespace) -> None:
    """Do what is asked."""
    from matchattention.training.compilation import use_cache_folder

    if arguments.what == "rows":
        _list_rows()
        return
    if arguments.what == "page":
        _write_page(arguments)
        return
    if arguments.what == "pack":
        _pack(arguments)
        return
    use_cache_folder(arguments.cache)  # before torch compiles anything
    from matchattention.ablation.packed_pairs import read_any
    from matchattention.ablation.results import Results
    from matchattention.ablation.rows import choose_rows
    from matchattention.ablation.runner import Options, Runner, missing_jobs
    from matchattention.bench import report
    from matchattention.training.build import training_device
    from matchattention.training.distributed import Replicas

    say = functools.partial(print, flush=True)
    rows = choose_rows(arguments.table, arguments.rows.split(",") if arguments.rows else None)
    seeds = _seeds(arguments.seeds)
    budget = _budget(arguments)
    device = training_device(arguments.device, Replicas())
    real = read_any(arguments.real)
    output = arguments.output or report.path_of("ablations", device)
    results = Results(budget, [f"{pair.dataset}/{pair.name}" for pair in real])
    for path in (output, arguments.resume):
        if path is not None and (path.is_file() or path is arguments.resume):
            results.take_in(path)
    options = Options(output, arguments.at_once, arguments.mode, arguments.time_limit, arguments.pool_folder)
    runner = Runner(budget, options, results, real, device, say)
    if arguments.what == "costs" or not arguments.no_costs:
        _add_costs(rows, budget, results, output, device, parse_size(arguments.cost_size, "--cost-size"), say)
    if arguments.what == "costs":
        return
    jobs = missing_jobs(rows, seeds, results)
    say(f"{len(jobs)} trainings to do, {len(results.data['runs'])} there already")
    complete = runner.run(jobs)
    results.write(output)
    say(f"written: {output}" + ("" if complete else " (not complete: run it again to go on)"))


def _add_costs(
    rows: list[Row], budget: Budget, results: Results, output: Path, device: Any, size: tuple[int, int], say: Any
) -> None:
    from matchattention.ablation.costs import cost_of
    from matchattention.data.provenance import describe_environment

    for row in rows:
        if row.scenes or row.name in results.data["costs"]:
            continue
        cost = cost_of(row, budget.network(), device, size, say=say)
        results.data["costs"][row.name] = {**cost, "environment": describe_environment(str(device))}
        results.write(output)


def _budget(arguments: argparse.Namespace) -> Budget:
    from matchattention.ablation.budget import Budget
    from matchattention.synth.photos import photo_bank

    height, width = parse_size(arguments.size)
    pairs = arguments.pairs
    if pairs is None and arguments.minutes is None:
        pairs = 12288
    return Budget(
        base=arguments.base,
        scenes=arguments.scenes,
        height=height,
        width=width,
        batch=arguments.batch,
        pairs=pairs,
        minutes=arguments.minutes,
        pool=arguments.pool or (6144 if pairs is None else max(1, pairs // 2)),
        held_out=arguments.held_out,
        rate=arguments.rate,
        photos=photo_bank.ENVIRONMENT in os.environ or photo_bank.DEFAULT_PATH.is_file(),
    )


def _seeds(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--seeds takes whole numbers with commas between them, such as 1,2,3; got '{text}'."
        ) from None
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise InputError(f"--seeds are different whole numbers from 0 on; got '{text}'.")
    return seeds


def _list_rows() -> None:
    from matchattention.ablation.rows import ROWS

    for row in ROWS.values():
        print(f"{row.name:24} {row.group}: {row.words}")


def _pack(arguments: argparse.Namespace) -> None:
    from matchattention.ablation.packed_pairs import in_turn, read_any, write_pairs

    if not arguments.real or arguments.output is None:
        raise InputError("`pack` needs --real NAME:PATH and --output FILE.")
    names = write_pairs(arguments.output, in_turn(read_any(arguments.real)), int(arguments.megabytes * 2**20))
    print(f"written: {arguments.output}, {len(names)} pairs, {arguments.output.stat().st_size / 2**20:.1f} MiB")


def _write_page(arguments: argparse.Namespace) -> None:
    from matchattention.ablation.page import write_page
    from matchattention.ablation.results import read_results
    from matchattention.bench.report import RESULTS

    path = arguments.output
    if path is None:
        # Those of other budgets are for the figure error-over-pairs.
        found = [file for file in sorted(RESULTS.glob("ablations-*.json")) if not file.stem.endswith("-pairs")]
        path = found[0] if len(found) == 1 else None
        if len(found) > 1:
            names = ", ".join(str(file) for file in found)
            raise InputError(f"There are several results: choose one with --output ({names}).")
    write_page(arguments.page, None if path is None else read_results(path))
    print(f"written: {arguments.page}" + ("" if path else " (no results yet: it says so)"))
