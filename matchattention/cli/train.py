"""Train or fine-tune a network; a run that is started again continues."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from matchattention.cli.patterns import add_pattern_options
from matchattention.cli.train_recipe import adjusted_preset
from matchattention.errors import InputError

if TYPE_CHECKING:
    from matchattention.training.recipe import Preset

SHORT_RUN = 15.0  # minutes; shorter runs are validated at their end only
_EPILOG = """
examples:
  matchattention train rt-synth --minutes 9              nine minutes on rendered scenes, then saves
  matchattention train rt-synth --minutes 9 --cooldown   nine more, ending at a low learning rate
  matchattention train rt-synth --model xl --dry-run     what training XL would take
  matchattention train rt --data folder:PAIRS            fine-tunes the shipped weights on your own pairs
  matchattention train rt --data folder:PAIRS --left '*/left.png' --right '*/right.png' --truth '*/depth.png' \\
      --png-scale 100                                    the same with files named so, PNG values in 1/100 px
  matchattention train paper-scene-flow --data-root /data --checkpoint-activations
  torchrun --nproc-per-node 8 --max-restarts 3 -m matchattention train rt-synth --minutes 60

Everything lands in runs/NAME: state.pt and state-previous.pt (continue exactly), model.safetensors (EMA weights,
fp16), log.jsonl. A run with a saved state is resumed; --fresh starts over.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    from matchattention.training.presets import PRESETS

    lines = "\n".join(f"  {name:16} {preset.summary}" for name, preset in PRESETS.items())
    parser.epilog = f"presets:\n{lines}\n{_EPILOG}"
    parser.add_argument("preset", help="what to train, see below")
    limit = parser.add_argument_group("how long")
    limit.add_argument("--minutes", type=float, help="time limit of the process, compiling and saving included")
    limit.add_argument("--steps", type=int, help="total steps over all runs")
    limit.add_argument("--cooldown", action="store_true", help="let the learning rate fall at the end of this run")
    limit.add_argument("--cooldown-fraction", type=float, help="last share of the run in which it falls (0.3)")
    limit.add_argument("--dry-run", action="store_true", help="print the plan with its memory and time, train nothing")
    limit.add_argument("--tflops", type=float, help="of --dry-run: arithmetic a GPU does a second, 1e12 (an H200's)")
    limit.add_argument("--processes", type=int, help="of --dry-run: GPUs it is meant for (1)")
    what = parser.add_argument_group("what")
    what.add_argument("--model", help="any network of `matchattention models` instead of the preset's")
    what.add_argument(
        "--size",
        action="append",
        metavar="HxW[:BATCH]",
        help="crop size instead of the preset's stages; repeat for several of equal length",
    )
    what.add_argument("--batch", type=int, help="pairs a step, over all processes")
    what.add_argument("--accumulate", type=int, metavar="N", help="a step's batch in N parts, one after the other")
    what.add_argument(
        "--checkpoint-activations",
        action="store_true",
        help="compute activations again on the way back instead of keeping them: less memory, a third more arithmetic",
    )
    what.add_argument("--rate", type=float, help="peak learning rate")
    what.add_argument(
        "--scale-rate",
        choices=("sqrt", "linear"),
        help="multiply the preset's rate by the square root, or by the whole, of --batch over the preset's batch",
    )
    what.add_argument("--optimizer", choices=("adamw", "muon"), help="instead of the preset's")
    what.add_argument(
        "--schedule", choices=("constant", "one-cycle"), help="of the learning rate, instead of the preset's"
    )
    what.add_argument(
        "--teacher", metavar="MODEL", help="distil from this fixed network; the student sees perturbed images"
    )
    what.add_argument("--teacher-weight", type=float, metavar="W", help="of the teacher's field in the loss (0.5)")
    what.add_argument(
        "--drop-hopeless",
        type=float,
        metavar="SHARE",
        help="drop pairs that the teacher gets wrong in more than this share of the pixels, such as 0.6",
    )
    what.add_argument(
        "--ema-horizon", type=float, metavar="STEPS", help="steps that the EMA of the weights looks back (1000)"
    )
    what.add_argument("--seed", type=int, help="random seed (0)")
    data = parser.add_argument_group("data")
    data.add_argument(
        "--source",
        action="append",
        metavar="KIND[:PRESET][=WEIGHT]",
        help="scenes, photos, moving-photos or cards, instead of the preset's; repeat to mix",
    )
    data.add_argument(
        "--data",
        action="append",
        metavar="NAME[/SPLIT]:PATH[=WEIGHT]",
        help="a dataset on disk (names as in `evaluate`), shards:URL or NAME/shards:URL of `matchattention shard`; it "
        "fills in the preset's dataset of that name or stands beside its sources; repeat to mix",
    )
    data.add_argument("--data-root", type=Path, help="folder that holds the preset's datasets by their names")
    data.add_argument("--data-license", metavar="TEXT", help="of your data, for the checkpoint's card")
    data.add_argument(
        "--augment",
        action="append",
        metavar="NAME=VALUE",
        help="a strength of the augmentation of files (docs/training.md), e.g. scale=-0.4,0.8 or eraser_probability=0",
    )
    data.add_argument(
        "--held-out",
        type=float,
        metavar="SHARE",
        help="share of each dataset's pairs to measure with instead of training on (0.1 with --data, else 0)",
    )
    data.add_argument(
        "--validate", action="append", metavar="NAME[/SPLIT]:PATH", help="pairs to measure with, never trained on"
    )
    add_pattern_options(parser, "--data folder:PATH")
    where = parser.add_argument_group("where")
    where.add_argument("--name", help="folder under runs/ (the preset's name)")
    where.add_argument("--output", type=Path, help="folder of the run instead of runs/NAME")
    where.add_argument("--start", help="begin with these weights: a shipped model's name or a file")
    where.add_argument("--resume", type=Path, help="continue the run in this folder")
    where.add_argument("--fresh", action="store_true", help="start over even where the folder holds a saved state")
    where.add_argument("--cache", type=Path, default=Path("runs/cache"), help="compile caches (runs/cache)")
    how = parser.add_argument_group("how")
    how.add_argument("--device", default="auto", help="auto, cpu or cuda")
    how.add_argument(
        "--mode",
        choices=("graph", "capture", "compile", "eager"),
        default="graph",
        help="on a GPU: graph (compiled blocks in a CUDA graph, the default), capture (plain kernels in a CUDA graph), "
        "compile, eager; where one fails the next is used",
    )
    how.add_argument(
        "--shard", action="store_true", help="spread weights over the processes of torchrun (FSDP2); AdamW only"
    )
    how.add_argument(
        "--validate-minutes",
        type=float,
        help=f"between validations; 0 for the end only (3, but 0 for runs of less than {SHORT_RUN:.0f} minutes)",
    )
    how.add_argument("--validation-pairs", type=int, help="held-out rendered pairs (16); 0 for none")
    how.add_argument("--save-seconds", type=float, default=60.0, help="between saved states (60)")
    how.add_argument("--log-seconds", type=float, default=10.0, help="between lines of the log (10)")


def run(arguments: argparse.Namespace) -> None:
    """Train."""
    from matchattention.training import clock
    from matchattention.training.presets import find_preset

    preset = adjusted_preset(find_preset(arguments.preset), arguments)
    if arguments.dry_run:
        from matchattention.training.plan import H200_TFLOPS, plan

        tflops = H200_TFLOPS if arguments.tflops is None else arguments.tflops
        if not tflops > 0:
            raise InputError(f"--tflops must be above zero, not {tflops:g}")
        print(plan(preset, max(arguments.processes or 1, 1), tflops, arguments.shard))
        return
    clock.arm(preset.minutes)
    try:
        _train(arguments, preset)
    finally:
        clock.disarm()


def _train(arguments: argparse.Namespace, preset: Preset) -> None:
    from matchattention.training.compilation import use_cache_folder

    use_cache_folder(arguments.cache)  # before torch compiles anything
    import torch

    from matchattention.training import distributed
    from matchattention.training.build import build_model, training_device
    from matchattention.training.loop import RunOptions, Trainer
    from matchattention.training.real_pairs import RealPair, read_real_pairs
    from matchattention.training.state import has_state
    from matchattention.training.supply import make_source, require_paths

    require_paths(preset.sources)
    replicas = distributed.join()
    try:
        device = training_device(arguments.device, replicas)
        folder = arguments.output or Path("runs") / (arguments.name or arguments.preset)
        resume = arguments.resume
        fresh = arguments.fresh and not distributed.restarted()
        if has_state(folder) and not fresh and (resume is None or distributed.restarted()):
            resume = folder
        if preset.fine_tunes and preset.start is None and resume is None:
            raise InputError(
                f"{arguments.preset} fine-tunes trained weights: name them with --start, such as --start rt"
            )
        torch.manual_seed(preset.seed)
        held_out: list[RealPair] = []
        source = make_source(preset.sources, preset.seed, device, held_out, replicas.lane(preset.accumulate))
        # Rendered validation pairs come from the first renderer; a pool or a mirror would only repeat them.
        rendered = [dataclasses.replace(c, pool=0, mirror=False) for c in preset.sources if c.kind != "data"][:1]
        unseen = make_source(rendered, preset.seed + 1_000_003, device) if rendered else None
        model, config = build_model(preset, device, weights=resume is None)
        options = RunOptions(
            folder=folder,
            resume=resume,
            fastest=arguments.mode,
            shard=arguments.shard,
            log_seconds=arguments.log_seconds,
            save_seconds=arguments.save_seconds,
            validate_seconds=_validate_seconds(arguments.validate_minutes, preset.minutes),
            data_license=arguments.data_license,
        )
        real = held_out + read_real_pairs(arguments.validate or ())
        Trainer(preset, options, model, config, source, unseen, replicas, real).run()
    finally:
        distributed.leave()


def _validate_seconds(asked: float | None, minutes: float | None) -> float | None:
    """Time between validations; None for the end only, which a run of minutes does unless told otherwise."""
    if asked is None:
        asked = 0.0 if minutes is not None and minutes < SHORT_RUN else 3.0
    return asked * 60 or None
