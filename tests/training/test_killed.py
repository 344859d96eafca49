"""kill -9 at any moment loses the steps since the last save, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from matchattention.models import checkpoint
from matchattention.training.state import PREVIOUS_FILE, STATE_FILE, read_state

ROOT = Path(__file__).resolve().parents[2]
KILLS = 20

# One import for all lives: each life is a fork of this process, which has started no threads.
DRIVER = """
import os, random, signal, sys, time
from dataclasses import replace
from pathlib import Path
import torch
from matchattention.models import create_model
from matchattention.training.loop import RunOptions, Trainer
from matchattention.training.sources import ShiftedCards
from matchattention.training.state import has_state, read_state
from tests.training.test_loop import PRESET

torch.set_num_threads(1)
out, kills = Path(sys.argv[1]), int(sys.argv[2])
dice = random.Random(20)


def live(folder, steps):
    torch.manual_seed(0)
    model = create_model(PRESET.model).train()
    resume = folder if has_state(folder) else None
    # Everything is written after every step, so that most kills hit a file that is being written.
    options = RunOptions(folder, resume=resume, save_seconds=0.0, log_seconds=0.0, validate_seconds=None)
    schedule = replace(PRESET.schedule, kind="constant")
    preset = replace(PRESET, steps=steps, minutes=None, validation_pairs=0, schedule=schedule)
    Trainer(preset, options, model, model.config, ShiftedCards(1)).run()


def born(folder, steps):
    child = os.fork()
    if child == 0:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        try:
            live(folder, steps)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return child


def step_of(folder):
    if not has_state(folder):
        return 0
    return read_state(folder, lambda text: sys.exit("a kill damaged a state: " + text))["counters"]["steps"]


began = time.monotonic()
child = born(out / "warm", 3)
assert os.waitpid(child, 0)[1] == 0
life = time.monotonic() - began  # of a run of three steps
last = 0
for _ in range(kills):
    child = born(out / "killed", 10**6)
    time.sleep(dice.uniform(0.2, 1.3) * life)
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    step = step_of(out / "killed")
    assert step >= last, (step, last)
    last = step
assert last > 0, "no life lasted long enough for a step"
for name in ("killed", "whole"):
    child = born(out / name, last + 2)
    assert os.waitpid(child, 0)[1] == 0
print(last + 2)
"""


def _equal(one, other, where=""):
    """Compare nested states; seconds are the only thing that may differ."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            if key != "seconds":
                _equal(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    else:
        assert one == other, where


def test_a_run_killed_again_and_again_ends_bit_for_bit_like_one_that_was_not(tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(tmp_path), str(KILLS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    killed, whole = (read_state(tmp_path / name, print) for name in ("killed", "whole"))
    assert killed["counters"]["steps"] == int(done.stdout)
    _equal(killed, whole)
    names = {path.name for path in (tmp_path / "killed").iterdir() if not path.name.startswith(".")}
    assert names <= {
        STATE_FILE,
        PREVIOUS_FILE,
        f"{STATE_FILE}.partial",
        "model.safetensors",
        "log.jsonl",
        "tensorboard",
    }
    weights = [checkpoint.read_weights(tmp_path / name / "model.safetensors") for name in ("killed", "whole")]
    _equal(*weights)
