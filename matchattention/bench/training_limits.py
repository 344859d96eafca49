"""How large a batch trains on this GPU, with and without activation checkpointing, and how fast."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

from matchattention.bench.timing import forget_peak, measure, peak_bytes
from matchattention.bench.training import example_batch
from matchattention.errors import first_line
from matchattention.models.config import NetworkConfig
from matchattention.models.registry import NETWORKS, create_model
from matchattention.runtime.memory import ran_out_of_memory
from matchattention.training.batch_norms import insert
from matchattention.training.build import use_fast_arithmetic
from matchattention.training.losses import LossConfig
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.plan import footprint
from matchattention.training.recomputation import recompute_blocks
from matchattention.training.step import Mode, TrainingStep


def largest(fits: Callable[[int], bool], start: int, most: int) -> int:
    """The largest number up to ``most`` that fits, asking few times; 0 when not even one does.

    Args:
        fits: Whether a number does; what is larger than one that does not, does not either.
        start: A guess.
        most: Where to stop.
    """
    low, high, guess = 0, most + 1, min(max(start, 1), most)
    while high - low > 1:
        if fits(guess):
            low = guess
        else:
            high = guess
        doubled = min(2 * low, most) if high > most else (low + high) // 2
        guess = max(doubled, low + 1)
        if high - low <= max(low // 16, 1):  # closer than a sixteenth is of no use to anybody
            break
    return low


def one_step(
    device: torch.device,
    config: NetworkConfig,
    shape: tuple[int, int],
    pairs: int,
    recompute: bool,
    mode: Mode,
    seconds: float,
) -> dict[str, Any]:
    """Pairs a second and memory of a training step; raises what PyTorch raises when memory runs out."""
    forget_peak(device)
    torch.manual_seed(0)
    with device:  # a CPU takes ten seconds for XL's random weights, at every batch size
        model = create_model(config).train()
    insert(model)
    if recompute:
        recompute_blocks(model)
    step = TrainingStep(
        model,
        Updater(model, OptimizerConfig()),
        LossConfig(),
        mixed_precision=device.type == "cuda",
    )
    batch = example_batch(pairs, *shape, device)
    reached = step.prepare(batch, mode)

    def run() -> None:
        step(batch, 1e-5, 0)
        if step.finished is not None:
            torch.cuda.current_stream().wait_event(step.finished)

    timing = measure(run, device, seconds, least=3)
    return {
        "batch": pairs,
        "mode": reached,
        "median_ms": timing.median_ms,
        "pairs_per_second": pairs / timing.median_ms * 1e3,
        "peak_bytes": max(peak_bytes(device) or 0, timing.peak_bytes or 0) or None,
    }


def bench_limits(
    device: torch.device,
    names: list[str],
    shapes: list[tuple[int, int]],
    *,
    most: int = 256,
    mode: Mode = "eager",
    seconds: float = 2.0,
    memory: int | None = None,
    say: Callable[[str], None] = print,
    keep: Callable[[dict[str, Any]], object] = lambda results: None,
) -> dict[str, Any]:
    """Largest batch, pairs/s and memory of each network and crop, activations kept and recomputed.

    Args:
        device: Where.
        names: Of registered networks.
        shapes: (H, W) of the crops, px.
        most: Largest batch to try.
        mode: Of the step; "capture" measures what a long training gets and takes longer to prepare.
        seconds: Measuring time of a batch.
        memory: Bytes of the device, for the first guess; None to ask it.
        say: Takes lines of progress.
        keep: Takes the results so far after each case.
    """
    if device.type == "cuda":
        use_fast_arithmetic()
        memory = torch.cuda.get_device_properties(device).total_memory if memory is None else memory
    cases: list[dict[str, Any]] = []
    results = {"cases": cases}
    for name in names:
        config = NETWORKS[name].config
        for shape in shapes:
            planned = footprint(config, *shape)
            for recompute in (False, True):
                best: dict[int, dict[str, Any]] = {}

                def fits(pairs: int, *, best=best, config=config, shape=shape, recompute=recompute) -> bool:  # type: ignore[no-untyped-def]
                    try:
                        best[pairs] = one_step(device, config, shape, pairs, recompute, mode, seconds)
                        return True
                    except (RuntimeError, MemoryError) as error:
                        if not ran_out_of_memory(error):
                            raise
                        return False
                    finally:
                        gc.collect()  # recomputed blocks and their stand-ins hold each other, and all of their memory
                        if device.type == "cuda":
                            torch.cuda.empty_cache()

                room = (memory or 0) - planned.memory(0)
                guess = int(0.85 * room / (planned.memory(1, recompute) - planned.memory(0))) if memory else 1
                case: dict[str, Any] = {
                    "network": name,
                    "crop": list(shape),
                    "recompute": recompute,
                    "parameters": planned.parameters,
                }
                try:
                    batch = largest(fits, max(guess, 1), most)
                    found = best.get(batch, {})
                    fastest = max(best.values(), key=lambda one: one["pairs_per_second"], default={})
                    flops = planned.step_flops(1, recompute)
                    case |= {
                        "largest": found,
                        "fastest": fastest,
                        "planned_bytes": planned.memory(batch, recompute),
                        "flops_a_pair": flops,
                        "tflops": flops * fastest.get("pairs_per_second", 0) / 1e12,
                    }
                    say(f"{name} {shape[0]}x{shape[1]} recompute={recompute}: {json_line(case)}")
                except Exception as error:
                    case["failed"] = first_line(error)
                    say(f"{name} {shape[0]}x{shape[1]} recompute={recompute}: failed, {case['failed']}")
                cases.append(case)
                keep(results)
    return results


def json_line(case: dict[str, Any]) -> str:
    """A case in a line for people."""
    largest_, fastest = case["largest"], case["fastest"]
    gib = (largest_.get("peak_bytes") or 0) / 2**30
    return (
        f"largest batch {largest_.get('batch', 0)} ({gib:.1f} GiB, planned {case['planned_bytes'] / 2**30:.1f}), "
        f"fastest {fastest.get('pairs_per_second', 0):.1f} pairs/s at {fastest.get('batch', 0)}, "
        f"{case['tflops']:.1f} TFLOP/s"
    )
