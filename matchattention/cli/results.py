"""``matchattention results``: the paper's tables with our rows."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from matchattention.errors import InputError

if TYPE_CHECKING:
    from matchattention.evaluation.report import Report
    from matchattention.evaluation.runner import OnScene

_EPILOG = """\
examples:
  matchattention results --data data --model rt --model sgbm
  matchattention results benchmarks/results/evaluation/*.json
  matchattention results benchmarks/results/evaluation/*.json --page docs/results.md

With --data every set of the paper's tables 4 and 5 that lies below that folder (MiddEval3, eth3d, kitti2015) is
measured first. Files are those that matchattention evaluate --json writes. Columns of sets that were not
measured are left out.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.epilog = _EPILOG
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="files of evaluate --json")
    parser.add_argument("--page", type=Path, metavar="FILE", help="replace the tables of this Markdown page")
    measuring = parser.add_argument_group("measuring first")
    measuring.add_argument("--data", type=Path, metavar="ROOT", help="the folder the datasets lie in")
    measuring.add_argument(
        "--model", action="append", metavar="MODEL", help="a model or sgbm; may be repeated (default: rt)"
    )
    measuring.add_argument("--json", type=Path, metavar="DIR", help="keep the evaluation files here")
    measuring.add_argument("--device", default="auto", help="auto, cpu, cuda … (default: %(default)s)")
    measuring.add_argument("--precision", default="auto", help="auto, fp32, fp16, bf16 (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    """Measure if asked to, then print the tables or put them into a page."""
    from matchattention.evaluation.report import read_report
    from matchattention.evaluation.results_page import replace_generated, results_markdown

    if arguments.data is None and (arguments.model or arguments.json):
        raise InputError("--model and --json are for measuring: say with --data where the datasets are")
    reports = [read_report(path) for path in arguments.files]
    if arguments.data is not None:
        reports += _measured(arguments)
    if not reports:
        raise InputError("Give files of evaluate --json, or --data with a folder of datasets")
    markdown = results_markdown(reports)
    if arguments.page is None:
        print(markdown, end="")
        return
    replace_generated(arguments.page, markdown)
    print(f"wrote the tables of {len(reports)} evaluations to {arguments.page}")


def _progress(title: str, total: int) -> OnScene:
    def show(number, result, sample, prediction):  # type: ignore[no-untyped-def]
        print(f"{title}: [{number}/{total}] {result.name}, {result.seconds:.2f} s", file=sys.stderr)

    return show


def _measured(arguments: argparse.Namespace) -> list[Report]:
    """One report for each model and set that is present."""
    from matchattention.data import datasets
    from matchattention.evaluation.matchers import create_matcher
    from matchattention.evaluation.paper_sets import find_paper_sets
    from matchattention.evaluation.runner import evaluate

    places = find_paper_sets(arguments.data)
    if arguments.json is not None:
        arguments.json.mkdir(parents=True, exist_ok=True)
    reports = []
    for model in arguments.model or ["rt"]:
        matcher = create_matcher(model, "stereo", None, arguments.device, arguments.precision)
        for place in places:
            dataset = datasets.open(place.dataset, place.root, place.split)

            name = Path(model).name
            command = f"matchattention evaluate {place.dataset} {place.root.name} --split {place.split} --model {name}"
            report = evaluate(
                dataset, matcher, command, _progress(f"{model} on {place.dataset} {place.split}", len(dataset))
            )
            if arguments.json is not None:
                report.write(arguments.json / f"{Path(model).stem}-{place.dataset}-{place.split}.json")
            reports.append(report)
    return reports
