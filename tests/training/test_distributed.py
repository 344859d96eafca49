"""Two processes train one network: same weights everywhere, gradients of the whole batch."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import torch

from matchattention.models import create_model
from matchattention.training.batch_norms import insert
from matchattention.training.losses import LossConfig
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.presets import TINY
from matchattention.training.sources import ShiftedCards
from matchattention.training.step import TrainingStep

ROOT = Path(__file__).resolve().parents[2]

WORKER = """
import sys, torch
from dataclasses import replace
from pathlib import Path
from matchattention.models import create_model
from matchattention.training import distributed
from matchattention.training.loop import RunOptions, Trainer
from matchattention.training.sources import ShiftedCards
from tests.training.test_loop import PRESET
torch.set_num_threads(1)
out = Path(sys.argv[1])
replicas = distributed.join()
torch.manual_seed(replicas.rank)  # different weights: the first rank's must win
model = create_model(PRESET.model).train()
preset = replace(PRESET, steps=3, minutes=None)
trainer = Trainer(preset, RunOptions(out / "run"), model, model.config, ShiftedCards(1), None, replicas)
begin = {name: p.detach().clone() for name, p in model.named_parameters()}
gradients = {}
average = replicas.average_gradients.__func__
def first_gradients(self, parameters):
    average(self, parameters)
    if not gradients:
        gradients.update({n: p.grad.clone() for n, p in zip(trainer.updater.names, parameters)})
type(replicas).average_gradients = first_gradients
trainer.run()
torch.save({"begin": begin, "gradients": gradients, "end": model.state_dict(), "steps": trainer.counters.steps,
            "samples": trainer.counters.samples}, out / f"rank{replicas.rank}.pt")
distributed.leave()
"""


def test_two_gloo_processes_agree_with_one_process(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(2):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, str(script), str(tmp_path)]
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
    first, second = (torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2))
    assert first["steps"] == second["steps"] == 3
    assert first["samples"] == 6
    for name in ("begin", "gradients", "end"):
        assert all(torch.equal(value, second[name][key]) for key, value in first[name].items()), name
    assert (tmp_path / "run" / "state.pt").is_file()

    # One process on each half gives the gradients whose mean both ranks must have used.
    model = create_model(TINY).train()
    insert(model)
    model.load_state_dict(first["begin"])
    step = TrainingStep(model, Updater(model, OptimizerConfig()), LossConfig(), mixed_precision=False)
    expected: dict[str, torch.Tensor] = {}
    for sample in range(2):
        step.gradients(ShiftedCards(1).batch(sample, 1, 32, 64))
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                expected[name] = expected.get(name, 0) + parameter.grad / 2
    for name, gradient in first["gradients"].items():
        assert torch.allclose(gradient, expected[name], atol=1e-4, rtol=1e-3), name
