"""One training step, plain and captured, on a batch that stays on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from matchattention.bench.kernels import by_name, profile_pass
from matchattention.bench.scenes import image_pair
from matchattention.bench.timing import forget_peak, measure, peak_bytes
from matchattention.data.batch import Batch
from matchattention.errors import first_line
from matchattention.models.registry import create_model
from matchattention.training.build import use_fast_arithmetic
from matchattention.training.losses import LossConfig
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.step import Mode, TrainingStep


def example_batch(pairs: int, height: int, width: int, device: torch.device) -> Batch:
    """A batch with matching images and their ground truth."""
    made = [image_pair(height, width, device, seed) for seed in range(min(pairs, 4))]
    chosen = [made[i % len(made)] for i in range(pairs)]
    left = torch.cat([pair[0] for pair in chosen]).float()
    right = torch.cat([pair[1] for pair in chosen]).float()
    disparity = torch.stack([pair[2] for pair in chosen])
    field = torch.stack((-disparity, torch.zeros_like(disparity)), -1)
    known = torch.ones(pairs, height, width, dtype=torch.bool, device=device)
    return Batch(left, right, field, -field, known, known.clone())


def wanted_steps(modes: list[Mode], gpu: bool) -> list[tuple[str, Mode, str]]:
    """Label, mode and backend of each step to measure."""
    wanted: list[tuple[str, Mode, str]] = []
    for mode in modes:
        wanted.append((mode, mode, "auto"))
        if gpu and mode in ("eager", "capture"):
            wanted.append((f"{mode}, plain operator", mode, "reference"))
    return wanted


def bench_training(
    device: torch.device,
    name: str = "rt",
    shape: tuple[int, int] = (512, 768),
    pairs: int = 8,
    modes: list[Mode] | None = None,
    seconds: float = 2.0,
    with_kernels: bool = False,
    say: Callable[[str], None] = print,
    keep: Callable[[dict[str, Any]], object] = lambda results: None,
) -> dict[str, Any]:
    """Samples a second and memory of a step in each mode; on a GPU with the plain PyTorch operator too.

    None of the usual modes is compiled by inductor, which takes minutes; "graph" is for those who have its caches, and
    is measured with our operator alone.

    Args:
        device: where.
        name: of a registered network.
        shape: (H, W) px of the crops.
        pairs: of a batch.
        modes: of `TrainingStep`.
        seconds: measuring time of each mode.
        with_kernels: whether to keep launches and time of every kernel of a step on a GPU.
        say: takes lines of progress.
        keep: takes the results so far after each mode.
    """
    gpu = device.type == "cuda"
    if gpu:
        use_fast_arithmetic()
    batch = example_batch(pairs, *shape, device)
    results: dict[str, Any] = {"network": name, "crop": list(shape), "batch": pairs, "modes": {}}
    for label, mode, backend in wanted_steps(modes or (["capture", "eager"] if gpu else ["eager"]), gpu):
        try:
            forget_peak(device)
            torch.manual_seed(0)
            model = create_model(name).to(device).train().use_backend(backend)
            step = TrainingStep(model, Updater(model, OptimizerConfig()), LossConfig(), mixed_precision=gpu)
            reached = step.prepare(batch, mode) if gpu else mode

            def run(step: TrainingStep = step) -> None:
                step(batch, 1e-4, 0)
                if step.finished is not None:
                    torch.cuda.current_stream().wait_event(step.finished)

            prepared = peak_bytes(device)
            timing = measure(run, device, seconds)
            peak = None if timing.peak_bytes is None else max(prepared or 0, timing.peak_bytes)
            results["modes"][label] = {
                **timing.to_dict(),
                "peak_bytes": peak,
                "mode_reached": reached,
                "pairs_per_second": pairs / timing.median_ms * 1e3,
            }
            if gpu and with_kernels:
                results["modes"][label]["kernels"] = by_name(profile_pass(run)["kernels"])
            say(f"{label:24s} {timing.median_ms:9.2f} ms, {pairs / timing.median_ms * 1e3:7.1f} pairs/s ({reached})")
            del step, model, run
        except Exception as error:
            results["modes"][label] = {"failed": first_line(error)}
            say(f"{label:24s} failed: {first_line(error)}")
        keep(results)
        if gpu:
            torch.cuda.empty_cache()
    return results
