"""Compare optimizers on a CPU: a small network of RT's kind, a pool of layered photos, some hundred updates.

    python benchmarks/optimizers.py --optimizer muon --length 0.8 --stop 500
    python benchmarks/optimizers.py --optimizer adamw --rate 6e-4 --stop 500

Prints, every 250 updates, the mean final L1 since the last line and the error on 32 pairs of the same kind held out.
Making the pool takes minutes; it needs the photo bank (scripts/build_photo_bank.py).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matchattention.data.batch import Batch
from matchattention.models import create_model
from matchattention.models.config import NetworkConfig
from matchattention.training import muon
from matchattention.training.losses import LossConfig
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.presets import SourceConfig
from matchattention.training.schedule import ScheduleConfig, learning_rate
from matchattention.training.sources import concatenate
from matchattention.training.step import TrainingStep
from matchattention.training.supply import make_source
from matchattention.training.validation import errors

NETWORK = NetworkConfig(channels=(16, 32, 64, 96), encoder_depths=(1, 1, 2, 1), decoder_depths=(2, 2, 2, 1))
POOL, HELD_OUT, AT_ONCE = 640, 32, 16
ROWS, COLUMNS = slice(16, 112), slice(32, 224)  # of pairs of 128x256 px
REPORT = 250  # updates


def make_pool() -> Batch:
    """Crops of layered photos, rounded to fp16 as they were kept when this comparison was first made."""
    source = make_source((SourceConfig("photos"),), 7, torch.device("cpu"))
    whole = concatenate([source.batch(first, AT_ONCE, 128, 256) for first in range(0, POOL, AT_ONCE)])

    def cropped(name: str, value: torch.Tensor) -> torch.Tensor:
        value = value[..., ROWS, COLUMNS] if not name.startswith("field") else value[:, ROWS, COLUMNS]
        return value.half().float() if value.is_floating_point() else value

    return Batch(*(cropped(name, value) for name, value in zip(Batch._fields, whole)))  # type: ignore[arg-type]


def chosen(pool: Batch, index: torch.Tensor | slice) -> Batch:
    """Some pairs of the pool."""
    return Batch(*(None if value is None else value[index] for value in pool))  # type: ignore[arg-type]


@torch.no_grad()
def held_out_error(model: torch.nn.Module, pairs: Batch) -> tuple[float, float]:
    """Mean end-point error in px and the percentage of pixels off by more than 2 px."""
    model.eval()
    parts = [chosen(pairs, slice(first, first + 8)) for first in range(0, HELD_OUT, 8)]
    found = [errors(model(part.image0, part.image1).field[:8], part.field0, part.valid0) for part in parts]
    model.train()
    return tuple(torch.stack([values[name] for values in found]).mean().item() for name in ("epe", "bad2"))  # type: ignore[return-value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--optimizer", choices=("adamw", "muon"), default="muon")
    parser.add_argument("--rate", type=float, default=6e-4)
    parser.add_argument("--length", type=float, default=muon.LENGTH, help="root mean square of Muon's updates")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--updates", type=int, default=2000, help="that the schedule is made for")
    parser.add_argument("--stop", type=int, help="after so many of them")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    muon.LENGTH = arguments.length
    pool = make_pool()
    print(f"{POOL} pairs ready", flush=True)
    known, held_out = POOL - HELD_OUT, chosen(pool, slice(POOL - HELD_OUT, None))
    torch.manual_seed(0)
    model = create_model(NETWORK).train()
    updater = Updater(model, OptimizerConfig(kind=arguments.optimizer))
    step = TrainingStep(model, updater, LossConfig(), mixed_precision=False)
    schedule = ScheduleConfig(peak=arguments.rate, warmup_steps=40, cooldown=True, cooldown_fraction=0.3)
    generator = torch.Generator().manual_seed(1)
    order, place, began = torch.randperm(known, generator=generator), 0, time.monotonic()
    for update in range(min(arguments.updates, arguments.stop or arguments.updates)):
        if place + arguments.batch > known:
            order, place = torch.randperm(known, generator=generator), 0
        index = order[place : place + arguments.batch]
        place += arguments.batch
        step(chosen(pool, index), learning_rate(schedule, update, update / arguments.updates), update)
        if (update + 1) % REPORT == 0:
            final = step.read_totals()["final"]
            error, bad = held_out_error(model, held_out)
            print(
                f"{arguments.optimizer} {update + 1:5d}  {time.monotonic() - began:4.0f} s  final {final:.3f} px  "
                f"held out: epe {error:.3f} px, bad 2.0 {bad:.1f} %",
                flush=True,
            )


if __name__ == "__main__":
    main()
