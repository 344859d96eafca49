"""What travels from a lent GPU: parts, compact states that continue, compile caches."""

from __future__ import annotations

import json
import os
import threading
from types import ModuleType

import numpy as np
import pytest
import torch

from matchattention.errors import InputError
from matchattention.training.optimizer import OptimizerConfig
from matchattention.training.state import read_state
from tests.scripts.loading import load_script
from tests.training.test_loop import PRESET, _trainer


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("lent_gpu")


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


def test_joining_makes_the_folder_of_the_file(script, tmp_path, monkeypatch):
    script.write_parts(b"weights", tmp_path / "back" / "model.safetensors")
    whole = tmp_path / "runs" / "main.safetensors"  # a fresh clone has no runs/
    monkeypatch.setattr("sys.argv", ["lent_gpu.py", "join", str(tmp_path / "back" / "model.safetensors"), str(whole)])
    assert script.main() == 0
    assert whole.read_bytes() == b"weights"


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
    assert set(exporter.look(last=True)) == {"model.safetensors", "state.safetensors", "log.jsonl", "cache.tar.xz"}
    assert exporter.look(last=True) == []
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


def test_watching_survives_a_state_that_cannot_be_read(script, tmp_path, monkeypatch, capsys):
    """While a training renames its states, one may be gone for a moment."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "model.safetensors").write_bytes(b"weights")
    (run / "state.pt").write_bytes(b"cut short")
    exporter = script.Exporter(run, tmp_path / "out", tmp_path / "cache")
    alive = [True, True, False]
    monkeypatch.setattr(script, "_is_running", lambda process: alive.pop(0))
    exporter.keep_looking(1, 0.0)
    assert capsys.readouterr().err.count("trying again") == 2
    assert script.join_parts(tmp_path / "out" / "model.safetensors") == b"weights"


def test_weights_do_not_wait_for_the_caches(script, tmp_path, monkeypatch):
    run, cache = tmp_path / "run", tmp_path / "cache"
    for folder in (run, cache):
        folder.mkdir()
    (cache / "kernel").write_bytes(b"binary")
    (run / "log.jsonl").write_text('{"kind": "train"}')
    finish = threading.Event()
    monkeypatch.setattr(script, "pack_cache", lambda cache: finish.wait(60) and b"archive")
    exporter = script.Exporter(run, tmp_path / "out", cache)
    assert exporter.look() == ["log.jsonl"]
    (run / "model.safetensors").write_bytes(b"weights")
    assert exporter.look() == ["model.safetensors"]
    finish.set()
    assert exporter.look(last=True) == ["cache.tar.xz"]


def test_a_whole_export_comes_back(script):
    """At most eight files of 16 MiB, 64 MiB together."""
    sizes = [21_742_866, 21_965_866, script.MOST_CACHE_BYTES]  # RT's checkpoint and Muon's state, as measured
    assert script.PART_BYTES < 16 << 20
    assert sum(-(-size // script.PART_BYTES) for size in sizes) + 1 <= 8
    assert sum(sizes) + (1 << 20) < 64 << 20
    tree = 51 << 20  # with the weights of two networks
    assert tree + script.PART_BYTES < 64 << 20, "a part of the caches does not go there any more"


def test_the_newest_caches_travel_when_all_are_too_much(script, tmp_path):
    random = np.random.default_rng(0)
    for age in range(4):
        kernel = tmp_path / "cache" / "triton" / f"kernel{age}" / "k.cubin"
        kernel.parent.mkdir(parents=True)
        kernel.write_bytes(random.bytes(10_000))
        os.utime(kernel, (1e9 - age, 1e9 - age))
    script.unpack_cache(script.pack_cache(tmp_path / "cache", most_bytes=25_000), tmp_path / "next")
    assert sorted(path.name for path in (tmp_path / "next" / "triton").iterdir()) == ["kernel0", "kernel1"]
