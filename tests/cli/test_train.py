"""The command line of training: what it changes in a preset, what it refuses, how it continues."""

from __future__ import annotations

import pytest

from matchattention.cli.main import main
from matchattention.models.checkpoint import read_header

CARDS = ["--source", "cards", "--size", "32x64:2", "--device", "cpu"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "choose one of rt-synth"),
        (["rt-synth", "--size", "320"], "HEIGHTxWIDTH"),
        (["rt-synth", "--size", "100x200"], "multiples of 32"),
        (["rt-synth", "--source", "films"], "choose scenes, photos, moving-photos or cards"),
        (["rt-synth", "--source", "cards=-1"], "above zero"),
        (["rt-synth", "--source", "scenes:moon"], "unknown scenes 'moon'"),
        (["rt", "--data", "pairs"], "folder:pairs"),
        (["rt"], "--data folder:PATH"),
        (["tiny-smoke", *CARDS, "--resume", "missing"], "no training state"),
        (["tiny-smoke", *CARDS, "--start", "missing.safetensors"], "missing.safetensors"),
        (["tiny-smoke", *CARDS, "--eval-pairs", "missing.bin"], "missing.bin does not exist"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_mistakes_are_one_sentence(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert error.count("\n") == 0


def test_a_second_run_continues_and_fresh_begins_anew(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["train", "tiny-smoke", *CARDS, "--validate-minutes", "0"]
    assert main([*command, "--steps", "2"]) == 0
    assert (tmp_path / "runs/tiny-smoke/model.safetensors").is_file()
    assert main([*command, "--steps", "3"]) == 0
    output = capsys.readouterr().out
    assert "continuing runs/tiny-smoke at step 2" in output
    assert "3 steps, 6 pairs" in output
    assert main([*command, "--steps", "1", "--minutes", "5", "--fresh"]) == 0
    assert "continuing" not in capsys.readouterr().out
    recipe = read_header("runs/tiny-smoke/model.safetensors")[1]["recipe"]
    assert (recipe["steps"], recipe["minutes"]) == (1, 5.0)


def test_start_takes_weights_only(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["train", "tiny-smoke", *CARDS, "--validate-minutes", "0"]
    assert main([*command, "--steps", "2", "--output", "a"]) == 0
    assert main([*command, "--steps", "1", "--output", "b", "--start", "a/model.safetensors"]) == 0
    assert "1 steps, 2 pairs" in capsys.readouterr().out
