"""Ours beside the paper's: the paper's figures, the columns, the page."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from matchattention.data.datasets import DATASETS
from matchattention.errors import InputError
from matchattention.evaluation.metrics import measure
from matchattention.evaluation.paper_tables import TABLE_4, TABLE_5A, TABLE_5B
from matchattention.evaluation.report import Report, SceneResult, read_report
from matchattention.evaluation.results_page import (
    BEGIN,
    END,
    paper_table_markdown,
    replace_generated,
    results_markdown,
)

PAPER = Path(__file__).resolve().parents[2].parent / "shared" / "paper.tex"


def report(dataset, split, label, error, scenes=2):
    truth = np.full((4, 5), 50, np.float32)
    seen = np.ones((4, 5), bool)
    seen[0] = False
    prediction = truth.copy()
    prediction[0, 0] += error
    metrics = measure(prediction, truth, seen)
    return Report(
        dataset=dataset,
        root="data",
        split=split,
        kind="stereo",
        model={"name": label, "label": label},
        scenes=tuple(SceneResult(f"scene{n}", (5, 4), 0.5, metrics) for n in range(scenes)),
        environment={"date": "today", "commit": "abc", "processor": "a CPU", "versions": {}},
        command=f"matchattention evaluate {dataset} data --model {label}",
    )


def cells(markdown, row):
    line = next(line for line in markdown.splitlines() if line.startswith(f"| {row} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


@pytest.mark.parametrize(
    ("table", "label", "panel"),
    [
        (TABLE_4, "tab:4:zero_shot_stereo", 0),
        (TABLE_5A, "tab:5:realtime_zero_shot", 0),
        (TABLE_5B, "tab:5:realtime_zero_shot", 1),
    ],
    ids=["4", "5a", "5b"],
)
def test_figures_are_the_papers(table, label, panel):
    if not PAPER.is_file():
        pytest.skip(f"needs {PAPER}")
    text = PAPER.read_text()
    start = text.index(label)
    text = text[start : text.index(r"\end{table*}", start)]
    text = re.split(r"textit\{\([ab]\)", text)[1 + panel] if "5" in label else text
    text = re.sub(r"\\(?:best|second|textbf)\{([^}]*)\}", r"\1", re.sub(r"\\cite\{[^}]*\}", "", text))
    found = {}
    for line in text.splitlines():
        name, *figures = (cell.strip(" \\") for cell in line.split("&"))
        try:
            found[name] = tuple(float(figure) for figure in figures[:10])
        except ValueError:
            continue
    assert {name: figures for name, figures in found.items() if len(figures) == 10} == table.rows


def test_only_measured_columns_are_shown():
    markdown = paper_table_markdown(TABLE_4, [report("middlebury", "trainingQ", "Ours", 10, scenes=15)])
    header = markdown.splitlines()[0]
    assert "Middlebury Q bad 2 all | Middlebury Q bad 2 noc" in header
    assert "KITTI" not in header
    assert cells(markdown, "MatchAttentionRT (paper)") == ["12.42", "8.23"]
    assert cells(markdown, "**Ours**") == ["**5.00** [5.00, 5.00]", "**0.00** [0.00, 0.00]"]
    assert "pairs, the paper's over all" not in markdown


def test_rows_of_one_model_are_joined_and_partial_sets_named():
    reports = [
        report("middlebury", "trainingQ", "Ours", 10, scenes=15),
        report("kitti2015", "training", "Ours", 10, scenes=20),
        report("middlebury", "trainingQ", "SGBM", 20, scenes=15),
    ]
    markdown = paper_table_markdown(TABLE_4, reports)
    assert len([line for line in markdown.splitlines() if "Ours**" in line]) == 1
    of_all = ["**5.00** [5.00, 5.00]", "**0.00** [0.00, 0.00]"]
    assert cells(markdown, "**Ours**") == [*(f"{cell}, 20 pairs" for cell in of_all), *of_all]
    assert cells(markdown, "**SGBM**") == ["–", "–", *of_all]
    assert "kitti2015 are over 20 of its 200 pairs" in markdown


def test_tables_that_we_did_not_measure_are_left_out():
    assert paper_table_markdown(TABLE_5A, [report("middlebury", "trainingQ", "Ours", 1)]) is None


def test_the_whole_page(tmp_path):
    reports = [report("folder", "all", "Ours", 10), report("folder", "all", "SGBM", 0)]
    markdown = results_markdown(reports)
    assert "Table 4" not in markdown
    assert "### folder all (data, 2 scenes)" in markdown
    assert "| scene1 | 0.00 | 0.00 |" in markdown
    assert "`matchattention evaluate folder data --model SGBM`" in markdown
    page = tmp_path / "results.md"
    page.write_text(f"# Ours\n\nprose\n\n{BEGIN}\nstale figures\n{END}\n\nafter\n")
    replace_generated(page, markdown)
    once = page.read_text()
    assert once.startswith("# Ours\n\nprose\n")
    assert once.endswith("\nafter\n")
    assert "stale" not in once
    replace_generated(page, markdown)
    assert page.read_text() == once


def test_pages_without_marks_are_left_alone(tmp_path):
    page = tmp_path / "results.md"
    with pytest.raises(InputError, match="does not exist"):
        replace_generated(page, "text")
    page.write_text("prose")
    with pytest.raises(InputError, match="lacks the lines"):
        replace_generated(page, "text")
    assert page.read_text() == "prose"


def test_nothing_to_show():
    with pytest.raises(InputError, match="no evaluation files"):
        results_markdown([])


def test_scenes_of_different_runs_are_matched_by_name():
    first = report("folder", "all", "Ours", 10)
    second = replace(report("folder", "all", "SGBM", 0), scenes=report("folder", "all", "SGBM", 0).scenes[1:])
    assert "| scene0 | 0.00 | – |" in results_markdown([first, second])


def test_the_documentation_shows_the_committed_files(tmp_path):
    repository = Path(__file__).resolve().parents[2]
    files = sorted((repository / "benchmarks" / "results" / "evaluation").glob("*.json"))
    assert files
    page = tmp_path / "results.md"
    page.write_text((repository / "docs" / "results.md").read_text())
    replace_generated(page, results_markdown([read_report(path) for path in files]))
    advice = "run: matchattention results benchmarks/results/evaluation/*.json --page docs/results.md"
    assert page.read_text() == (repository / "docs" / "results.md").read_text(), advice


def test_the_documentation_names_every_dataset():
    text = (Path(__file__).resolve().parents[2] / "docs" / "evaluation.md").read_text()
    assert [name for name in DATASETS if f"`{name}`" not in text] == []
