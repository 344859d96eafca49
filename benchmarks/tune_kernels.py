"""Measure other cuts of the fused network's kernels, on the GPU that is here.

    python benchmarks/tune_kernels.py --output tune_kernels.json --seconds 100

RT's kernels at 1024x512 in fp16 are timed as they run: all blocks of a scale, captured and replayed with real inputs,
with one cut changed at a time. What is faster and computes the same is kept, and the next change starts from there. At
the end the whole network is timed with the present table (`runtime/fused/tiles.py`, and the constants in KNOBS) and
with the best one, each with and without kernels that begin while the one before them ends
(`ops/triton_overlap.py`), and the fields are compared. It prints what the table should then say: paste it, set
OVERLAP, run `make test-kernels`, and delete what lost: `Tile.apart` where no row has it, OVERLAP where it does not pay.

Kernels are compiled first, side by side in processes; Triton's cache (TRITON_CACHE_DIR) keeps them, so that --compile
may do it before, on a machine without a GPU but with the same Triton:

    TRITON_CACHE_DIR=output/tuned TRITON_STORE_BINARY_ONLY=1 python benchmarks/tune_kernels.py --compile

A change that fails is recorded and left out, also where it takes the process along: timing has one of its own, which is
started again behind it. --rehearse does all that with a small network in Triton's interpreter, where times mean
nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
if "--rehearse" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch import Tensor

from matchattention.data.provenance import describe_environment
from matchattention.errors import first_line
from matchattention.models.network import MatchNetwork
from matchattention.models.registry import NETWORKS
from matchattention.ops import triton_depthwise, triton_overlap
from matchattention.runtime import packing
from matchattention.runtime.fused import tiles
from matchattention.runtime.fused.network import FusedNetwork
from matchattention.runtime.fused.tiles import EACH, TILES, Tile
from matchattention.runtime.kernels import transport

SHAPE = (1, 3, 512, 1024)
# What a change must gain to be kept, and how far the results of a scale may then lie apart, in standard deviations.
LEAST_GAIN = 0.004
TOLERANCE = 0.05
RESTARTS = 4
LEAST_TIMING_S = 45.0  # also when compiling took longer than thought
PATIENCE_S = 25.0  # for one change; a kernel that never ends is ended

KNOBS: dict[str, tuple[Any, str]] = {
    "depthwise rows": (triton_depthwise, "ROWS"),
    "depthwise row elements": (triton_depthwise, "ROW_ELEMENTS"),
    "transport warps": (transport, "NARROW_WARPS"),
    "enough programs": (tiles, "ENOUGH_PROGRAMS"),
    "convex with logits": (packing, "WITH_LOGITS"),
    "convex without": (packing, "WITHOUT"),
}
State = dict[str, Any]  # by "kernel width" or by a knob's name


class Move(NamedTuple):
    """A change of some entries, and where its time is taken: a scale such as "1/32", "convex" or "network"."""

    place: str
    change: State

    def __str__(self) -> str:
        return f"{self.place} " + ", ".join(f"{name} {_short(value)}" for name, value in self.change.items())


def _short(value: Any) -> str:
    if not isinstance(value, Tile):
        return str(value)
    usual = Tile(-1, -1, -1)._asdict()
    given = {name: of for name, of in value._asdict().items() if of != usual[name]}
    given |= {"shares": "EACH"} if value.shares == EACH else {}
    first = ", ".join(str(given.pop(name)) for name in ("tokens", "columns", "warps"))
    return f"Tile({', '.join([first, *(f'{name}={of}' for name, of in given.items())])})"


def present() -> State:
    """The table and the knobs as they are."""
    tiles = {f"{kernel} {width}": tile for kernel, row in TILES.items() for width, tile in row.items()}
    return tiles | {name: getattr(module, attribute) for name, (module, attribute) in KNOBS.items()}


def use(state: State) -> None:
    """Make them so."""
    for name, value in state.items():
        if name in KNOBS:
            module, attribute = KNOBS[name]
            setattr(module, attribute, value)
        else:
            kernel, width = name.split()
            TILES[kernel][int(width)] = value


def moves() -> list[Move]:
    """All changes, in the order in which they are tried."""
    found: list[Move] = []

    def each(place: str, names: str, cuts: list[Tile]) -> None:
        width = {"1/4": 32, "1/8": 64, "1/16": 128, "1/32": 256}[place]
        for name in names.split():
            found.extend(Move(place, {f"{name} {width}": tile}) for tile in cuts)

    def together(place: str, project: Tile, contract: Tile, attend: Tile) -> None:
        width = {"1/16": 128, "1/32": 256}[place]
        change = {"project": project, "contract": contract, "self": attend, "cross": attend}
        found.append(Move(place, {f"{name} {width}": tile for name, tile in change.items()}))

    # Few programs of few tokens: each reads all matrices. More tokens, columns divided, launches apart.
    together("1/32", Tile(64, 64, 4, EACH), Tile(32, 64, 4, apart=True), Tile(16, 64, 4, apart=True))
    each("1/32", "project", [Tile(64, 64, 8, EACH), Tile(32, 64, 4, EACH)])
    each("1/32", "project", [Tile(32, 64, 8, EACH), Tile(32, 128, 8, EACH), Tile(64, 32, 4, EACH)])
    each("1/32", "contract", [Tile(32, 64, 4, apart=True, rows=128), Tile(64, 64, 4, apart=True)])
    each("1/32", "contract", [Tile(32, 32, 4, apart=True, rows=128), Tile(16, 64, 4, apart=True, rows=128)])
    each("1/32", "self cross", [Tile(16, 64, 8, apart=True), Tile(32, 64, 8, apart=True)])
    each("1/32", "self cross", [Tile(16, 64, 8, 4), Tile(32, 64, 8, 8, stages=2)])
    each("1/32", "contract", [Tile(16, 64, 8), Tile(16, 64, 8, shares=2)])
    found.append(Move("1/32", {"transport warps": 2}))

    each("1/16", "self cross", [Tile(16, 64, 4, 4), Tile(32, 64, 8, 4), Tile(64, 64, 8, 4)])
    each("1/16", "contract", [Tile(32, 64, 8), Tile(16, 64, 4), Tile(32, 64, 4, rows=128), Tile(32, 128, 8)])
    together("1/16", Tile(64, 64, 4, EACH), Tile(64, 64, 4, apart=True), Tile(32, 64, 4, apart=True))
    each("1/16", "project", [Tile(64, 128, 8, EACH), Tile(32, 64, 4, EACH), Tile(64, 64, 8, EACH)])
    each("1/16", "contract", [Tile(32, 64, 4, apart=True), Tile(64, 64, 8, apart=True), Tile(32, 64, 4)])
    each("1/16", "self cross", [Tile(16, 64, 4, apart=True), Tile(32, 64, 8, apart=True), Tile(32, 64, 4, 4)])

    each("1/8", "self cross", [Tile(32, 64, 4), Tile(32, 64, 2), Tile(64, 64, 8), Tile(16, 64, 2)])
    each("1/8", "contract", [Tile(32, 64, 4), Tile(64, 64, 8), Tile(64, 128, 4), Tile(128, 64, 8)])
    each("1/4", "self cross", [Tile(32, 64, 4), Tile(32, 64, 2), Tile(64, 64, 8), Tile(128, 64, 8)])
    each("1/4", "contract", [Tile(64, 64, 8), Tile(128, 64, 8), Tile(64, 64, 2)])

    found += [Move("convex", {"convex with logits": cut}) for cut in ((32, 4), (32, 8), (64, 16))]
    found += [Move("convex", {"convex without": cut}) for cut in ((32, 2), (64, 4), (64, 2), (128, 4))]
    found += [Move("network", {"depthwise rows": rows}) for rows in (2, 8)]
    found.append(Move("network", {"depthwise row elements": 256}))
    found.append(Move("network", {"enough programs": 512}))
    return found


Chain = Callable[[], tuple[Tensor, ...]]


def chains(network: FusedNetwork, image0: Tensor, image1: Tensor) -> dict[str, Chain]:
    """What is timed, with the inputs of one pass: all blocks of each scale, the ways up, and the whole network."""
    seen: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
    hooks = []

    def note(module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        seen.append((functools.partial(module, **named), given))

    for module in (network.context, network.initial, *network.stages, *network.convexes):
        hooks.append(module.register_forward_pre_hook(note, with_kwargs=True))
    stage_of_encoder = network.encoder._stage

    def record(*given: Any) -> Any:
        seen.append((stage_of_encoder, given))
        return stage_of_encoder(*given)

    network.encoder._stage = record  # type: ignore[method-assign]
    try:
        network(image0, image1)
    finally:
        del network.encoder._stage
        for hook in hooks:
            hook.remove()
    names = ["1/4", "1/8", "1/16", "1/32", "1/32", "1/32"]  # the encoder's stages, context, initial estimate
    for scale in ("1/32", "1/16", "1/8", "1/4"):
        names += [scale, "convex"]
    parts: dict[str, list[Any]] = {}
    for name, part in zip(names, seen, strict=True):
        parts.setdefault(name, []).append(part)
    return {
        **{name: lambda own=own: _run(own) for name, own in parts.items()},  # type: ignore[misc]
        "network": lambda: (network(image0, image1),),
    }


def _run(parts: list[Any]) -> tuple[Tensor, ...]:
    results: list[Tensor] = []
    for function, given in parts:
        made = function(*given)
        results.extend(t for t in (made if isinstance(made, tuple) else (made,)) if t is not None)
    return tuple(results)


def config_of(rehearse: bool) -> Any:
    config = NETWORKS["rt"].config
    if not rehearse:
        return config
    return replace(config, encoder_depths=(1, 1, 1, 1), decoder_depths=(1, 1, 1, 1), initial_layers=1)


def compile_all(capability: int) -> int:
    """Compile what the changes need, as far as it does not depend on what was kept before; how many kernels."""
    from matchattention.runtime.compiling import compile_ahead, standing_in_for

    triton_overlap.OVERLAP = True
    with torch.device("meta"), torch.inference_mode():
        network = FusedNetwork(MatchNetwork(config_of(False)), torch.float16)
        image = torch.empty(SHAPE, dtype=torch.uint8)
    first = present()
    base: dict[str, State] = {}  # of a place, what its several changes at once make of it

    def run() -> None:
        with torch.inference_mode(), standing_in_for(capability):
            made = chains(network, image, image)
            for move in moves():
                if len(move.change) > 1:
                    base[move.place] = move.change
                use({**first, **base.get(move.place, {}), **move.change})
                made[move.place]()

    count = compile_ahead(run, capability)
    use(first)
    return count


# Timing


@contextlib.contextmanager
def switchable() -> Iterator[Callable[[bool], None]]:
    """Kernels that may overlap, launched so or not: they are the same, only the launch differs."""
    from triton.backends.nvidia.driver import CudaLauncher

    on = [False]
    CudaLauncher.launch_pdl = property(lambda self: on[0], lambda self, value: None)
    yield lambda value: on.__setitem__(0, value)


def timed(run: Chain) -> tuple[float, tuple[Tensor, ...]]:
    """Microseconds of one replay of a captured chain, the best of several groups; and what the last one computed."""
    if not torch.cuda.is_available():
        begin = time.perf_counter()
        made = run()
        return 1e6 * (time.perf_counter() - begin), made
    from matchattention.runtime.graph import capture

    graph, made = capture(run)
    graph.replay()
    times = []
    for _ in range(6):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(8):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 8 * 1e3)
    return min(times), tuple(tensor.clone() for tensor in made)


def apart(found: tuple[Tensor, ...], usual: tuple[Tensor, ...]) -> float:
    """How far two results lie apart: the mean, in standard deviations, of the tensor that differs most."""
    worst = 0.0
    for one, other in zip(found, usual, strict=True):
        difference = (one.float() - other.float()).abs().mean() / (other.float().std() + 1e-6)
        worst = max(worst, float(difference)) if bool(difference == difference) else float("inf")
    return worst


class Notes:
    """What was found so far, kept in a file after each step, for who goes on behind a failure."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"moves": {}, "whole": {}}

    def save(self) -> None:
        self.path.write_text(json.dumps(self.found, indent=1) + "\n")


@torch.inference_mode()
def climb(notes: Notes, until: float, rehearse: bool, most: int | None) -> None:
    """Try all moves that no note speaks of; then time the whole network before and after."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.float32 if rehearse else torch.float16
    triton_overlap.OVERLAP = True
    if rehearse:
        torch.manual_seed(0)
        model, image0, image1 = MatchNetwork(config_of(True)), *torch.randint(0, 256, (2, 1, 3, 32, 64)).byte()
        model = model.eval()
    else:
        from matchattention.bench.network import load_or_create
        from matchattention.bench.scenes import image_pair

        model, _ = load_or_create("rt")
        image0, image1, _ = (t.to(torch.uint8) if t is not None else t for t in image_pair(*SHAPE[2:], device))
    network: Any = FusedNetwork(model.eval(), dtype).to(device)
    notes.found["environment"] = describe_environment(str(device))
    with switchable() as overlap:
        found = chains(network, image0.to(device), image1.to(device))
        usual = {name: tuple(t.clone() for t in run()) for name, run in found.items()}
        first = present()
        state, times = dict(first), {name: timed(run)[0] for name, run in found.items()}
        print("present: " + ", ".join(f"{name} {us:.1f} us" for name, us in times.items()), flush=True)
        for move in moves()[:most]:
            note = notes.found["moves"].get(str(move))
            if note is None and time.time() < until - 12:
                notes.found["moves"][str(move)] = {"failed": "the process ended"}
                notes.save()
                note = try_move(move, state, found, usual)
                notes.found["moves"][str(move)] = note
                print(line_of(move, note, times[move.place]), flush=True)
                faster = note.get("us", float("inf")) < (1 - LEAST_GAIN) * times[move.place]
                note["kept"] = faster and note["apart"] <= TOLERANCE
                notes.save()
            if note is not None and note.get("kept"):
                state, times[move.place] = {**state, **move.change}, note["us"]
        changed = [name for name, value in state.items() if value != first[name]]
        notes.found["best"] = {name: {"is": _short(first[name]), "better": _short(state[name])} for name in changed}
        notes.save()
        whole(notes, found["network"], usual["network"], first, state, overlap)


def try_move(move: Move, state: State, found: dict[str, Chain], usual: dict[str, Any]) -> dict[str, Any]:
    """Its time and distance from the present kernels' result, beside what was kept so far; or why there is none."""
    begin = time.time()
    use({**state, **move.change})
    try:
        us, made = timed(found[move.place])
        return {"us": us, "apart": apart(made, usual[move.place]), "seconds": round(time.time() - begin, 2)}
    except Exception as error:
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # raises where the context is gone: the next process goes on
        return {"failed": first_line(error)}
    finally:
        use(state)


def whole(
    notes: Notes, run: Chain, usual: tuple[Tensor, ...], first: State, best: State, overlap: Callable[[bool], None]
) -> None:
    """The whole network in four ways, twice each."""
    for turn in range(2):
        for name, state in (("present", first), ("best", best)):
            for overlaps in (False, True):
                label = f"{name}, overlapping" if overlaps else name
                row = notes.found["whole"].setdefault(label, {})
                if "failed" in row:
                    continue
                row["failed"] = "the process ended"
                notes.save()
                use(state)
                overlap(overlaps)
                try:
                    row[f"us_{turn}"], made = timed(run)
                    difference = (made[0] - usual[0]).abs()
                    row["mean_px"], row["max_px"] = float(difference.mean()), float(difference.max())
                    del row["failed"]
                except Exception as error:
                    row["failed"] = first_line(error)
                finally:
                    overlap(False)
                    use(first)
                notes.save()
                print(f"{label:20s} {json.dumps(row)}", flush=True)


def line_of(move: Move, note: dict[str, Any], before: float) -> str:
    if "failed" in note:
        return f"failed: {note['failed']}  {move}"
    return f"{note['us']:8.1f} us, {note['us'] - before:+7.1f}, {note['apart']:.1e} apart  {move}"


def follow(command: list[str], notes_path: Path, until: float, patience: float = PATIENCE_S) -> None:
    """Run the process that times; start it again where it ended or stands still, behind the step that did that."""
    for _ in range(RESTARTS):
        process = subprocess.Popen(command)
        begin = time.time()
        while process.poll() is None and time.time() < until:
            time.sleep(0.2)
            last = max(notes_path.stat().st_mtime if notes_path.exists() else 0.0, begin + patience)
            if time.time() - last > patience:
                break
        if process.poll() == 0:
            return
        process.kill()
        process.wait()
        if time.time() > until:
            return
        print("starting again behind what failed", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("tune_kernels.json"))
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--compile", action="store_true", help="fill Triton's cache, for an H100 or H200, and stop")
    parser.add_argument("--rehearse", action="store_true", help="a small network in Triton's interpreter")
    parser.add_argument("--most", type=int, help="changes that are tried")
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.until is not None:
        climb(Notes(arguments.output), arguments.until, arguments.rehearse, arguments.most)
        return
    until = time.time() + arguments.seconds
    if not arguments.rehearse:
        major, minor = torch.cuda.get_device_capability() if torch.cuda.is_available() else (9, 0)
        begin = time.time()
        print(f"{compile_all(10 * major + minor)} kernels compiled in {time.time() - begin:.0f} s", flush=True)
        if arguments.compile:
            return
    until = max(until, time.time() + LEAST_TIMING_S)
    arguments.output.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--output", str(arguments.output), "--until", str(until)]
    command += ["--rehearse"] * arguments.rehearse
    command += [] if arguments.most is None else ["--most", str(arguments.most)]
    follow(command, arguments.output, until, 20 * PATIENCE_S if arguments.rehearse else PATIENCE_S)
    print("What the table should say:")
    for name, row in Notes(arguments.output).found.get("best", {}).items():
        print(f"  {name}: {row['better']} (is {row['is']})")


if __name__ == "__main__":
    main()
