"""What docs/training-log.md runs on a lent GPU starts where torch, numpy and safetensors are all there is."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from matchattention.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


def _with_needs(names: list[str]) -> dict[str, importlib.metadata.Distribution]:
    """Distributions that are installed, by normal names, and what they require."""
    found: dict[str, importlib.metadata.Distribution] = {}
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        needs = found[name].requires or []
        names += [re.split(r"[^A-Za-z0-9_.-]", need)[0] for need in needs if "extra ==" not in need]
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that finds no other package, with `python -S`."""
    folder = tmp_path_factory.mktemp("bare")
    for distribution in _with_needs(["torch", "numpy", "safetensors", "triton"]).values():
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(distribution.locate_file(top))
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}


def run(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )


def test_other_packages_are_hidden(bare: dict[str, str]) -> None:
    assert "No module named 'PIL'" in run(["-c", "import torch, numpy, safetensors; import PIL"], bare).stderr


@pytest.mark.parametrize(
    "words",
    [
        "-m matchattention train rt-flow-synth --minutes 23 --teacher rt --dry-run",
        "-m matchattention ablate rows",
        "scripts/lent_gpu.py --help",
        "benchmarks/training_limits.py --help",
        "benchmarks/input_throughput.py --help",
    ],
)
def test_the_log_s_commands_start(words: str, bare: dict[str, str]) -> None:
    done = run(words.split(), bare)
    assert done.returncode == 0, done.stderr


def trainings() -> list[list[str]]:
    """The arguments of every training the log writes down for the next runs."""
    text = (ROOT / "docs" / "training-log.md").read_text().partition("## How to go on")[2].replace("\\\n", " ")
    detached = re.findall(r"train_detached\.sh start \S+ \S+ ([^\n;]*)", text)
    plain = re.findall(r"matchattention train ([^\n;]*)", text)
    numbered = (words.replace("--steps N", "--steps 100") for words in detached + plain if "…" not in words)
    return [shlex.split(words) for words in numbered]


@pytest.mark.parametrize("words", trainings(), ids=" ".join)
def test_the_log_s_trainings_have_a_plan(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *words, "--dry-run"]) == 0
    assert "GiB a GPU" in capsys.readouterr().out


def test_the_log_has_trainings_of_every_kind() -> None:
    joined = [" ".join(words) for words in trainings()]
    for kind in ("rt-flow-synth", "--start rt", "--model xl", "--size 512x768:16"):
        assert any(kind in words for words in joined), kind
