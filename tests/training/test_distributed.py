"""Several processes train one network: the same loss curve however many, sharded or not; a killed one comes back."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from matchattention.training.state import read_state

ROOT = Path(__file__).resolve().parents[2]
STEPS = 12

# One import for all trainings: every process is a fork.
DRIVER = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
import torch
from matchattention.models import create_model
from matchattention.training import distributed
from matchattention.training.loop import RunOptions, Trainer
from matchattention.training.recipe import Stage
from matchattention.training.sources import ShiftedCards
from tests.training.test_distributed import free_port
from tests.training.test_loop import PRESET

torch.set_num_threads(1)
out, steps = Path(sys.argv[1]), int(sys.argv[2])


def train(name, rank, count, port, **changes):
    if count > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count),
                          MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    replicas = distributed.join()
    torch.manual_seed(rank)  # different weights: the first rank's must win
    shard = changes.pop("shard", False)
    resume = changes.pop("resume", None)
    total = changes.pop("steps", steps)
    preset = replace(PRESET, stages=(Stage(32, 64, 4),), steps=total, minutes=None, validation_pairs=0, **changes)
    model = create_model(preset.model).train()
    options = RunOptions(out / name, log_seconds=0.0, agree_every=1, shard=shard, resume=resume)
    trainer = Trainer(preset, options, model, model.config, ShiftedCards(1), None, replicas)
    trainer.run()
    if not shard:
        torch.save(model.state_dict(), out / f"{name}-{rank}.pt")
    distributed.leave()


def together(name, count, **changes):
    children, port = [], free_port()
    for rank in range(count):
        child = os.fork()
        if child == 0:
            try:
                train(name, rank, count, port, **changes)
            except BaseException as error:
                import traceback
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    for _ in children:
        if os.wait()[1]:  # the others would wait for the one that failed
            os.killpg(0, signal.SIGKILL)


plain = dict(batch_norm=False)
together("one", 1, **plain)
together("two", 2, **plain)
together("four", 4, **plain)
together("parts", 2, accumulate=2, **plain)
together("norms-one", 1)
together("norms-four", 4)
together("sharded", 2, shard=True, recompute=True, **plain)
plain["schedule"] = replace(PRESET.schedule, kind="constant")
together("sharded-half", 2, shard=True, steps=steps // 2, **plain)
together("sharded-half", 2, shard=True, resume=out / "sharded-half", **plain)
together("constant", 1, **plain)
"""


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def free_port() -> int:
    """Below those that systems give to outgoing connections, of which other tests make many."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("distributed")
    (out / "driver.py").write_text(DRIVER)
    command = [sys.executable, str(out / "driver.py"), str(out), str(STEPS)]
    done = subprocess.run(
        command, env=_environment(), capture_output=True, text=True, timeout=300, check=False, start_new_session=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def _curve(folder: Path) -> torch.Tensor:
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    losses = {entry["step"]: entry["loss"] for entry in entries if entry["kind"] == "train"}
    assert list(losses) == list(range(1, STEPS + 1)), folder
    return torch.tensor([losses[step] for step in sorted(losses)])


def _largest_difference(runs: Path, name: str, than: str = "one") -> float:
    one, other = _curve(runs / than), _curve(runs / name)
    return ((other - one).abs() / one).max().item()


# They differ by the order of sums alone; over so few steps in the sixth digit.
@pytest.mark.parametrize("name", ["two", "four", "parts"])
def test_the_loss_curve_is_the_same_for_one_two_and_four_processes(runs, name):
    assert _largest_difference(runs, name) < 0.002
    assert read_state(runs / name, print)["counters"]["samples"] == 4 * STEPS


def test_processes_hold_the_same_weights(runs):
    first, *others = (torch.load(runs / f"four-{rank}.pt") for rank in range(4))
    for other in others:
        assert all(torch.equal(value, other[name]) for name, value in first.items())


def test_batch_norms_of_each_process_change_the_curve_little(runs):
    assert _largest_difference(runs, "norms-four", "norms-one") < 0.05


def test_sharded_weights_train_like_whole_ones_and_resume(runs):
    assert _largest_difference(runs, "sharded", "two") < 0.002
    whole = read_state(runs / "constant", print)
    sharded = read_state(runs / "sharded-half", print)
    assert sharded["counters"]["steps"] == STEPS
    for part in ("model", "average", "moments"):
        assert sharded[part].keys() == whole[part].keys()
    shapes = {name: value.shape for name, value in whole["model"].items()}
    assert {name: value.shape for name, value in sharded["model"].items()} == shapes
    assert _curve(runs / "sharded-half")[-1].item() == pytest.approx(_curve(runs / "constant")[-1].item(), rel=0.002)


def test_a_killed_worker_comes_back_and_the_run_goes_on(tmp_path):
    """torchrun --max-restarts: the workers start again and continue from the last state, also with --fresh."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "2",
               "--master-port", str(free_port()), "-m", "matchattention", "train", "tiny-smoke", "--source", "cards",
               "--size", "32x64:2", "--device", "cpu", "--steps", "60", "--save-seconds", "0.2", "--log-seconds", "0.2",
               "--validation-pairs", "0", "--fresh", "--output", str(tmp_path / "run")]  # fmt: skip
    log = (tmp_path / "log").open("w+")
    process = subprocess.Popen(command, env=_environment(), stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 240
        while not (tmp_path / "run" / "state.pt").is_file():
            assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[-1]), signal.SIGKILL)
        assert process.wait(timeout=300) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        process.kill()
        log.close()
    text = (tmp_path / "log").read_text()
    assert "continuing" in text
    assert read_state(tmp_path / "run", print)["counters"] | {"seconds": 0} == {
        "steps": 60, "samples": 120, "seconds": 0, "average_steps": 60, "restarted_at": 0, "silenced": 0, "skipped": 0,
    }  # fmt: skip
