"""Middlebury's weights reproduce the averages that its server printed for eight methods and six metrics."""

import re
from pathlib import Path

import numpy as np
import pytest

from matchattention.data.datasets.middlebury import MIDDLEBURY_WEIGHTS

PAPER = Path(__file__).resolve().parents[2].parent / "shared" / "paper.tex"
SCENES = [
    "Australia",
    "AustraliaP",
    "Bicycle2",
    "Classroom2",
    "Classroom2E",
    "Computer",
    "Crusade",
    "CrusadeP",
    "Djembe",
    "DjembeL",
    "Hoops",
    "Livingroom",
    "Newkuba",
    "Plants",
    "Staircase",
]


def test_weighted_averages_of_the_papers_leaderboard():
    if not PAPER.is_file():
        pytest.skip(f"needs {PAPER}")
    text = PAPER.read_text()
    start = text.index("tab:s5:middv3_perscene_full")
    text = re.sub(r"\\(?:best|second)\{([^}]*)\}", r"\1", text[start : text.index(r"\end{table*}", start)])
    rows = [[cell.strip(" \\") for cell in line.split("&")][1:] for line in text.splitlines()]
    figures = np.array([row for row in rows if len(row) == 16 and row[0][:1].isdigit()], float)
    assert figures.shape == (48, 16)
    weights = np.array([MIDDLEBURY_WEIGHTS.get(scene, 1.0) for scene in SCENES])
    averages = figures[:, 1:] @ weights / weights.sum()
    # Three digits are printed; plain means are off by up to a fifth.
    np.testing.assert_allclose(averages, figures[:, 0], rtol=0.01)
    assert np.abs(figures[:, 1:].mean(axis=1) / figures[:, 0] - 1).max() > 0.05
