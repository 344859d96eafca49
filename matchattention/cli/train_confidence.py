"""``matchattention train-confidence``: a confidence head for a trained network, from rendered pairs alone."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from matchattention.errors import InputError

_EPILOG = """\
examples:
  matchattention train-confidence --output rt-confidence.safetensors
  matchattention train-confidence --model runs/mine/model.safetensors --output mine.safetensors --cache runs/confidence

The network stays as it is. Each pair is rendered and matched once, then the head learns from what was kept; with
--cache a run that was stopped goes on. Use the result with predict --confidence FILE.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.epilog = _EPILOG
    parser.add_argument("--model", default="rt", help="a shipped model or a checkpoint (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="where the head goes (.safetensors)")
    parser.add_argument("--pairs", type=int, help="to render; the last tenth is held out (640)")
    parser.add_argument("--size", metavar="HxW", help="of the pairs, multiples of 32 (256x512)")
    parser.add_argument("--batch", type=int, help="pairs a step (4)")
    parser.add_argument("--epochs", type=int, help="times every pair is seen (12)")
    parser.add_argument("--seed", type=int, help="of pairs and order (77)")
    parser.add_argument(
        "--source",
        action="append",
        metavar="KIND[:PRESET][=WEIGHT]",
        help="scenes, photos or cards; repeat to mix (scenes, and as many photos where there is a photo bank)",
    )
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep what was matched here, and go on with it")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    """Render, match, train, judge, write."""
    import torch

    from matchattention.cli.train_recipe import parse_source, parse_stage
    from matchattention.data.provenance import describe_environment
    from matchattention.evaluation.held_out import judge_head
    from matchattention.evaluation.matchers import _provenance
    from matchattention.inference.consistency import judge_both
    from matchattention.models.checkpoint import load
    from matchattention.models.confidence_file import fingerprint, save_head
    from matchattention.runtime.precision import choose_device
    from matchattention.training.confidence import ConfidenceTraining, gather, train
    from matchattention.training.supply import make_source

    given = {name: getattr(arguments, name) for name in ("pairs", "batch", "epochs", "seed")}
    plan = replace(ConfidenceTraining(), **{name: value for name, value in given.items() if value is not None})
    if arguments.size is not None:
        stage = parse_stage(arguments.size, plan.batch)
        plan = replace(plan, height=stage.height, width=stage.width)
    if arguments.output.is_dir() or not arguments.output.absolute().parent.is_dir():
        raise InputError(f"{arguments.output} cannot be written: give a file in a folder that exists.")
    device = choose_device(arguments.device)
    network = load(arguments.model).to(device).requires_grad_(False)
    sources = [parse_source(text) for text in arguments.source or _usual_sources()]
    source = make_source([replace(config, mirror=False) for config in sources], plan.seed, device)
    mark = fingerprint(network)
    cache = None if arguments.cache is None else arguments.cache / f"{mark[:12]}-{plan.height}x{plan.width}-{plan.seed}"
    examples = gather(network, source, plan, lambda field: judge_both(field)[1], _say, cache)
    held_out = max(1, len(examples) // 10)
    head = train(examples[:-held_out], plan, device, _say)
    figures = judge_head(head, examples[-held_out:], plan)
    card = {
        "model": Path(arguments.model).name,
        "model_file_sha256": _provenance(arguments.model)["sha256"],
        "trained_on": "rendered pairs alone: " + ", ".join(arguments.source or _usual_sources()),
        "licence": "Apache-2.0",
        "held_out_rendered": figures,
        "environment": describe_environment(str(device)),
        "parameters": sum(value.numel() for value in head.parameters()),
    }
    save_head(head, arguments.output, mark, card)
    print(
        f"On {figures['pairs']} held-out rendered pairs: AUSE (bad 1) {figures['ause']:.3f}, by left-right agreement "
        f"{figures['ause_agreement']:.3f}; calibration error {figures['ece']:.3f}; "
        f"{figures['coverage']['1']:.1f} % within one sigma."
    )
    print(f"{arguments.output} ({arguments.output.stat().st_size / 1024:.0f} KiB) on {torch.device(device)}")


def _usual_sources() -> list[str]:
    from matchattention.synth.photos import photo_bank

    return ["scenes"] if photo_bank.load() is None else ["scenes", "photos"]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
