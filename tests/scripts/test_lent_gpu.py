"""What travels from a lent GPU: parts, compact states that continue, compile caches."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from matchattention.errors import InputError
from matchattention.training.optimizer import OptimizerConfig
from matchattention.training.state import read_state
from tests.training.test_loop import PRESET, _trainer

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lent_gpu", ROOT / "scripts" / "lent_gpu.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_parts_round_trip_and_stale_parts(script, tmp_path):
    path = tmp_path / "file"
    data = np.random.default_rng(0).bytes(1000)
    assert len(script.write_parts(data, path, 300)) == 4
    assert script.join_parts(path) == data
    assert len(script.write_parts(data[:100], path, 300)) == 1
    assert script.join_parts(path) == data[:100]


def test_missing_or_mixed_parts_are_noticed(script, tmp_path):
    with pytest.raises(InputError, match="part0"):
        script.join_parts(tmp_path / "file")
    script.write_parts(b"a" * 1000, tmp_path / "file", 300)[-1].unlink()
    with pytest.raises(InputError, match="do not fit together"):
        script.join_parts(tmp_path / "file")


def test_second_moments_survive_eight_bits(script):
    torch.manual_seed(0)
    values = torch.randn(1000).exp() ** 3 * 1e-9
    values[:3] = 0
    codes, largest = script.quantise_squares(values)
    restored = script.restore_squares(codes, largest)
    assert codes.dtype == torch.uint8
    assert (restored[:3] == 0).all()
    assert ((restored[3:] / values[3:]).log2().abs() <= 0.5 * 40 / 255 + 1e-3).all()
    assert script.restore_squares(*script.quantise_squares(torch.zeros(4))).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_an_export_can_be_continued(script, tmp_path, kind):
    from dataclasses import replace

    preset = replace(PRESET, optimizer=OptimizerConfig(kind=kind, average_decay=0.9))
    first = _trainer(tmp_path / "run", preset, steps=6)
    first.run()
    cache = tmp_path / "cache"
    (cache / "triton").mkdir(parents=True)
    (cache / "triton" / "k.cubin").write_bytes(b"binary")
    exporter = script.Exporter(tmp_path / "run", tmp_path / "out", cache, part_bytes=100_000)
    assert set(exporter.look()) == {"model.safetensors", "state.safetensors", "log.jsonl", "cache.tar.xz"}
    assert exporter.look() == []
    assert all(part.stat().st_size <= 100_000 for part in (tmp_path / "out").glob("*.part*"))
    model = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert script.join_parts(tmp_path / "out" / "model.safetensors") == model
    script.write_state(tmp_path / "next", script.expand(script.join_parts(tmp_path / "out" / "state.safetensors")))
    second = _trainer(tmp_path / "next", preset, steps=8, resume=tmp_path / "next")
    assert (second.counters.steps, second.counters.samples) == (6, 12)
    for a, b in zip(first.updater.parameters, second.updater.parameters):
        assert torch.equal(a.half().float(), b)
    if kind == "muon":
        assert second.counters.restarted_at == 6
    second.run()
    assert read_state(tmp_path / "next", print)["counters"]["steps"] == 8


def test_caches_travel(script, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    kernel = first / "triton" / "ABC" / "kernel.cubin"
    kernel.parent.mkdir(parents=True)
    kernel.write_bytes(b"binary")
    kernel.with_suffix(".ptx").write_bytes(b"not needed")
    group = {"child_paths": {"kernel.cubin": str(kernel)}}
    (kernel.parent / "__grp__kernel.json").write_text(json.dumps(group))
    script.unpack_cache(script.pack_cache(first), second)
    assert (second / "triton" / "ABC" / "kernel.cubin").read_bytes() == b"binary"
    assert not (second / "triton" / "ABC" / "kernel.ptx").exists()
    group = json.loads((second / "triton" / "ABC" / "__grp__kernel.json").read_text())
    assert group == {"child_paths": {"kernel.cubin": str(second / "triton" / "ABC" / "kernel.cubin")}}
    assert script.pack_cache(first, most_bytes=10) is None
    assert script.pack_cache(tmp_path / "nothing") is None
