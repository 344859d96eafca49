"""The C++ example, compiled against ONNX Runtime's headers and run with the library of its Python wheel."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from matchattention.data.formats import read_pfm
from matchattention.exporting.predictor import ExportedPredictor

ROOT = Path(__file__).resolve().parents[2]
HEADERS = (ROOT / "build/onnxruntime/usr/include/onnxruntime", Path("/usr/include/onnxruntime"))


def headers() -> Path:
    found = [folder for folder in HEADERS if (folder / "onnxruntime_cxx_api.h").is_file()]
    if not found:
        pytest.skip("ONNX Runtime's C++ headers are not here: scripts/onnxruntime_headers.sh fetches them")
    return found[0]


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Path:
    onnxruntime = pytest.importorskip("onnxruntime")
    compiler = shutil.which("g++")
    wheel = sorted((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"))
    include = headers()
    if compiler is None or not wheel:
        pytest.skip("needs g++ and a wheel of ONNX Runtime with libonnxruntime.so")
    folder = tmp_path_factory.mktemp("cpp")
    (folder / "libonnxruntime.so.1").symlink_to(wheel[-1])  # the name the program asks for
    source = ROOT / "examples" / "onnx_runtime_cpp" / "predict.cpp"
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-isystem", include]
    subprocess.run(
        [compiler, *flags, source, wheel[-1], f"-Wl,-rpath,{folder}", "-o", folder / "predict"], check=True, timeout=120
    )
    return folder / "predict"


def test_same_disparity_as_python(program, onnx_file, tmp_path):
    dice = np.random.default_rng(0)
    pair = dice.integers(0, 255, (2, 75, 110, 3), np.uint8)
    files = [tmp_path / "left.ppm", tmp_path / "right.ppm"]
    for path, image in zip(files, pair):
        Image.fromarray(image).save(path)
    subprocess.run([program, onnx_file.path, *files, tmp_path / "disparity.pfm"], check=True, timeout=120)
    plain = ExportedPredictor(onnx_file.path).match(pair[0], pair[1])
    np.testing.assert_allclose(read_pfm(tmp_path / "disparity.pfm"), plain.disparity, rtol=0, atol=1e-3)


def test_large_images_start_at_half_resolution_as_in_python(program, onnx_file, tmp_path):
    import onnxruntime

    example = runpy.run_path(str(ROOT / "examples" / "onnx_runtime" / "predict.py"))
    pair = np.random.default_rng(0).integers(0, 255, (2, 40, 2060, 3), np.uint8)
    files = [tmp_path / "left.ppm", tmp_path / "right.ppm"]
    for path, image in zip(files, pair):
        Image.fromarray(image).save(path)
    subprocess.run([program, onnx_file.path, *files, tmp_path / "disparity.pfm"], check=True, timeout=120)
    expected, _ = example["match"](onnxruntime.InferenceSession(onnx_file.path), *map(example["read"], files))
    np.testing.assert_allclose(read_pfm(tmp_path / "disparity.pfm"), expected, rtol=0, atol=1e-3)


def test_mistakes_are_one_sentence(program, onnx_file, tmp_path):
    (tmp_path / "left.ppm").write_bytes(b"P6 4 4 255\n123")
    for words in (
        [],
        [onnx_file.path, "none.ppm", "none.ppm", "out.pfm"],
        [onnx_file.path, *["left.ppm"] * 2, "o.pfm"],
    ):
        done = subprocess.run(
            [program, *words], cwd=tmp_path, capture_output=True, text=True, env=os.environ, timeout=60
        )
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["left.ppm"]
