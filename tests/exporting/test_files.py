"""Files: one, small, standard, of any size, and only there when they agree with PyTorch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import matchattention as ma
from matchattention.cli.main import main
from matchattention.errors import InputError
from matchattention.exporting import check
from matchattention.exporting.onnx_file import count_nodes
from matchattention.exporting.predictor import ExportedPredictor
from matchattention.exporting.runtime import OnnxRuntime, OpenVinoRuntime, TorchRuntime
from matchattention.models.network import coarse_field
from tests.exporting.test_network import expected, images

ROOT = Path(__file__).resolve().parents[2]


def test_one_small_file_of_standard_operators(tiny, onnx_file):
    assert [path.name for path in onnx_file.path.parent.iterdir()] == ["tiny.onnx"]
    weights = 4 * sum(weight.numel() for weight in tiny.parameters())
    assert onnx_file.bytes < 1.2 * weights + 500_000  # the graph of a network of any size takes some
    assert str(ROOT).encode() not in onnx_file.path.read_bytes()
    counts = count_nodes(onnx_file.path)
    assert not [name for name in counts if "::" in name]
    assert "GridSample" not in counts
    assert sum(counts.values()) == onnx_file.nodes < 1100
    assert max(difference.mean for difference in onnx_file.differences) < 1e-3


@pytest.mark.parametrize("shape", [(2, 64, 96), (1, 32, 64), (3, 160, 32)], ids=str)
def test_any_batch_and_size(tiny, onnx_file, shape):
    batch, height, width = shape
    pair = images(height, width, batch)
    left, right = OnnxRuntime(onnx_file.path)(*(image.numpy() for image in pair))
    assert left.shape == right.shape == (batch, height, width)
    with torch.inference_mode():
        truth = expected(tiny, *pair).numpy()
    np.testing.assert_allclose(np.concatenate((-left, right)), truth, rtol=0, atol=5e-3)


def test_file_as_predictor(tiny, onnx_file):
    left, right = (np.random.default_rng(0).integers(0, 255, (75, 110, 3), np.uint8) for _ in range(2))
    exported = ExportedPredictor(onnx_file.path).match(left, right)
    plain = ma.Predictor(tiny, "cpu", check=False).match(left, right)
    np.testing.assert_allclose(exported.disparity, plain.disparity, rtol=0, atol=5e-3)
    np.testing.assert_allclose(exported.disparity_right, plain.disparity_right, rtol=0, atol=5e-3)


def test_large_images_start_at_half_resolution(tiny, onnx_file, monkeypatch):
    monkeypatch.setattr("matchattention.models.network.LARGE", 64)
    monkeypatch.setattr("matchattention.exporting.predictor.LARGE", 64)
    pair = images(60, 100)

    def half(first, second):
        """What a file can say at half resolution: disparities, which are not negative."""
        x = expected(tiny, first, second)
        return torch.stack((x, torch.zeros_like(x)), -1)

    with torch.inference_mode():
        truth = expected(tiny, *pair, coarse_field(half, *pair))
        unaided = expected(tiny, *pair, torch.zeros(2, 60, 100, 2))
    field = ExportedPredictor(onnx_file.path).field(*pair)[..., 0]
    assert (field - truth).abs().mean() < 5e-3 < (truth - unaided).abs().mean()


def test_predict_command(onnx_file, tmp_path):
    code = main(
        ["predict", "--example", "--model", str(onnx_file.path), "--no-check", "--output", str(tmp_path / "out")]
    )
    assert code == 0
    assert (tmp_path / "out" / "disparity.pfm").is_file()
    assert main(["predict", "--example", "--engine", "onnx", "--output", str(tmp_path / "other")]) == 2


def test_openvino(tiny, tmp_path):
    pytest.importorskip("openvino")
    pytest.importorskip("onnxscript")
    done = ma.export(tiny, tmp_path / "tiny.xml", size=(64, 96))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.bin", "tiny.xml"]
    assert OpenVinoRuntime(done.path).size == (64, 96)
    assert max(difference.mean for difference in done.differences) < 1e-3


def test_torch_export(tiny, tmp_path):
    done = ma.export(tiny, tmp_path / "tiny.pt2", size=(64, 96))
    assert TorchRuntime(done.path).size == (64, 96)
    assert max(difference.mean for difference in done.differences) < 1e-4


def test_disagreement_leaves_nothing(tiny, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("matchattention.exporting.write.write_pt2", lambda *call: call[1].write_text("x"))
    monkeypatch.setattr("matchattention.exporting.write.TorchRuntime", lambda path: None)
    off = [check.Difference((64, 96), 0.02, 1.0)]
    monkeypatch.setattr("matchattention.exporting.write.compare", lambda *call: off)
    with pytest.raises(InputError, match=r"differs from PyTorch by 0\.0200 px"):
        ma.export(tiny, tmp_path / "tiny.pt2")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["--output", "rt.tflite"],
        ["--output", "nowhere/rt.onnx"],
        ["--output", "rt.onnx", "--size", "100x200"],
        ["--output", "rt.onnx", "--size", "big"],
        ["--output", "rt.onnx", "--precision", "int3"],
        ["--output", "rt.onnx", "--compile"],
    ],
    ids=" ".join,
)
def test_mistakes(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["export", *words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_missing_package(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"pip install 'matchattention\[export\]'"):
        ma.export(tiny, tmp_path / "rt.onnx")


def test_example_without_torch(onnx_file, tmp_path):
    script = ROOT / "examples" / "onnx_runtime" / "predict.py"
    assert len(script.read_text().splitlines()) <= 50
    pair = ROOT / "matchattention" / "examples" / "donkey"
    block = "import sys, runpy; sys.modules['torch'] = None; sys.modules['matchattention'] = None; "
    run = "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    output = tmp_path / "disparity.npy"
    command = [sys.executable, "-c", block + run, script, onnx_file.path, pair / "left.png", pair / "right.png", output]
    subprocess.run(command, check=True, cwd=tmp_path)
    plain = ExportedPredictor(onnx_file.path)(pair / "left.png", pair / "right.png", check=False)
    np.testing.assert_allclose(np.load(output), plain.disparity, rtol=0, atol=1e-3)
