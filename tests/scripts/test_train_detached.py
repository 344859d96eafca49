"""A training behind several calls, with a `python3` that does what a test says in place of training and exporting."""

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "train_detached.sh"


def start(folder, trains):
    """Start a training made of shell commands."""
    (folder / "bin").mkdir()
    fake = folder / "bin" / "python3"
    fake.write_text(f'#!/bin/bash\ncase "$*" in *"matchattention train"*) {trains};; esac\n')
    fake.chmod(0o755)
    call(folder, "start", "export", "run", "rt-synth")


def call(folder, *words):
    """Run the script; returns its output."""
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    words = ["bash", str(SCRIPT), *words]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


UNTIL_TOLD = "for turn in {1..600}; do [ -e go_on ] && break; sleep 0.1; done; echo trained"


def test_a_training_outlives_the_call_that_starts_it(tmp_path):
    start(tmp_path, UNTIL_TOLD)
    assert call(tmp_path, "wait", "export", "0").splitlines() == ["still running"]
    (tmp_path / "go_on").touch()
    assert call(tmp_path, "wait", "export", "50").splitlines() == ["ended", "trained"]


def test_waiting_ends_with_a_warning_but_once(tmp_path):
    start(tmp_path, "echo warning: slower; " + UNTIL_TOLD)
    assert call(tmp_path, "wait", "export", "50").splitlines() == ["still running", "warning: slower"]
    (tmp_path / "go_on").touch()
    assert call(tmp_path, "wait", "export", "50").splitlines() == ["ended", "warning: slower", "trained"]


def test_what_another_training_exported_does_not_come_back(tmp_path):
    (tmp_path / "export").mkdir()
    for name in ("model.safetensors.part0", "cache.tar.xz.part1", "log.jsonl"):
        (tmp_path / "export" / name).write_text("of another training")
    start(tmp_path, "true")
    assert {path.name for path in (tmp_path / "export").iterdir()} == {"train.log", "export.log", "pid", "exporter"}
