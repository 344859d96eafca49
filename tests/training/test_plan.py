"""Plans: memory and arithmetic counted without doing any, against what was measured on a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from matchattention.cli.main import main
from matchattention.errors import InputError
from matchattention.models.flops import count_flops
from matchattention.models.registry import NETWORKS
from matchattention.training.plan import footprint, plan
from matchattention.training.presets import PRESETS, TINY
from matchattention.training.scaling import archive_table, measured_case, training_scale


@pytest.fixture(scope="module")
def rt():
    return footprint(NETWORKS["rt"].config, 512, 768)


def test_planned_memory_is_what_an_h200_took(rt):
    stored = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "training-rt-nvidia-h200.json"
    measured = json.loads(stored.read_text())
    assert (measured["crop"], measured["batch"]) == ([512, 768], 8)
    assert rt.memory(8) == pytest.approx(measured["modes"]["capture"]["peak_bytes"], rel=0.1)


def test_recomputing_trades_memory_for_arithmetic(rt):
    assert rt.memory(8, recompute=True) < 0.35 * rt.memory(8)
    assert rt.step_flops(8, recompute=True) == rt.step_flops(8) * 4 / 3
    assert rt.memory(0, shards=4) == rt.parameters * 20 // 4
    assert rt.flops == count_flops(NETWORKS["rt"].config, 512, 768)


def test_a_plan_scales_with_processes_and_steps():
    preset = replace(PRESETS["tiny-smoke"], steps=1000, model=TINY)
    one, two = plan(preset), plan(preset, processes=2)
    assert "batch 4 = 1 x 1 x 4" in one
    assert "batch 4 = 2 x 1 x 2" in two
    assert "1000 steps" in one


def test_memory_is_shared_out_only_where_weights_are(monkeypatch):
    asked = []

    def memory(pairs, recompute, shards):
        asked.append((pairs, shards))
        return 2**30

    found = SimpleNamespace(parameters=1, memory=memory, step_flops=lambda pairs, recompute: 1.0)
    monkeypatch.setattr("matchattention.training.plan.footprint", lambda *call: found)
    preset = replace(PRESETS["tiny-smoke"], model=TINY)
    plan(preset, processes=2)
    plan(preset, processes=2, shard=True)
    assert asked == [(2, 1), (2, 2)]


def test_scaling_is_plain_arithmetic():
    row = training_scale(10**7, 100.0, 4, 8.64e6, (100, 200), 8, 0.5)
    assert (row.batch, row.days, row.gpu_days) == (32, pytest.approx(0.25), pytest.approx(2.0))
    assert row.input_bytes == pytest.approx(400 * 100 * 200 * 16)
    assert row.exchange_bytes == pytest.approx(2 * 7 / 8 * 4e7 * 400 / 32)
    assert training_scale(10**7, 100.0, 4, 8.64e6, (100, 200), 1, 0.5).days == pytest.approx(1.0)
    assert "| 1e+06 | 0.12 | 1.2 TB | 400.0 GB | 120 MB/s | 3 |" in archive_table([1e6], 100, 1.2e6, 0.4e6, 1.0)


def test_measured_rates_feed_the_calculator(tmp_path, capsys):
    path = tmp_path / "limits.json"
    case = {"network": "rt", "crop": [320, 640], "recompute": False, "fastest": {"pairs_per_second": 10.0, "batch": 2}}
    path.write_text(json.dumps({"cases": [case]}))
    assert measured_case(path, "rt", (320, 640), False)["fastest"]["batch"] == 2
    command = ["scale", "training", "--model", "rt", "--size", "320x640", "--rates", str(path), "--pairs", "864000"]
    assert main([*command, "--gpus", "1"]) == 0
    assert "| 1 | 2 | 24.00 | 1.00 |" in capsys.readouterr().out
    with pytest.raises(InputError, match="holds no xl"):
        measured_case(path, "xl", (320, 640), False)
    path.write_text("[]")
    with pytest.raises(InputError, match="training_limits"):
        measured_case(path, "rt", (320, 640), False)
    assert main(["scale", "archive"]) == 2
    assert "--pairs-per-second" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "training --gpus 0",
        "training --batch 0",
        "training --pairs -5",
        "archive --pairs nan",
        "archive --read -1",
        "archive --price -3",
        "archive --pairs-per-second inf",
    ],
)
def test_numbers_that_mean_nothing_are_refused(words, capsys):
    what, option, value = words.split()
    rate = [] if option == "--pairs-per-second" else ["--pairs-per-second", "100"]
    assert main(["scale", what, "--model", "rt", "--size", "64x64", option, value, *rate]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"matchattention scale: {option} is a number")
    assert len(captured.err.splitlines()) == 1
