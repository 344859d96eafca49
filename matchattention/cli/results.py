"""``matchattention results``: the paper's tables with our rows, from evaluation files."""

from __future__ import annotations

import argparse
from pathlib import Path

_EPILOG = """\
examples:
  matchattention results benchmarks/results/evaluation/*.json
  matchattention results benchmarks/results/evaluation/*.json --page docs/results.md

The files are those that matchattention evaluate --json writes. Columns of sets that were not measured are
left out.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.epilog = _EPILOG
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files of evaluate --json")
    parser.add_argument("--page", type=Path, metavar="FILE", help="replace the tables of this Markdown page")


def run(arguments: argparse.Namespace) -> None:
    """Print the tables, or put them into a page."""
    from matchattention.evaluation.report import read_report
    from matchattention.evaluation.results_page import replace_generated, results_markdown

    markdown = results_markdown([read_report(path) for path in arguments.files])
    if arguments.page is None:
        print(markdown, end="")
        return
    replace_generated(arguments.page, markdown)
    print(f"wrote the tables of {len(arguments.files)} evaluations to {arguments.page}")
