"""The CPU study: a stopped run goes on, and the page says what was measured and no more."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from matchattention.data.formats import write_flo, write_pfm

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import cpu_engines
    import cpu_engines_page as page
    import cpu_engines_studies
    from cpu_engines_studies import FLOW, STEREO, STUDIES, Engine
finally:
    sys.path.remove(str(ROOT / "benchmarks"))

STUDY = STEREO._replace(
    engines={
        "PyTorch fp32": None,
        "Fast": Engine("int8", "onnx", "auto"),
        "Wrong": Engine("fp32", "openvino", "bf16"),
    }
)
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
    text = page.section(found, STUDY)
    assert "| Fast | 6.09 / 6.09 | 9.00 | 3.90 / 3.90 | 0.5000 | 17.7 | 99 | 600 (1.50x) |" in text
    assert "**Use Fast**" in text
    assert "--output rt-int8.onnx --precision int8" in text
    assert "Wrong loses 0.11 points (D1 noc of KITTI 2015)." in text
    assert "busy machine" not in text


def test_what_is_missing_is_said():
    half = {"middlebury": figures(6, 4)["middlebury"]}
    text = page.section(study(Fast=half), STUDY)
    assert "Not measured on all sets yet: Fast, Wrong." in text
    assert "Which is the fastest is not measured yet" in text
    assert "Use " not in text
    assert "| Wrong |  |  |  |  |  |  |  |" in text


def test_a_busy_machine_is_said():
    busy = latency() | {"quiet_machine": False, "load_average": {"before": [3.2, 1, 1]}}
    assert "**on a busy machine** (load 3.2)" in page.section(study() | {"latency": busy}, STUDY)


def test_the_page_holds_what_its_command_writes(tmp_path):
    shown = ROOT / "docs" / "deployment.md"
    copy = tmp_path / "deployment.md"
    copy.write_text(shown.read_text())
    for each in STUDIES.values():
        page.write_page(json.loads(each.result.read_text()), each, copy)
    assert copy.read_text() == shown.read_text()


def test_flow_is_told_by_epe_and_fl():
    def figures(fl: float) -> dict:
        return {
            name: {"scenes": 5, "px_from_pytorch": fl / 100, "all": {"epe": 2, "fl": fl}, **mask}
            for name, mask in zip(FLOW.pairs, ({"noc": {"epe": 1, "fl": fl / 2}}, {}, {}, {}, {}))
        }

    found = {
        "files": {"rt-flow.onnx": {"megabytes": 44.3, "nodes": 9}},
        "accuracy": {"environment": ENVIRONMENT, "engines": {"PyTorch fp32": figures(8), "OpenVINO fp32": figures(9)}},
    }
    text = page.section(found, FLOW)
    row = "| OpenVINO fp32 |" + " 2.00 / 9.00 |" * 5 + " 0.0900 | 44.3 | 9 |  |"
    assert row in text
    assert "less than 0.1 points of Fl: PyTorch fp32." in text
    assert "OpenVINO fp32 loses 1.00 points (Fl all of Sintel)." in text


@pytest.fixture
def script(monkeypatch, tmp_path):
    """`cpu_engines.main` for two studies of one scene a set, with engines that are always 0 and (3, 4) px off."""
    asked: list[str] = []

    class Matcher:
        def __init__(self, study, name, files, threads):
            self.settings = {"name": name}
            self.off = np.float32([0, 0] if name == "PyTorch fp32" else [3, 4])
            self.task = "flow" if study.model == "rt-flow" else "stereo"

        def __call__(self, first, second, sample):
            asked.append(self.settings["name"])
            field = np.tile(4 + self.off, (*first.shape[:2], 1))
            return field if self.task == "flow" else field[..., 0]

    for dataset in ("one", "two"):
        scene = tmp_path / dataset / "scene"
        scene.mkdir(parents=True)
        for name in ("im0", "im1", "frame1", "frame2"):
            Image.fromarray(np.random.default_rng(0).integers(0, 255, (32, 64, 3), np.uint8)).save(
                scene / f"{name}.png"
            )
        Image.fromarray(np.full((32, 64), 255, np.uint8)).save(scene / "mask0nocc.png")
        write_pfm(scene / "disp0GT.pfm", np.full((32, 64), 4, np.float32))
        write_flo(scene / "flow.flo", np.full((32, 64, 2), 4, np.float32))

    def small(study, dataset):
        pairs = list(study.pairs.items())[:2]
        renamed = {
            key: each._replace(dataset=dataset, folder=folder, split=None, patterns=None)
            for (key, each), folder in zip(pairs, ("one", "two"))
        }
        return study._replace(pairs=renamed)

    monkeypatch.setattr(cpu_engines_studies, "RESULTS", tmp_path)
    monkeypatch.setattr(cpu_engines, "STUDIES", {"rt": small(STEREO, "folder"), "rt-flow": small(FLOW, "folder-flow")})
    monkeypatch.setattr(cpu_engines, "Matcher", Matcher)
    monkeypatch.setattr(cpu_engines, "prepare", lambda study, files, engines: {})

    def run(*engines: str, model: str = "rt") -> tuple[dict, list[str]]:
        asked.clear()
        words = ["accuracy", "--model", model, "--data", tmp_path, "--files", tmp_path / "files"]
        monkeypatch.setattr(sys, "argv", ["cpu_engines.py", *map(str, words), "--engines", *engines])
        assert cpu_engines.main() == 0
        return json.loads((tmp_path / f"cpu-engines-{model}.json").read_text()), list(asked)

    return run


def test_a_stopped_run_goes_on(script, tmp_path):
    found, asked = script("PyTorch fp32")
    assert asked == ["PyTorch fp32"] * 2
    assert found["accuracy"]["engines"]["PyTorch fp32"]["kitti2015"]["all"]["epe"] == 0
    del found["accuracy"]["engines"]["PyTorch fp32"]["kitti2015"]
    (tmp_path / "cpu-engines-rt.json").write_text(json.dumps(found))
    found, asked = script("PyTorch fp32", "OpenVINO fp32")
    assert asked == ["PyTorch fp32", "OpenVINO fp32", "OpenVINO fp32"]
    assert found["accuracy"]["engines"]["OpenVINO fp32"]["middlebury"]["px_from_pytorch"] == 3


def test_flow_is_compared_vector_by_vector(script):
    found, _ = script("PyTorch fp32", "ONNX Runtime fp32", model="rt-flow")
    figures = found["accuracy"]["engines"]["ONNX Runtime fp32"]["kitti2012"]
    assert figures["px_from_pytorch"] == 5
    assert figures["all"] == {"epe": 5, "fl": 100}


def test_an_engine_that_a_study_has_not_is_refused(script, capsys):
    with pytest.raises(SystemExit, match="2"):
        script("OpenVINO int8", model="rt-flow")
    assert "rt-flow has no engine OpenVINO int8" in capsys.readouterr().err
