"""A raw pair of a virtual rig, rendered with rotation and distortion, comes back rectified and metric."""

import numpy as np
import pytest

from matchattention.errors import InputError, InputWarning
from matchattention.geometry import RawCalibration, check_pair, rectify

cv2 = pytest.importorskip("cv2")

WIDTH, HEIGHT = 320, 240
MATRIX = np.array([[300.0, 0, 160], [0, 300, 120], [0, 0, 1]])
DISTORTION = np.array([[-0.15, 0.03, 0.001, -0.001, 0.0]])
ROTATION = cv2.Rodrigues(np.array([0.03, -0.02, 0.02]))[0]
TRANSLATION = np.array([[-0.1], [0.004], [0.002]])
DISTANCE = 1.0  # m


def raw_view(rotation: np.ndarray, translation: np.ndarray) -> np.ndarray:
    """A textured wall one metre ahead, as the distorted camera sees it."""
    from tests.geometry.pictures import texture

    wall = texture(600, 800, seed=3)
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
    rays = cv2.undistortPoints(np.stack([x.ravel(), y.ravel()], 1)[:, None], MATRIX, DISTORTION)[:, 0]
    rays = np.column_stack([rays, np.ones(len(rays))]) @ rotation  # into the left camera's frame
    centre = -rotation.T @ translation.ravel()
    steps = (DISTANCE - centre[2]) / rays[:, 2]
    hits = centre + steps[:, None] * rays
    map_x = (hits[:, 0] * 300 + 400).reshape(HEIGHT, WIDTH).astype(np.float32)
    map_y = (hits[:, 1] * 300 + 300).reshape(HEIGHT, WIDTH).astype(np.float32)
    return cv2.remap(wall, map_x, map_y, cv2.INTER_LINEAR)


@pytest.fixture(scope="module")
def raw() -> tuple[np.ndarray, np.ndarray]:
    return raw_view(np.eye(3), np.zeros(3)), raw_view(ROTATION, TRANSLATION)


def calibration_file(tmp_path, **changes: object):
    entries = {"K1": MATRIX, "D1": DISTORTION, "K2": MATRIX, "D2": DISTORTION, "R": ROTATION, "T": TRANSLATION}
    path = tmp_path / "stereo.yml"
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE)
    storage.write("image_width", WIDTH)
    storage.write("image_height", HEIGHT)
    for name, value in (entries | changes).items():
        if value is not None:
            storage.write(name, value)
    storage.release()
    return path


def test_rectified_matches_share_a_row_and_give_the_distance(tmp_path, raw) -> None:
    assert check_pair(*raw).vertical_problem
    left, right, camera = rectify(*raw, RawCalibration.from_file(calibration_file(tmp_path)))
    report = check_pair(left, right)
    assert report.conclusive
    assert report.vertical_spread < 0.5
    assert not report.sentences()
    assert camera.baseline == pytest.approx(np.linalg.norm(TRANSLATION), rel=1e-6)
    assert camera.doffs == 0
    distance = camera.depth(np.array([[-report.horizontal_shift]]))
    assert distance == pytest.approx(DISTANCE, rel=0.05)


def test_refusals(tmp_path, raw) -> None:
    with pytest.raises(InputError, match="no K2"):
        RawCalibration.from_file(calibration_file(tmp_path, K2=None))
    with pytest.raises(InputError, match="same place"):
        RawCalibration.from_file(calibration_file(tmp_path, T=np.zeros((3, 1))))
    swapped = RawCalibration.from_file(calibration_file(tmp_path, T=-TRANSLATION))
    with pytest.raises(InputError, match="swap"):
        rectify(*raw, swapped)
    upright = RawCalibration.from_file(calibration_file(tmp_path, T=np.array([[0.0], [0.1], [0.0]])))
    with pytest.raises(InputError, match="90°"):
        rectify(*raw, upright)
    calibration = RawCalibration.from_file(calibration_file(tmp_path))
    with pytest.raises(InputError, match="differ in size"):
        rectify(raw[0], raw[1][:100], calibration)
    with pytest.raises(InputError, match="320x240"):
        rectify(raw[0][:100], raw[1][:100], calibration)


def test_a_translation_in_millimetres_becomes_metres(tmp_path) -> None:
    with pytest.warns(InputWarning, match="millimetres"):
        calibration = RawCalibration.from_file(calibration_file(tmp_path, T=1000 * TRANSLATION))
    np.testing.assert_allclose(calibration.translation, TRANSLATION.ravel())


def test_one_dimensional_distortion_as_opencv_5_writes_it(tmp_path) -> None:
    matrix = (
        "!!opencv-matrix\n   rows: 3\n   cols: 3\n   dt: d\n   data: [ 500., 0., 320., 0., 500., 240., 0., 0., 1. ]"
    )
    flat = "!!opencv-nd-matrix\n   sizes: [ {} ]\n   dt: d\n   data: [ {} ]"
    turn = "!!opencv-matrix\n   rows: 3\n   cols: 3\n   dt: d\n   data: [ {} ]"
    bent = flat.format(5, "0.1, 0., 0., 0., 0.")
    parts = {"K1": matrix, "D1": bent, "K2": matrix, "D2": bent, "T": flat.format(3, "-0.1, 0., 0.")}

    def read(rotation: str) -> RawCalibration:
        named = {**parts, "R": turn.format(rotation)}
        path = tmp_path / "raw.yml"
        path.write_text("%YAML 1.2\n---\n" + "".join(f"{name}: {text}\n" for name, text in named.items()))
        return RawCalibration.from_file(path)

    calibration = read("1., 0., 0., 0., 1., 0., 0., 0., 1.")
    assert calibration.left_distortion.ravel()[0] == 0.1
    assert calibration.right_distortion.size == 5
    for rotation in ("0., " * 8 + "0.", "2., 0., 0., 0., 1., 0., 0., 0., 1.", "-1., 0., 0., 0., 1., 0., 0., 0., 1."):
        with pytest.raises(InputError, match="R is no rotation"):
            read(rotation)
