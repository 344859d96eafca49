"""``matchattention evaluate``: measure a model on a benchmark."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from matchattention.cli.patterns import PATTERNS, add_pattern_options, given_patterns
from matchattention.data import datasets
from matchattention.errors import InputError

if TYPE_CHECKING:
    from matchattention.evaluation.runner import OnScene


_EPILOG = """\
examples:
  matchattention evaluate middlebury data/MiddEval3 --split trainingQ --json rt.json
  matchattention evaluate kitti2015 data/kitti2015 --model sgbm
  matchattention evaluate eth3d data/eth3d --predictions results/eth3d --label mine
  matchattention evaluate kitti2015-flow data/kitti2015 --model dis
  matchattention evaluate folder my_pairs --left '*/left.png' --right '*/right.png' --truth '*/disparity.png'

Averages are plain means over scenes or images, as zero-shot papers report them; the JSON file holds
Middlebury's weighted mean and KITTI's pooled figures too. A pixel without a prediction counts as an error.
"95% from … to" is a bootstrap interval of the mean: what it could be with other scenes of the same kind.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.epilog = _EPILOG
    add_dataset_arguments(parser)
    add_model_arguments(parser)
    parser.add_argument("--predictions", type=Path, metavar="DIR", help="score these files instead of a model")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N samples")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure and setting here")
    parser.add_argument("--save", type=Path, metavar="DIR", help="write each prediction as .pfm or .flo here")
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="measure confidence instead: AUSE, reliability, coverage of one sigma; figures go here as JSON",
    )
    parser.add_argument("--confidence", help="with --calibration: agreement, or the file of a confidence head")
    parser.add_argument(
        "--pictures", type=Path, metavar="DIR", help="write a side-by-side picture with the errors per scene"
    )


def add_dataset_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that name a dataset; shared with ``submission``."""
    width = max(map(len, datasets.DATASETS))
    listing = "\n".join(
        f"  {name:{width}}  {entry.summary}; splits {', '.join(entry.splits)}"
        for name, entry in datasets.DATASETS.items()
    )
    parser.description = f"{parser.description}\n\ndatasets:\n{listing}"
    parser.add_argument("dataset", metavar="DATASET", choices=list(datasets.DATASETS), help="one of the names above")
    parser.add_argument("root", metavar="ROOT", type=Path, help="the folder it was unpacked into")
    parser.add_argument("--split", help="which part; the first one listed unless told")
    add_pattern_options(parser, "folder and folder-flow")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that name a model; shared with ``submission``."""
    parser.add_argument(
        "--model",
        help="a shipped model, a checkpoint file, sgbm, or for flow dis, farneback (default: rt, for flow rt-flow)",
    )
    parser.add_argument("--label", help="what tables call the model")
    parser.add_argument(
        "--engine", choices=("onnx", "openvino"), help="runs the file of `matchattention export` given as --model"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 … (default: %(default)s)")
    parser.add_argument("--precision", default="auto", help="auto, fp32, fp16, bf16 (default: %(default)s)")


def open_dataset(arguments: argparse.Namespace) -> datasets.Dataset:
    """The dataset that the options name."""
    given = given_patterns(arguments)
    defaults = datasets.FLOW_PATTERNS if arguments.dataset == "folder-flow" else datasets.FolderPatterns()
    patterns = replace(defaults, **given) if given else None
    return datasets.open(arguments.dataset, arguments.root, arguments.split, patterns)


def chosen_model(arguments: argparse.Namespace, dataset: datasets.Dataset) -> str:
    """The model of ``--model``, or the shipped one for the dataset's task."""
    return arguments.model or ("rt" if dataset.kind == "stereo" else "rt-flow")


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    from matchattention.evaluation.matchers import create_matcher
    from matchattention.evaluation.runner import evaluate

    if arguments.predictions is not None and arguments.model is not None:
        raise InputError("Give either --model or --predictions, not both")
    dataset = open_dataset(arguments)
    if arguments.limit is not None:
        if arguments.limit < 1:
            raise InputError("--limit must be at least 1")
        dataset = dataset[: arguments.limit]
    if arguments.calibration is not None:
        _measure_confidence(arguments, dataset)
        return
    for folder in (arguments.save, arguments.pictures, arguments.json and arguments.json.parent):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    matcher = create_matcher(
        chosen_model(arguments, dataset),
        dataset.kind,
        arguments.predictions,
        arguments.device,
        arguments.precision,
        arguments.label,
        arguments.engine,
    )
    report = evaluate(dataset, matcher, _typed(arguments), _on_scene(arguments, len(dataset)))
    scenes = f"{len(report.scenes)} scene{'s' * (len(report.scenes) > 1)}"
    print(f"{report.model['label']} on {report.dataset} ({report.split}), {scenes}")
    print(report.table())
    if arguments.json is not None:
        report.write(arguments.json)


def _measure_confidence(arguments: argparse.Namespace, dataset: datasets.Dataset) -> None:
    from matchattention.evaluation.confidence_report import in_words, measure_confidence, write_confidence
    from matchattention.evaluation.matchers import _provenance
    from matchattention.inference.predictor import Predictor
    from matchattention.models.checkpoint import load

    model = chosen_model(arguments, dataset)
    if model == "sgbm" or arguments.predictions is not None or arguments.engine is not None:
        raise InputError(
            "--calibration measures a network's own confidence: give --model a shipped one or a checkpoint"
        )
    predictor = Predictor(
        load(model, task="stereo"), arguments.device, arguments.precision, confidence=arguments.confidence or "auto"
    )
    settings = {
        "name": Path(model).name,
        "device": str(predictor.device),
        "precision": str(predictor.dtype).removeprefix("torch."),
        "sha256": _provenance(model)["sha256"],
    }
    command = f"{_typed(arguments)} --calibration {arguments.calibration.name}"
    report = measure_confidence(dataset, predictor, settings, command, lambda line: print(line, file=sys.stderr))
    arguments.calibration.absolute().parent.mkdir(parents=True, exist_ok=True)
    write_confidence(report, arguments.calibration)
    print(in_words(report))


def _on_scene(arguments: argparse.Namespace, total: int) -> OnScene:
    from matchattention.evaluation.runner import save_prediction

    def show(number, result, sample, prediction):  # type: ignore[no-untyped-def]
        mask = "noc" if "noc" in result.metrics else "all"
        values = result.metrics[mask]
        figures = f"EPE {values['epe']:.2f} px, bad 2 {values['bad2']:.2f} % ({mask})"
        counter = f"[{number:{len(str(total))}}/{total}]"
        print(f"{counter} {result.name}: {figures}, {result.seconds:.2f} s", file=sys.stderr)
        if arguments.save is not None:
            save_prediction(arguments.save, result.name, prediction)
        if arguments.pictures is not None:
            from matchattention.evaluation.pictures import write_pictures

            write_pictures(arguments.pictures, sample, prediction, f"error: {figures}")

    return show


def _typed(arguments: argparse.Namespace) -> str:
    """The command without folders of this machine: it goes into files that are shared."""
    words = ["matchattention", "evaluate", arguments.dataset, arguments.root.resolve().name]
    for name in ("split", "model", *PATTERNS, "limit"):
        value = getattr(arguments, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", Path(value).name if name == "model" else str(value)]
    for name in ("device", "precision", "engine"):
        if getattr(arguments, name) not in ("auto", None):
            words += [f"--{name}", getattr(arguments, name)]
    if arguments.predictions is not None:
        words += ["--predictions", arguments.predictions.name]
    return shlex.join(words)
