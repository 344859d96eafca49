"""The whole command on a tiny network: train, stop, resume, compare, write the page."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from matchattention.ablation import page
from matchattention.ablation.budget import Budget
from matchattention.ablation.packed_pairs import write_pairs
from matchattention.ablation.results import Results
from matchattention.ablation.rows import choose_rows
from matchattention.ablation.runner import missing_jobs
from matchattention.cli.main import main
from matchattention.synth.world import config as world
from matchattention.training.real_pairs import RealPair

ROOT = Path(__file__).resolve().parents[2]
ROWS = "rt-local,rt-no-occlusion,rt-wide,scenes-no-thin"


@pytest.fixture(autouse=True)
def _quick_scenes(monkeypatch):
    scenes = replace(world.PRESETS["small"], layouts={"flying": 1.0, "room": 1.0}, photos=0.0, floating_count=4)
    monkeypatch.setitem(world.PRESETS, "quick", scenes)


def real_pairs(folder):
    dice = np.random.default_rng(0)
    left, right = dice.integers(0, 256, (2, 40, 70, 3), dtype=np.uint8)
    disparity = np.full((40, 70), 3.0, np.float32)
    path = folder / "real_pairs.bin"
    write_pairs(path, [RealPair("kitti2015", "one", left, right, disparity, disparity > 0)], 1 << 20)
    return str(path)


def ablate(folder, *more, rows=ROWS, seeds="1,2"):
    words = ["ablate", "--base", "tiny", "--scenes", "quick", "--size", "32x64", "--batch", "2", "--pairs", "8"]
    words += ["--pool", "2", "--held-out", "2", "--rows", rows, "--seeds", seeds, "--device", "cpu"]
    words += ["--real", real_pairs(folder), "--cache", str(folder / "cache"), "--pool-folder", str(folder / "pool")]
    return main([*words, "--output", str(folder / "ablations.json"), *more])


def read(folder):
    return json.loads((folder / "ablations.json").read_text())


def test_whole_command(tmp_path, capsys):
    assert ablate(tmp_path, "--cost-size", "32x64", "--at-once", "2", rows="rt-local,rt-no-occlusion") == 0
    data = read(tmp_path)
    assert {(run["row"], run["seed"]) for run in data["runs"]} == {
        (row, seed) for row in ("rt", "rt-local", "rt-no-occlusion") for seed in (1, 2)
    }
    assert set(data["costs"]) == {"rt", "rt-local", "rt-no-occlusion"}
    run = data["runs"][0]
    assert (run["pairs"], run["steps"], run["environment"]["device"]) == (8, 4, "cpu")
    assert len(run["by_pair"]["all/bad1"]) == 4
    assert {name.split("/")[0] for name in run["measures"]} == {"rendered", "flying", "room"}
    assert 0 <= run["real"]["kitti2015-all/d1"] <= 100
    assert data["real_pairs"] == ["kitti2015/one"]
    assert data["failures"] == []

    capsys.readouterr()
    assert ablate(tmp_path, "--no-costs") == 0  # two further rows: only those are trained
    assert "4 trainings to do, 6 there already" in capsys.readouterr().out
    more = read(tmp_path)
    assert more["runs"][:6] == data["runs"]
    assert [run["row"] for run in more["runs"][6:]] == ["rt-wide", "rt-wide", "scenes-no-thin", "scenes-no-thin"]

    target = tmp_path / "page.md"
    assert main(["ablate", "page", "--output", str(tmp_path / "ablations.json"), "--page", str(target)]) == 0
    text = target.read_text()
    assert "10 trainings of `tiny`" in text
    for heading in ("### The paper's claims", "### Table 6", "### Table 7", "### Scenes"):
        assert heading in text
    assert "KITTI 2015 D1" in text
    assert page.NOTHING not in text


def test_the_committed_page_is_what_the_committed_results_say():
    text = (ROOT / "docs/ablations.md").read_text()
    results = ROOT / "benchmarks/results/ablations-nvidia-h200.json"
    data = json.loads(results.read_text()) if results.is_file() else None
    assert f"{page.BEGIN}\n\n{page.page_text(data)}\n\n{page.END}" in text, "run `matchattention ablate page`"


def test_a_page_without_marks_is_left_alone(tmp_path, capsys):
    target = tmp_path / "page.md"
    target.write_text("mine")
    assert main(["ablate", "page", "--page", str(target)]) == 2
    assert "needs one line" in capsys.readouterr().err
    assert target.read_text() == "mine"


def test_a_late_training_does_not_begin(tmp_path, capsys):
    assert ablate(tmp_path, "--no-costs", "--time-limit", "0", seeds="1") == 0
    assert "not complete" in capsys.readouterr().out
    assert read(tmp_path)["runs"] == []


def test_another_budget_is_refused(tmp_path, capsys):
    assert ablate(tmp_path, "--no-costs", "--time-limit", "0") == 0
    before = (tmp_path / "ablations.json").read_bytes()
    assert ablate(tmp_path, "--no-costs", "--rate", "0.1") == 2
    assert "rate 0.0008 instead of 0.1" in capsys.readouterr().err
    assert (tmp_path / "ablations.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--rows", "rt-nonsense"], "There is no row 'rt-nonsense'"),
        (["--table", "9"], "There is no table '9'"),
        (["--seeds", "1,x"], "--seeds takes whole numbers"),
        (["--pairs", "8", "--minutes", "1"], "either pairs or minutes"),
        (["--minutes", "1", "--at-once", "2"], "share the time"),
        (["--size", "100x200"], "multiples of 32"),
        (["--scenes", "moon"], "There are no scenes 'moon'"),
        (["--resume", "missing.json"], "missing.json cannot be read"),
    ],
)
def test_bad_input(words, sentence, tmp_path, capsys):
    output = tmp_path / "ablations.json"
    assert main(["ablate", "--device", "cpu", "--output", str(output), "--cache", str(tmp_path), *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not output.exists()


def test_rows_are_listed(capsys):
    assert main(["ablate", "rows"]) == 0
    assert "rt-dot" in capsys.readouterr().out


def test_what_failed_twice_is_left_alone():
    results = Results(Budget(), [])
    rows = choose_rows("6", ["rt-nat"])
    results.data["failures"] = [
        {"row": "rt-nat", "seed": 1},
        {"row": "rt-nat", "seed": 2},
        {"row": "rt-nat", "seed": 1},
    ]
    results.data["runs"] = [{"row": "rt", "seed": 2}]
    assert [(job.row.name, job.seed) for job in missing_jobs(rows, [1, 2], results)] == [("rt", 1), ("rt-nat", 2)]
