"""Scenes as files: Middlebury's layout that our own readers, and the geometry in them, agree with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from matchattention.data.formats import read_pfm
from matchattention.data.images import read_image
from matchattention.errors import InputError
from matchattention.geometry.camera import StereoCamera
from matchattention.synth.stream.export import (
    ExportedScene,
    _settings,
    calibration_text,
    export,
    render_scene,
    write_scene,
)
from matchattention.synth.stream.scene_stream import SceneStream
from matchattention.synth.world.config import PRESETS

SIZE = (48, 64)


def stream(seed: int = 1) -> SceneStream:
    config = replace(PRESETS["small"], layouts={"tabletop": 1.0}, photos=0.0)
    return SceneStream(config, SIZE, 1, seed, "cpu")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scenes")
    export(stream(), "small", 2, folder)
    return folder


def test_layout_is_middleburys(exported: Path):
    names = {"im0.png", "im1.png", "disp0GT.pfm", "disp1GT.pfm", "mask0nocc.png", "calib.txt"}
    assert sorted(path.name for path in exported.iterdir()) == ["000000", "000001", "render.json"]
    assert {path.name for path in (exported / "000000").iterdir()} == names


def test_files_hold_what_was_rendered(exported: Path):
    scene = render_scene(stream(), 1)
    folder = exported / "000001"
    assert np.array_equal(read_image(folder / "im0.png"), scene.image0)
    assert np.array_equal(read_image(folder / "im1.png"), scene.image1)
    assert np.array_equal(read_pfm(folder / "disp0GT.pfm"), scene.disparity0)
    assert np.array_equal(read_pfm(folder / "disp1GT.pfm"), scene.disparity1)
    mask = read_image(folder / "mask0nocc.png")[..., 0]
    assert set(np.unique(mask)) <= {0, 128, 255}
    assert np.array_equal(mask == 128, scene.occluded0 & np.isfinite(scene.disparity0))
    assert scene.image0.std() > 3


def test_calibration_gives_the_rendered_depth(exported: Path):
    camera = StereoCamera.from_file(exported / "000000" / "calib.txt")
    depth = stream().rendered(range(0, 1)).depth[0, 0].numpy()
    disparity = read_pfm(exported / "000000" / "disp0GT.pfm")
    near = np.isfinite(disparity) & (disparity > 0.5)
    assert near.mean() > 0.5
    np.testing.assert_allclose(camera.depth(disparity)[near], depth[near], rtol=1e-4)


def test_warping_right_by_the_files_gives_left(exported: Path):
    """The mask and the disparity belong to these images: a wrong disparity fits worse."""
    folder = exported / "000000"
    left, right = (read_image(folder / name).astype(float) for name in ("im0.png", "im1.png"))
    disparity = read_pfm(folder / "disp0GT.pfm")
    visible = read_image(folder / "mask0nocc.png")[..., 0] == 255

    def error(scale: float) -> float:
        column = np.clip(np.rint(np.arange(SIZE[1]) - scale * disparity), 0, SIZE[1] - 1).astype(int)
        warped = np.take_along_axis(right, column[..., None], axis=1)
        return float(np.abs(warped - left)[visible].mean())

    assert error(1.0) < error(0.7)
    assert error(1.0) < error(0.0)


def test_export_resumes_and_adds(tmp_path: Path):
    export(stream(), "small", 1, tmp_path)
    before = (tmp_path / "000000" / "im0.png").stat().st_mtime_ns
    seen: list[tuple[str, bool]] = []
    export(stream(), "small", 2, tmp_path, lambda name, present: seen.append((name, present)))
    assert seen == [("000000", True), ("000001", False)]
    assert (tmp_path / "000000" / "im0.png").stat().st_mtime_ns == before


def test_other_settings_are_refused(tmp_path: Path):
    export(stream(), "small", 1, tmp_path)
    with pytest.raises(InputError, match="seed 1, not 2"):
        export(stream(2), "small", 1, tmp_path)
    (tmp_path / "render.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        export(stream(), "small", 1, tmp_path)
    with pytest.raises(InputError, match="is a file"):
        export(stream(), "small", 1, tmp_path / "render.json")


def test_nothing_half_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    scene = render_scene(stream(), 0)
    monkeypatch.setattr(
        "matchattention.synth.stream.export.write_pfm", lambda *_: (_ for _ in ()).throw(OSError("full"))
    )
    with pytest.raises(OSError, match="full"):
        write_scene(tmp_path / "000000", scene)
    assert list(tmp_path.iterdir()) == []


def test_calibration_of_unknown_disparity():
    unknown = np.full(SIZE, np.inf, np.float32)
    image = np.zeros((*SIZE, 3), np.uint8)
    scene = ExportedScene(image, image, unknown, unknown, np.zeros(SIZE, bool), 50.0, (31.5, 23.5), 0.1)
    assert "baseline=100.000000" in calibration_text(scene)
    assert "ndisp=1" in calibration_text(scene)


def test_same_seed_same_scene():
    first, second = render_scene(stream(), 0), render_scene(stream(), 0)
    assert np.array_equal(first.image0, second.image0)
    assert not np.array_equal(first.image0, render_scene(stream(5), 0).image0)
    assert torch.isfinite(torch.from_numpy(first.disparity0)).float().mean() > 0.9


@pytest.mark.parametrize(("has_photos", "noted"), [(True, 0.5), (False, 0.0)])
def test_settings_note_the_share_of_photos_that_were_there(has_photos, noted):
    config = replace(PRESETS["small"], photos=0.5)
    stream = SimpleNamespace(config=config, has_photos=has_photos, seed=3, size=(8, 8))
    assert _settings(stream, "small") == {"preset": "small", "seed": 3, "size": [8, 8], "photos": noted}
