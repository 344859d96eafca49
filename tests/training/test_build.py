"""Which device a training takes."""

from __future__ import annotations

import pytest
import torch

from matchattention.cli.main import main
from matchattention.training import build
from matchattention.training.distributed import Replicas


@pytest.mark.parametrize("name", ["abacus", "cpu:x", "cuda" if not torch.cuda.is_available() else "cuda:99"])
def test_a_device_that_is_not_here_is_a_sentence(name, tmp_path, capsys):
    assert main(["train", "tiny-smoke", "--steps", "1", "--device", name, "--output", str(tmp_path / "run")]) == 2
    assert "device" in capsys.readouterr().err.lower()
    assert not (tmp_path / "run").exists()


def test_every_process_of_a_machine_takes_its_own_gpu(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(build, "use_fast_arithmetic", lambda: None)
    replicas = Replicas(rank=3, count=4, local_rank=3)
    assert build.training_device("auto", replicas) == torch.device("cuda:3")
    assert build.training_device("cuda", replicas) == torch.device("cuda:3")
    assert build.training_device("cuda:1", replicas) == torch.device("cuda:1")
    assert chosen == [torch.device("cuda:3"), torch.device("cuda:3"), torch.device("cuda:1")]
    assert build.training_device("cpu", replicas) == torch.device("cpu")
