"""Does a training step run on this machine, in which modes, how fast, and do the modes agree?

    python3 benchmarks/train_check.py --size 320x640 --batch 32 --seconds 140

Never aborts: what fails is printed and the next part runs. Cheap parts come first; a part whose time would
go beyond --seconds is left out (compiling cannot be interrupted; allow minutes when caches are cold).
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matchattention.training.compilation import use_cache_folder

BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGAN:6.1f} s] {text}", flush=True)


def attempt(name: str, work):  # type: ignore[no-untyped-def]
    """The result of ``work``, or None and a printed traceback."""
    try:
        return work()
    except Exception:
        say(f"FAILED: {name}\n{traceback.format_exc(limit=-6)}")
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="rt")
    parser.add_argument("--size", default="320x640")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=140)
    parser.add_argument("--timed", type=int, default=20, help="steps timed in each mode")
    parser.add_argument("--fed-seconds", type=float, default=10, help="time of the measurement with the source")
    parser.add_argument("--modes", default="eager,capture,compile,graph")
    parser.add_argument("--source", default="scenes", choices=("scenes", "photos", "cards"))
    parser.add_argument("--cache", type=Path, default=Path("runs/cache"))
    arguments = parser.parse_args()
    use_cache_folder(arguments.cache)

    import torch

    from matchattention.models import create_model
    from matchattention.training.build import use_fast_arithmetic
    from matchattention.training.feed import Feed
    from matchattention.training.losses import LossConfig
    from matchattention.training.optimizer import OptimizerConfig, Updater
    from matchattention.training.presets import SourceConfig
    from matchattention.training.step import TrainingStep
    from matchattention.training.supply import make_source

    height, width = (int(part) for part in arguments.size.split("x"))
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    say(f"torch {torch.__version__}, {torch.cuda.get_device_name() if on_gpu else 'cpu'}")
    use_fast_arithmetic()

    def wait() -> None:
        if on_gpu:
            torch.cuda.synchronize()

    source = None
    for kind in dict.fromkeys((arguments.source, "cards")):
        source = attempt(f"source {kind}", lambda kind=kind: make_source((SourceConfig(kind),), 0, device))
        batch = None
        if source is not None:
            batch = attempt(f"a batch of {kind}", lambda made=source: made.batch(0, arguments.batch, height, width))
        if batch is not None:
            wait()
            began, count = time.monotonic(), 5
            for index in range(1, count + 1):
                source.batch(index * arguments.batch, arguments.batch, height, width)
            wait()
            rate = count * arguments.batch / (time.monotonic() - began)
            known = batch.valid0.float().mean().item()
            largest = torch.where(batch.valid0, batch.field0[..., 0].abs(), 0.0).amax().item()
            say(f"source {kind}: {rate:.0f} pairs/s alone, valid {known:.3f}, largest disparity {largest:.1f} px")
            break
    if source is None or batch is None:
        return
    torch.manual_seed(0)
    first = attempt("building the network", lambda: create_model(arguments.model).to(device).train())
    if first is None:
        return
    say(f"{arguments.model}: {sum(p.numel() for p in first.parameters()) / 1e6:.2f} M parameters")
    losses = {}
    next_sample = [0]  # every mode goes on where the last one stopped, as a training would
    for mode in arguments.modes.split(","):
        left = arguments.seconds - (time.monotonic() - BEGAN)
        if left < 15 + arguments.fed_seconds:
            say(f"no time left for {mode}")
            continue

        def measure(mode: str = mode) -> None:
            model = copy.deepcopy(first)
            updater = Updater(model, OptimizerConfig())
            step = TrainingStep(model, updater, LossConfig(), mixed_precision=on_gpu)
            if on_gpu:
                torch.cuda.reset_peak_memory_stats()
            began = time.monotonic()
            reached = step.prepare(batch, mode)  # type: ignore[arg-type]
            wait()
            say(f"{mode}: prepared as {reached} in {time.monotonic() - began:.1f} s")
            for index in range(3):
                step(batch, 1e-4, index)
            wait()
            terms, norms = step.read_totals(), updater.read_statistics()
            wait()
            losses[mode] = terms["loss"]
            numbers = ", ".join(f"{name} {value:.4f}" for name, value in terms.items())
            say(f"{mode}: mean of 3 steps on one batch: {numbers}; {norms}")
            began = time.monotonic()
            for index in range(arguments.timed):
                step(batch, 1e-4, index)
            wait()
            rate = arguments.timed * arguments.batch / (time.monotonic() - began)
            say(f"{mode}: {rate:.0f} pairs/s on a fixed batch")
            feed = Feed(source, step)
            # Scenes drawn before the clock starts do not last for its seconds.
            for warm in (True, False):
                feed.wait()
                began, steps = time.monotonic(), 0
                enough = 2.0 if warm else arguments.fed_seconds
                while steps < arguments.timed or time.monotonic() - began < enough:
                    request = (next_sample[0], arguments.batch, height, width)
                    next_sample[0] += arguments.batch
                    feed.train(request, next_sample[0], 1e-4, steps)
                    steps += 1
                feed.wait()
            seconds = time.monotonic() - began
            rate = steps * arguments.batch / seconds
            say(f"{mode}: {rate:.0f} pairs/s with the source in the loop, over {seconds:.1f} s")
            if on_gpu:
                say(f"{mode}: peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB allocated")

        attempt(mode, measure)
        if on_gpu:
            torch.cuda.empty_cache()
    if "eager" in losses:
        for mode, value in losses.items():
            difference = abs(value - losses["eager"]) / abs(losses["eager"])
            say(f"{mode}: loss differs from eager's by {100 * difference:.3f} %")
    say("done")


if __name__ == "__main__":
    main()
