"""Files: one, small, standard, of any size, and only there when they agree with PyTorch."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import matchattention as ma
from matchattention.cli.main import main
from matchattention.data.formats import write_pfm
from matchattention.errors import InputError, InputWarning
from matchattention.exporting import check
from matchattention.exporting.int8 import SENSITIVE, quantise, rendered_pairs
from matchattention.exporting.onnx_file import count_nodes
from matchattention.exporting.other_files import write_pt2
from matchattention.exporting.predictor import ExportedPredictor
from matchattention.exporting.program import trace
from matchattention.exporting.runtime import OnnxRuntime, OpenVinoRuntime, TorchRuntime
from matchattention.models.network import coarse_field
from tests.exporting.conftest import TINY, lively
from tests.exporting.test_network import VARIANTS, expected, images

onnx = pytest.importorskip("onnx", reason="exports need the extra 'export'")
onnxruntime = pytest.importorskip("onnxruntime", reason="exports need the extra 'export'")
pytest.importorskip("onnxscript", reason="exports need the extra 'export'")
pytest.importorskip("openvino", reason="OpenVINO files need the extra 'openvino'")

SHORT = replace(TINY, decoder_depths=(1, 0, 0, 0))  # torch.export alone: an operator more is a longer test
ROOT = Path(__file__).resolve().parents[2]


def test_one_small_file_of_standard_operators(tiny, onnx_file):
    assert [path.name for path in onnx_file.path.parent.iterdir()] == ["tiny.onnx"]
    weights = 4 * sum(weight.numel() for weight in tiny.parameters())
    assert onnx_file.bytes < 1.2 * weights + 500_000  # the graph of a network of any size takes some
    assert str(ROOT).encode() not in onnx_file.path.read_bytes()
    facts = {entry.key: entry.value for entry in onnx.load(onnx_file.path).metadata_props}
    assert [facts[key] for key in ("task", "precision", "size")] == ["stereo", "fp32", "any"]
    assert json.loads(facts["config"])["channels"] == list(TINY.channels)
    counts = count_nodes(onnx_file.path)
    assert not [name for name in counts if "::" in name]
    assert "GridSample" not in counts
    assert sum(counts.values()) == onnx_file.nodes < 1000
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


def test_flow_of_any_size(tmp_path):
    model = lively(replace(VARIANTS["flow"], decoder_depths=(1, 0, 0, 0)))
    done = ma.export(model, tmp_path / "flow.onnx")
    assert max(difference.mean for difference in done.differences) < 1e-3
    pair = [np.random.default_rng(seed).integers(0, 255, (40, 75, 3), np.uint8) for seed in range(2)]
    exported = ExportedPredictor(done.path).match(*pair)
    assert exported.task == "flow"
    plain = ma.Predictor(model, "cpu", check=False).match(*pair)
    assert np.median(np.abs(exported.flow - plain.flow)) < 1e-3
    with pytest.warns(InputWarning, match="leave --precision bf16 out"):
        ExportedPredictor(done.path, "openvino", "bf16")
    example = runpy.run_path(str(ROOT / "examples" / "onnx_runtime" / "predict.py"))
    session = onnxruntime.InferenceSession(done.path)
    for height, width in ((40, 75), (64, 2112)):  # the second starts from its own answer at half resolution
        pair = [np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8) for seed in range(2)]
        found, _ = example["match"](session, *(np.float32(image.transpose(2, 0, 1)[None]) for image in pair))
        exported = ExportedPredictor(done.path).match(*pair)
        assert np.median(np.abs(found.transpose(1, 2, 0) - exported.flow)) < 1e-3


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
    with pytest.warns(InputWarning, match=r"starts at half resolution, which this file cannot"):
        ExportedPredictor(onnx_file.path, "openvino", threads=1).field(*pair)


def test_predict_command(onnx_file, tmp_path, capsys):
    code = main(
        ["predict", "--example", "--model", str(onnx_file.path), "--no-check", "--output", str(tmp_path / "out")]
    )
    assert code == 0
    assert (tmp_path / "out" / "disparity.pfm").is_file()
    other = ["--output", str(tmp_path / "other"), "--model", str(onnx_file.path)]
    assert main(["predict", "--example", "--engine", "onnx", *other[:2]]) == 2  # rt is no exported file
    assert main(["predict", "--example", "--engine", "openvino", "--precision", "fp16", *other]) == 2
    assert main(["predict", "--example", "--precision", "bf16", *other]) == 2
    assert main(["predict", "--example", "--device", "cuda", *other]) == 2
    assert "leave --device cuda out" in capsys.readouterr().err
    assert main(["export", "--model", other[3], "--output", str(tmp_path / "other.onnx")]) == 2
    assert main(["serve", "--model", other[3], "--port", "0"]) == 2
    assert capsys.readouterr().err.count("needs the checkpoint it was made from") == 2
    assert not list(tmp_path.glob("other*"))


def test_evaluate_command(onnx_file, tmp_path, capsys):
    scene = tmp_path / "scenes" / "one"
    scene.mkdir(parents=True)
    for name, image in zip(("left", "right"), np.random.default_rng(1).integers(0, 255, (2, 64, 96, 3), np.uint8)):
        Image.fromarray(image).save(scene / f"{name}.png")
    write_pfm(scene / "truth.pfm", np.full((64, 96), 4, np.float32))
    patterns = ["--left", "*/left.png", "--right", "*/right.png", "--truth", "*/truth.pfm"]
    common = ["evaluate", "folder", str(tmp_path / "scenes"), *patterns, "--model", str(onnx_file.path)]
    for engine in ("onnx", "openvino"):
        assert main([*common, "--engine", engine, "--json", str(tmp_path / f"{engine}.json")]) == 0
    a, b = (json.loads((tmp_path / f"{name}.json").read_text())["mean_over_scenes"] for name in ("onnx", "openvino"))
    assert a["all"]["epe"] == pytest.approx(b["all"]["epe"], abs=1e-2)
    capsys.readouterr()
    assert main([*common[:-1], "rt", "--engine", "onnx"]) == 2
    assert "--engine onnx runs exported files" in capsys.readouterr().err


def test_openvino_gives_the_same_at_any_size(tiny, onnx_file, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "matchattention.exporting.other_files.write_onnx", lambda _, path, *more: shutil.copy(onnx_file.path, path)
    )
    done = ma.export(tiny, tmp_path / "tiny.xml")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.bin", "tiny.xml"]
    assert OpenVinoRuntime(done.path).size is None
    assert len({difference.size for difference in done.differences}) == 3
    assert max(difference.mean for difference in done.differences) < 1e-3
    pair = [np.random.default_rng(0).integers(0, 255, (75, 110, 3), np.uint8) for _ in range(2)]
    by_onnx = ExportedPredictor(onnx_file.path, "openvino", threads=1).match(*pair)
    np.testing.assert_allclose(ExportedPredictor(done.path).match(*pair).disparity, by_onnx.disparity, atol=1e-3)


def test_openvino_is_right_after_the_smallest_image(onnx_file):
    by_openvino, by_onnx = ExportedPredictor(onnx_file.path, "openvino", threads=1), ExportedPredictor(onnx_file.path)
    for height, width in ((20, 20), (192, 320)):
        pair = [np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8) for seed in range(2)]
        found = by_openvino.match(*pair).disparity
    assert np.abs(found - by_onnx.match(*pair).disparity).mean() < 0.01


def test_torch_export(tmp_path):
    done = ma.export(lively(SHORT), tmp_path / "tiny.pt2", size=(64, 96))
    assert TorchRuntime(done.path).size == (64, 96)
    with zipfile.ZipFile(done.path) as archive:
        assert sum(part.file_size for part in archive.infolist() if "sample_inputs" in part.filename) < 10_000
        program = next(archive.read(name) for name in archive.namelist() if name.endswith("models/model.json"))
    assert str(ROOT).encode() not in program
    assert ExportedPredictor(done.path).task == "stereo"
    assert max(difference.mean for difference in done.differences) < 1e-4


def test_a_network_that_computes_in_half_is_compared_in_fp32(tmp_path):
    model = lively(SHORT).bfloat16().train()
    done = ma.export(model, tmp_path / "tiny.pt2", size=(64, 96))
    assert max(difference.mean for difference in done.differences) < 1e-4
    assert model.training
    assert next(model.parameters()).dtype == torch.bfloat16


@pytest.mark.parametrize("model", [Path("nowhere.safetensors"), 3], ids=str)
def test_what_is_no_network(model, tmp_path):
    with pytest.raises(InputError):
        ma.export(model, tmp_path / "rt.onnx")
    assert not list(tmp_path.iterdir())


class _Colours(torch.nn.Module):
    """Two images in, two channels of each out in the place of motion."""

    def forward(self, first, second):
        return 2 * first[:, :2], 2 * second[:, :2]


def test_a_compiled_file_says_its_task_and_size_and_takes_any_layout(tmp_path, monkeypatch, capfd):
    """Not the network itself, whose kernels a compiler needs minutes for."""
    zeros = torch.zeros(1, 3, 64, 96)
    monkeypatch.setattr(
        "matchattention.exporting.other_files.trace", lambda *_, **__: torch.export.export(_Colours(), (zeros, zeros))
    )
    write_pt2(lively(VARIANTS["flow"]), tmp_path / "colours.pt2", (64, 96), compiled=True)
    capfd.readouterr()
    exported = ExportedPredictor(tmp_path / "colours.pt2")
    assert (exported.task, exported.runtime.size) == ("flow", (64, 96))
    assert exported.field(*images(20, 33)).shape == (2, 20, 33, 2)
    pixels = np.random.default_rng(0).uniform(0, 255, (1, 64, 96, 3)).astype(np.float32)
    found, _ = exported.runtime(pixels.transpose(0, 3, 1, 2), pixels.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(found, 2 * pixels.transpose(0, 3, 1, 2)[:, :2])
    assert capfd.readouterr() == ("", "")


def test_torch_export_of_any_size_and_batch(tmp_path):
    model = lively(SHORT)
    traced = trace(model, start=False)
    program = traced.module()
    for batch, height, width in ((1, 64, 96), (3, 96, 64)):
        pair = images(height, width, batch)
        with torch.inference_mode():
            found = torch.cat([sign * field for sign, field in zip((-1, 1), program(*pair))])
            assert (found - expected(model, *pair)).abs().mean() < 1e-3
    torch.export.save(traced, tmp_path / "any.pt2")
    small = [np.random.default_rng(0).integers(0, 255, (20, 33, 3), np.uint8) for _ in range(2)]
    assert ExportedPredictor(tmp_path / "any.pt2").match(*small).disparity.shape == (20, 33)


def test_int8_leaves_sensitive_layers_alone(onnx_file, tmp_path):
    pairs = [tuple(image.numpy() for image in images(64, 96))]
    quantise(onnx_file.path, tmp_path / "int8.onnx", iter(pairs))
    assert (tmp_path / "int8.onnx").stat().st_size < onnx_file.bytes
    proto = onnx.load(tmp_path / "int8.onnx")
    eight = {name for node in proto.graph.node if node.op_type == "DequantizeLinear" for name in node.input}
    stored = {weight.name for weight in proto.graph.initializer}
    weights = {name.removesuffix("_quantized") for name in eight & stored if name.endswith("_quantized")}
    assert {"encoder.downsamplings.0.conv.weight", "features.0.join.weight"} <= weights
    assert not [name for name in weights if SENSITIVE.search(name)]
    kept = {"encoder.stem", ".qkv.", ".qkvg.", ".out.", "fields.0.weight", "final.weight"}
    assert all(any(part in name for name in stored - weights) for part in kept)
    found, truth = OnnxRuntime(tmp_path / "int8.onnx")(*pairs[0]), OnnxRuntime(onnx_file.path)(*pairs[0])
    assert found[0].shape == truth[0].shape
    assert 0 < np.abs(found[0] - truth[0]).mean() < 2


def test_calibration_scenes_are_always_the_same(monkeypatch):
    monkeypatch.setattr("matchattention.exporting.int8.SCENES", 1)
    monkeypatch.setenv("MATCHATTENTION_PHOTO_BANK", "nowhere")  # whether there is one makes no difference
    (first,), (again,) = rendered_pairs((64, 96)), rendered_pairs((64, 96))
    assert first[0].shape == (1, 3, 64, 96)
    assert first[0].std() > 5
    np.testing.assert_array_equal(first[1], again[1])


@pytest.mark.parametrize(("name", "precision"), [("xl.onnx", "fp32"), ("xl.onnx", "int8"), ("xl.xml", "fp16")])
def test_networks_beyond_protobufs_limit_are_told_what_works(name, precision, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("matchattention.exporting.write._LARGEST", 1000)
    with pytest.raises(InputError, match=r"\.onnx with --precision fp16, or one that ends in \.pt2"):
        ma.export(tiny, tmp_path / name, precision=precision)
    assert not list(tmp_path.iterdir())


def test_int8_is_for_stereo(tmp_path):
    flow = lively(VARIANTS["flow"])
    with pytest.raises(InputError, match="not measured for flow"):
        ma.export(flow, tmp_path / "flow.onnx", precision="int8")


def test_disagreement_leaves_nothing(tiny, tmp_path, monkeypatch):
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
        ["--output", "rt.pt2", "--precision", "int8"],
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
