"""The tuning of the fused kernels: every change names something, and all that changes can be compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys
sys.path.insert(0, "benchmarks")
import tune_kernels as tuning
from matchattention.runtime import compiling

first, counts = tuning.present(), []
compiling.compile_ahead = lambda run, capability: counts.append(len(compiling.kernels_of(run))) or counts[-1]
tuning.compile_all(90)
names = [str(move) for move in tuning.moves()]
unknown = {name for move in tuning.moves() for name in move.change} - first.keys()
print(json.dumps([counts, len(names) - len(set(names)), sorted(unknown), tuning.present() == first]))
"""


def test_every_change_can_be_launched_and_taken_back() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, cwd=ROOT, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (count,), twice, unknown, back = json.loads(done.stdout)
    assert count > 100
    assert (twice, unknown, back) == (0, [], True)
