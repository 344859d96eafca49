"""`matchattention rectify` and `matchattention doctor`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from matchattention.cli import doctor
from matchattention.cli.main import main
from matchattention.geometry import StereoCamera


@pytest.fixture(autouse=True)
def _no_interpreter(monkeypatch) -> None:
    """The suite runs Triton's kernels in its interpreter, which takes minutes for the doctor's problems."""
    monkeypatch.setenv("TRITON_INTERPRET", "0")


def test_rectify_writes_a_pair_and_its_camera(tmp_path, capsys) -> None:
    pytest.importorskip("cv2")
    from PIL import Image

    from tests.geometry import test_rectification as rig

    raw = [str(tmp_path / name) for name in ("raw_left.png", "raw_right.png")]
    Image.fromarray(rig.raw_view(np.eye(3), np.zeros(3))).save(raw[0])
    Image.fromarray(rig.raw_view(rig.ROTATION, rig.TRANSLATION)).save(raw[1])
    calibration = rig.calibration_file(tmp_path)
    out = tmp_path / "rectified"
    assert main(["rectify", *raw, "--calibration", str(calibration), "--output", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["camera.json", "left.png", "right.png"]
    camera = StereoCamera.from_file(out / "camera.json")
    assert camera.baseline == pytest.approx(float(np.linalg.norm(rig.TRANSLATION)))
    assert (camera.width, camera.height) == (320, 240)
    assert "vertical error of matches" in capsys.readouterr().out
    assert main(["rectify", *raw, "--calibration", raw[0], "--output", str(tmp_path / "no")]) == 2
    assert main(["rectify", *raw, "--calibration", str(calibration), "--output", str(out), "--keep", "2"]) == 2
    assert not (tmp_path / "no").exists()


def test_rectify_does_not_overwrite_what_it_reads(tmp_path, capsys) -> None:
    pytest.importorskip("cv2")
    from PIL import Image

    from tests.geometry import test_rectification as rig

    raw = [tmp_path / "left.png", tmp_path / "right.png"]
    for path in raw:
        Image.fromarray(rig.raw_view(np.eye(3), np.zeros(3))).save(path)
    before = [path.read_bytes() for path in raw]
    calibration = str(rig.calibration_file(tmp_path))
    assert main(["rectify", *map(str, raw), "--calibration", calibration, "--output", str(tmp_path)]) == 2
    assert "would overwrite" in capsys.readouterr().err
    assert [path.read_bytes() for path in raw] == before


def test_a_calibration_that_leaves_nothing_is_refused(tmp_path, capsys) -> None:
    cv2 = pytest.importorskip("cv2")
    from PIL import Image

    from tests.geometry import test_rectification as rig

    raw = [str(tmp_path / name) for name in ("raw_left.png", "raw_right.png")]
    Image.fromarray(rig.raw_view(np.eye(3), np.zeros(3))).save(raw[0])
    Image.fromarray(rig.raw_view(rig.ROTATION, rig.TRANSLATION)).save(raw[1])
    good = cv2.FileStorage(str(rig.calibration_file(tmp_path)), cv2.FILE_STORAGE_READ)
    bad = cv2.FileStorage(str(tmp_path / "bad.yml"), cv2.FILE_STORAGE_WRITE)
    for name in ("K1", "D1", "K2", "D2", "R", "T"):
        bad.write(name, good.getNode(name).mat() if name[0] != "D" else np.full((1, 5), 1e9))
    bad.release()
    assert main(["rectify", *raw, "--calibration", str(tmp_path / "bad.yml"), "--output", str(tmp_path / "out")]) == 2
    assert "leaves nothing of the images" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_doctor_reports_machine_packages_and_backends(capsys) -> None:
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert torch.__version__ in printed
    assert "triton      cpu   does not run" in printed
    assert "planes      cpu   float32   4x4  ok" in printed
    assert "  reference" not in printed  # nothing is compared with itself
    assert "opaque" not in printed
    if not torch.cuda.is_available():
        assert "skipped, kernels need a CUDA GPU: depthwise 3x3, ConvGLU mix, LayerNorm" in printed
    assert "opencv" in printed


def test_doctor_tells_a_wrong_backend(capsys, monkeypatch) -> None:
    from matchattention.ops.match_attention import backends

    right = backends.BACKENDS["reference"]

    def wrong(*call):
        out, weights = right.run(*call)
        return out * 1.01, weights

    monkeypatch.setitem(backends.BACKENDS, "triton", right._replace(name="triton", run=wrong))
    assert main(["doctor"]) == 2
    captured = capsys.readouterr()
    assert "WRONG" in captured.out
    assert "triton on cpu" in captured.err


def test_doctor_turns_what_a_backend_throws_into_a_reason(capsys, monkeypatch) -> None:
    from matchattention.ops.match_attention import backends

    def explodes(*call):
        raise RuntimeError("no C compiler found\nand much more")

    reference = backends.BACKENDS["reference"]
    monkeypatch.setitem(backends.BACKENDS, "triton", reference._replace(name="triton", run=explodes))
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "no C compiler found" in printed
    assert "and much more" not in printed


def test_parity_allows_twice_plain_pytorch_and_no_more() -> None:
    assert doctor.Parity(1.9e-3, 1e-3, 1e-3, 1e-3).fine
    assert not doctor.Parity(2.1e-3, 1e-3, 1e-3, 1e-3).fine
    assert not doctor.Parity(1e-3, 1e-3, 2.1e-3, 1e-3).fine


def test_doctor_tells_a_wrong_kernel_and_one_that_does_not_run(capsys, monkeypatch) -> None:
    from matchattention.bench import parity

    def explodes():
        raise RuntimeError("out of resource: shared memory, Required: 163840, Hardware limit: 101376")

    rows = {
        "fused block": lambda: parity.Parity(3e-4, 1e-3),
        "lean block": lambda: parity.Parity(float("nan"), 1e-3),
        "renderer": explodes,
    }
    monkeypatch.setattr(parity, "why_not", lambda device: None)
    monkeypatch.setattr(parity, "cases", lambda device: rows)
    assert main(["doctor"]) == 2
    captured = capsys.readouterr()
    assert "fused block                       ok  3.0e-04 (1.0e-03)" in captured.out
    assert "lean block                        WRONG" in captured.out
    assert "renderer                          does not run: RuntimeError: out of resource" in captured.out
    assert "lean block gives wrong results" in captured.err
