"""The CPU study: a stopped run goes on, and the page says what was measured and no more."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from matchattention.data.formats import write_pfm

ROOT = Path(__file__).resolve().parents[2]
PAGE = runpy.run_path(str(ROOT / "benchmarks" / "cpu_engines_page.py"))
ENGINES = {"PyTorch fp32": None, "Fast": ("rt-int8.onnx", "onnx", "auto"), "Wrong": ("rt.onnx", "openvino", "bf16")}
ENVIRONMENT = {
    "processor": "a CPU",
    "versions": {"torch": "2", "onnxruntime": "1"},
    "commit": "abc",
    "date": "2026-11-18 20:00 UTC",
}


def figures(bad2: float, d1: float) -> dict:
    return {
        "middlebury": {
            "scenes": 15,
            "px_from_pytorch": 0.5,
            **{key: {"bad2": bad2, "bad1": 9} for key in ("noc", "all")},
        },
        "kitti2015": {"scenes": 20, "px_from_pytorch": 0.25, **{key: {"d1": d1, "epe": 1} for key in ("noc", "all")}},
    }


def study(**engines: dict) -> dict:
    return {
        "model": "rt",
        "files": {"rt-int8.onnx": {"megabytes": 17.7, "nodes": 99}},
        "accuracy": {"environment": ENVIRONMENT, "engines": {"PyTorch fp32": figures(6, 4), **engines}},
    }


def latency(**best_ms: float) -> dict:
    engines = {
        name: {"best_ms": best, "times_as_fast_as_pytorch": 900 / best}
        for name, best in {"PyTorch fp32": 900, **best_ms}.items()
    }
    quiet = {"quiet_machine": True, "load_average": {"before": [0.1, 0.1, 0.1]}}
    return {"environment": ENVIRONMENT, "size": "480x640", "threads": 2, "rounds": 8, "engines": engines, **quiet}


def test_the_fastest_that_keeps_the_figures_is_advised():
    found = study(Fast=figures(6.09, 3.9), Wrong=figures(5, 4.11)) | {"latency": latency(Fast=600, Wrong=300)}
    text = PAGE["section"](found, ENGINES)
    assert "| Fast | 6.09 / 6.09 | 9.00 | 3.90 / 3.90 | 0.5000 | 17.7 | 99 | 600 (1.50x) |" in text
    assert "**Use Fast**" in text
    assert "--output rt-int8.onnx --precision int8" in text
    assert "Wrong loses 0.11 points (D1 noc of KITTI 2015)." in text
    assert "busy machine" not in text


def test_what_is_missing_is_said():
    half = {"middlebury": figures(6, 4)["middlebury"]}
    text = PAGE["section"](study(Fast=half), ENGINES)
    assert "Not measured on both sets yet: Fast, Wrong." in text
    assert "Which is the fastest is not measured yet" in text
    assert "Use " not in text
    assert "| Wrong |  |  |  |  |  |  |  |" in text


def test_a_busy_machine_is_said():
    busy = latency() | {"quiet_machine": False, "load_average": {"before": [3.2, 1, 1]}}
    assert "**on a busy machine** (load 3.2)" in PAGE["section"](study() | {"latency": busy}, ENGINES)


def test_the_page_holds_what_its_command_writes(tmp_path):
    shown = ROOT / "docs" / "deployment.md"
    copy = tmp_path / "deployment.md"
    copy.write_text(shown.read_text())
    engines = runpy.run_path(str(ROOT / "benchmarks" / "cpu_engines.py"))["ENGINES"]
    PAGE["write_page"](json.loads((ROOT / "benchmarks/results/cpu-engines.json").read_text()), engines, copy)
    assert copy.read_text() == shown.read_text()


@pytest.fixture
def script(monkeypatch, tmp_path):
    """`cpu_engines.main` with two engines that always say 4 and 5 px, two scenes a set, and what they were asked."""
    names = runpy.run_path(str(ROOT / "benchmarks" / "cpu_engines.py"))
    scope = names["main"].__globals__
    asked: list[str] = []

    class Engine:
        def __init__(self, name, files, threads):
            self.settings = {"name": name}
            self.disparity = 4 if name == "PyTorch fp32" else 5

        def __call__(self, first, second, sample):
            asked.append(self.settings["name"])
            return np.full(first.shape[:2], self.disparity, np.float32)

    for dataset in ("one", "two"):
        scene = tmp_path / dataset / "scene"
        scene.mkdir(parents=True)
        for name in ("im0", "im1"):
            Image.fromarray(np.random.default_rng(0).integers(0, 255, (32, 64, 3), np.uint8)).save(
                scene / f"{name}.png"
            )
        Image.fromarray(np.full((32, 64), 255, np.uint8)).save(scene / "mask0nocc.png")
        write_pfm(scene / "disp0GT.pfm", np.full((32, 64), 4, np.float32))
    opened = scope["datasets"].open

    class Folders:
        @staticmethod
        def open(name, root, split):
            return opened("folder", root)

    monkeypatch.setitem(scope, "SETS", {"middlebury": ("one", None), "kitti2015": ("two", None)})
    monkeypatch.setitem(scope, "datasets", Folders)
    monkeypatch.setitem(scope, "Engine", Engine)
    monkeypatch.setitem(scope, "prepare", lambda files, engines: {})

    def run(*engines: str) -> tuple[dict, list[str]]:
        asked.clear()
        words = ["accuracy", "--data", tmp_path, "--files", tmp_path / "files", "--json", tmp_path / "study.json"]
        monkeypatch.setattr(sys, "argv", ["cpu_engines.py", *map(str, words), "--engines", *engines])
        assert names["main"]() == 0
        return json.loads((tmp_path / "study.json").read_text()), list(asked)

    return run


def test_a_stopped_run_goes_on(script, tmp_path):
    found, asked = script("PyTorch fp32")
    assert asked == ["PyTorch fp32"] * 2
    assert found["accuracy"]["engines"]["PyTorch fp32"]["kitti2015"]["all"]["epe"] == 0
    del found["accuracy"]["engines"]["PyTorch fp32"]["kitti2015"]
    (tmp_path / "study.json").write_text(json.dumps(found))
    found, asked = script("PyTorch fp32", "OpenVINO fp32")
    assert asked == ["PyTorch fp32", "OpenVINO fp32", "OpenVINO fp32"]
    assert found["accuracy"]["engines"]["OpenVINO fp32"]["middlebury"]["px_from_pytorch"] == 1
