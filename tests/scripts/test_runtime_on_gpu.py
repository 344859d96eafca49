"""The one call that measures the runtime on a lent GPU, with a `python3` that only writes down what it is asked."""

import os
import re
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "runtime_on_gpu.sh"


def call(folder: Path, fake_python: str) -> list[str]:
    """Run the script; the commands it gave."""
    (folder / "bin").mkdir()
    fake = folder / "bin" / "python3"
    fake.write_text(f'#!/bin/bash\necho "$PYTHONPATH|$*" >> {folder}/calls\n{fake_python}\n')
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": ""}
    (folder / "out").mkdir()
    words = ["bash", str(SCRIPT), str(folder / "out")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert "== ended with" in done.stdout or not fake_python.endswith("exit 1")
    return (folder / "calls").read_text().splitlines()


def test_a_part_that_fails_leaves_the_others_and_a_missing_pytest_is_taken_along(tmp_path: Path) -> None:
    calls = call(tmp_path, "exit 1")
    asked, *parts = calls
    assert asked == "|-c import pytest"
    assert all(line.startswith(f"{SCRIPT.parents[1]}/local/pytest|-m ") for line in parts)
    kinds = [re.sub(r".*-m (matchattention )?", "", line, count=1).split()[0] for line in parts[:-1]]
    assert kinds == ["bench"] * 4 + ["doctor"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"doctor.txt", "tests.txt"}


def test_every_test_for_a_gpu_is_named(tmp_path: Path) -> None:
    calls = call(tmp_path, "true")
    assert all(line.startswith("|") for line in calls)
    named = [word for word in calls[-1].split() if word.startswith("tests/")]
    assert "pytest -m gpu" in calls[-1]
    assert {"tests/runtime/test_gpu.py", "tests/ops/test_gpu.py", "tests/bench/test_parity.py"} <= set(named)
    assert not any(name.startswith("tests/scripts") for name in named)


def test_all_parts_end_within_a_call(tmp_path: Path) -> None:
    seconds = [int(number) for number in re.findall(r"^(?:bench|part) (\d+) ", SCRIPT.read_text(), re.M)]
    assert len(seconds) == 6
    assert sum(seconds) < 600
