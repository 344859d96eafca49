"""How much memory there is and how much is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from matchattention.models.registry import NETWORKS
from matchattention.runtime import memory
from matchattention.runtime.memory import MemoryPlan, available_bytes, first_that_fits, needed_bytes, plans

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("limit", "expected"), [("max", 2048 * 1024), ("1000000", 1_000_000 - 250_000), ("9000000", 2048 * 1024)]
)
def test_the_machine_and_the_container_both_limit(
    limit: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "proc/meminfo": "MemTotal: 9000 kB\nMemAvailable:    2048 kB\n",
        "sys/fs/cgroup/memory.max": f"{limit}\n",
        "sys/fs/cgroup/memory.current": "250000\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "Path", lambda name: tmp_path / name.removeprefix("/"))
    assert available_bytes(CPU) == expected


def test_the_best_plan_that_fits_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    config, size = NETWORKS["rt"].config, (4320, 7680)
    needs = [needed_bytes(config, *size, plan, 4) for plan in plans(config, *size)]
    assert len(needs) > 2
    for index, need in enumerate(needs):
        monkeypatch.setattr(memory, "available_bytes", lambda device, need=need: need / 0.85 + 1)  # a share stays free
        assert first_that_fits(config, *size, CPU, 4) == index
    monkeypatch.setattr(memory, "available_bytes", lambda device: 0.0)
    assert first_that_fits(config, *size, CPU, 4) == len(needs) - 1


def test_half_the_size_needs_what_the_half_needs_and_the_whole_fields() -> None:
    config = NETWORKS["rt-flow"].config
    fields = 2 * 8 * 3 * (1024 * 1536 - 512 * 768)  # both views, (x, y) in fp32, three of them
    halved = needed_bytes(config, 1024, 1536, MemoryPlan(halvings=1), 4)
    assert halved - fields == pytest.approx(needed_bytes(config, 512, 768, MemoryPlan(), 4))
