"""One training step, plain and captured, on a batch that stays on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from matchattention.bench.scenes import image_pair
from matchattention.bench.timing import measure
from matchattention.errors import first_line
from matchattention.models.registry import create_model
from matchattention.training.batch import Batch
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


def bench_training(
    device: torch.device,
    name: str = "rt",
    shape: tuple[int, int] = (512, 768),
    pairs: int = 8,
    modes: list[Mode] | None = None,
    seconds: float = 2.0,
    say: Callable[[str], None] = print,
    keep: Callable[[dict[str, Any]], object] = lambda results: None,
) -> dict[str, Any]:
    """Samples a second and memory of a step in each mode; the plain operator beside the fused one on a GPU.

    `keep` takes the results so far after each mode.
    """
    gpu = device.type == "cuda"
    batch = example_batch(pairs, *shape, device)
    results: dict[str, Any] = {"network": name, "crop": list(shape), "batch": pairs, "modes": {}}
    modes = modes or (["eager", "capture"] if gpu else ["eager"])
    wanted: list[tuple[str, Mode, str]] = [(mode, mode, "auto") for mode in modes]
    if gpu:
        wanted.append(("eager, plain operator", "eager", "reference"))
    for label, mode, backend in wanted:
        try:
            torch.manual_seed(0)
            model = create_model(name).to(device).train().use_backend(backend)
            step = TrainingStep(model, Updater(model, OptimizerConfig()), LossConfig(), mixed_precision=gpu)
            reached = step.prepare(batch, mode) if gpu else mode

            def run(step: TrainingStep = step) -> None:
                step(batch, 1e-4, 0)
                if step.finished is not None:
                    torch.cuda.current_stream().wait_event(step.finished)

            timing = measure(run, device, seconds)
            results["modes"][label] = {
                **timing.to_dict(), "mode_reached": reached, "pairs_per_second": pairs / timing.median_ms * 1e3
            }
            say(f"{label:24s} {timing.median_ms:9.2f} ms, {pairs / timing.median_ms * 1e3:7.1f} pairs/s ({reached})")
            del step, model, run
        except Exception as error:
            results["modes"][label] = {"failed": first_line(error)}
            say(f"{label:24s} failed: {first_line(error)}")
        keep(results)
        if gpu:
            torch.cuda.empty_cache()
    return results
