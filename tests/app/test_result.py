"""From two files to what the page shows: files, views, values, cloud."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import matchattention as ma
from matchattention.app.result import ARCHIVE, CLOUD_POINTS, LEFT_VIEW, VALUES, VIEWS, compute, thinned
from matchattention.app.worker import Progress
from matchattention.data.formats import read_pfm
from matchattention.inference.predictor import Predictor
from tests.cli.conftest import write_pair
from tests.inference.oracle import TINY, Oracle, encoded

PLAIN = ["disparity.png", "disparity.pfm", "disparity_right.pfm", "occlusion.png", "confidence.png", "cloud.ply"]


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor(ma.create_model(TINY), "cpu")


def test_everything_served_is_there_and_nothing_else(tmp_path: Path, predictor: Predictor) -> None:
    left, right = (Path(path) for path in write_pair(tmp_path))
    progress = Progress()
    result = compute(predictor, left, right, None, tmp_path / "result-1", progress)
    assert list(result.downloads) == [*PLAIN, ARCHIVE]
    served = [*result.downloads, *(file for view, file in VIEWS.items() if view != "Depth"), LEFT_VIEW, VALUES]
    assert sorted(path.name for path in result.folder.iterdir()) == sorted(served)
    for name in served:
        path = result.file(name)
        assert path is not None
        assert path.stat().st_size > 0
    for name in ("../left.png", "prediction.json", "", ".", "disparity.pfm/../values.bin"):
        assert result.file(name) is None
    with zipfile.ZipFile(result.folder / ARCHIVE) as archive:
        assert archive.namelist() == PLAIN
        assert archive.read("disparity.pfm") == (result.folder / "disparity.pfm").read_bytes()
    for name in (*(VIEWS[view] for view in result.views), LEFT_VIEW):
        assert Image.open(result.folder / name).size == (160, 96)
    assert progress.fraction == pytest.approx(0.95)
    assert result.seconds > 0


def test_values_under_the_pointer_are_those_of_the_download(tmp_path: Path, predictor: Predictor) -> None:
    left, right = (Path(path) for path in write_pair(tmp_path))
    result = compute(predictor, left, right, None, tmp_path / "result-1", Progress())
    content = (result.folder / VALUES).read_bytes()
    count = 96 * 160
    assert len(content) == 6 * count
    disparity = np.frombuffer(content, "<f4", count).reshape(96, 160)
    np.testing.assert_array_equal(disparity, read_pfm(result.folder / "disparity.pfm"))
    confidence = np.frombuffer(content, np.uint8, count, 4 * count).reshape(96, 160)
    np.testing.assert_array_equal(confidence, np.asarray(Image.open(result.folder / "confidence.png")))
    occlusion = np.frombuffer(content, np.uint8, count, 5 * count).reshape(96, 160)
    np.testing.assert_array_equal(occlusion * 255, np.asarray(Image.open(result.folder / "occlusion.png")))


def test_a_camera_adds_metres_and_is_scaled_to_resized_images(tmp_path: Path, predictor: Predictor) -> None:
    left, right = (Path(path) for path in write_pair(tmp_path))
    camera = ma.StereoCamera(fx=400, baseline=0.1, width=320, height=192)
    result = compute(predictor, left, right, camera, tmp_path / "result-1", Progress())
    assert result.camera is not None
    assert result.camera.fx == pytest.approx(200)
    assert "Depth" in result.views
    assert Image.open(result.folder / VIEWS["Depth"]).size == (160, 96)
    assert result.depth_range is not None
    assert 0 < result.depth_range[0] < result.depth_range[1]
    assert any("scaled to fit" in note for note in result.notes)
    assert {"depth.npy", "depth.png", "depth_error.npy"} <= set(result.downloads)
    assert "metres" in result.downloads["cloud.ply"]


def test_the_check_can_be_left_out(tmp_path: Path, predictor: Predictor) -> None:
    left, right = (Path(path) for path in write_pair(tmp_path))
    with pytest.raises(ma.InputError, match="swapped"):
        compute(predictor, right, left, None, tmp_path / "result-1", Progress())
    assert not (tmp_path / "result-1").exists()
    assert compute(predictor, right, left, None, tmp_path / "result-2", Progress(), check=False).width == 160


def test_the_cloud_shows_a_wall_at_its_distance(tmp_path: Path) -> None:
    flat = np.full((64, 96), 8.0, np.float32)
    for name, image in zip(("left.png", "right.png"), encoded(flat, flat)):
        Image.fromarray(image).save(tmp_path / name)
    predictor = Predictor(Oracle().knowing(96), "cpu")
    camera = ma.StereoCamera(fx=100, baseline=0.16)
    result = compute(
        predictor, tmp_path / "left.png", tmp_path / "right.png", camera, tmp_path / "r", Progress(), check=False
    )
    assert result.cloud is not None
    np.testing.assert_allclose(result.cloud.points[:, 1], 4, atol=1e-4)  # forward; the median distance is put at 4
    spread = np.ptp(result.cloud.points, axis=0)
    assert spread[0] == pytest.approx(4 * (96 - 8 - 1) / 100, abs=0.01)  # the first 8 columns have no partner
    assert spread[2] == pytest.approx(4 * 63 / 100, abs=0.01)
    assert result.cloud.spacing == pytest.approx(4 / 100)


def test_a_thinned_cloud_is_small_upright_and_without_far_outliers() -> None:
    generator = np.random.default_rng(0)
    points = generator.uniform([-1, 0.5, 1], [1, 1, 2], (100_000, 3)).astype(np.float32)  # below the axis: y down
    points[:100, 2] = 500
    cloud = thinned(points, np.full((100_000, 3), 255, np.uint8), focal=500)
    assert cloud is not None
    assert (cloud.shown, cloud.found) == (CLOUD_POINTS, 100_000)
    assert (cloud.points[:, 2] < 0).all()  # up
    assert cloud.points[:, 1].max() < 8
    assert (cloud.colours == 1).all()


def test_no_points_no_cloud() -> None:
    assert thinned(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.uint8), 500) is None
