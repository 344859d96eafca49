"""Every calibration format, from text to a camera."""

from pathlib import Path

import numpy as np
import pytest

from matchattention.errors import InputError, InputWarning
from matchattention.geometry import StereoCamera

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"

MIDDLEBURY = """cam0=[999.421 0 294.182; 0 999.421 252.932; 0 0 1]
cam1=[999.421 0 326.96; 0 999.421 252.932; 0 0 1]
doffs=32.778
baseline=193.001
width=740
height=497
"""
KITTI = """calib_time: 09-Jan-2012
S_rect_02: 1.242000e+03 3.750000e+02
P_rect_02: 7.2e+02 0 6.09e+02 4.4e+01 0 7.2e+02 1.7e+02 2.1e-01 0 0 1 2.7e-03
P_rect_03: 7.2e+02 0 6.09e+02 -3.4e+02 0 7.2e+02 1.7e+02 2.1e+00 0 0 1 2.7e-03
"""
OPENCV = """%YAML:1.0
---
image_width: 640
image_height: 480
P1: !!opencv-matrix
   rows: 3
   cols: 4
   dt: d
   data: [ 500., 0., 320., 0., 0., 500., 240., 0., 0.,
       0., 1., 0. ]
P2: !!opencv-matrix
   rows: 3
   cols: 4
   dt: d
   data: [ 500., 0., 325., -60., 0., 500., 240., 0., 0., 0., 1., 0. ]
"""
ROS_LEFT = """image_width: 640
image_height: 480
camera_name: left
projection_matrix:
  rows: 3
  cols: 4
  data: [500.0, 0.0, 320.0, 0.0, 0.0, 500.0, 240.0, 0.0, 0.0, 0.0, 1.0, 0.0]
"""
ROS_RIGHT = """image_width: 640
camera_name: right
projection_matrix:
  rows: 3
  cols: 4
  data:
  - 500.0
  - 0.0
  - 320.0
  - -60.0
  - 0.0
  - 500.0
  - 240.0
  - 0.0
  - 0.0
  - 0.0
  - 1.0
  - 0.0
"""


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_middlebury(tmp_path) -> None:
    camera = StereoCamera.from_file(written(tmp_path, "calib.txt", MIDDLEBURY))
    assert camera == StereoCamera(
        fx=999.421, fy=999.421, cx=294.182, cy=252.932, baseline=0.193001, doffs=32.778, width=740, height=497
    )


def test_kitti_raw_and_odometry_styles(tmp_path) -> None:
    camera = StereoCamera.from_file(written(tmp_path, "000000.txt", KITTI))
    assert camera.baseline == pytest.approx(384 / 720)
    assert (camera.fx, camera.doffs, camera.width, camera.height) == (720.0, 0.0, 1242, 375)
    odometry = KITTI.replace("P_rect_02", "P2").replace("P_rect_03", "P3")
    assert StereoCamera.from_file(written(tmp_path, "calib.txt", odometry)).baseline == camera.baseline


def test_k_txt_with_and_without_its_baseline(tmp_path) -> None:
    numbers = "754.6 0 489.3 0 754.6 265.1 0 0 1"
    assert StereoCamera.from_file(written(tmp_path, "K.txt", numbers + "\n0.063\n")).baseline == 0.063
    bare = written(tmp_path, "bare.txt", numbers)
    with pytest.raises(InputError, match="baseline"):
        StereoCamera.from_file(bare)
    assert StereoCamera.from_file(bare, baseline=0.12).baseline == 0.12


def test_opencv_yaml(tmp_path) -> None:
    camera = StereoCamera.from_file(written(tmp_path, "stereo.yml", OPENCV))
    assert camera == StereoCamera(
        fx=500.0, fy=500.0, cx=320.0, cy=240.0, baseline=60 / 500, doffs=5.0, width=640, height=480
    )


def test_opencv_file_storage_itself(tmp_path) -> None:
    cv2 = pytest.importorskip("cv2")
    path = tmp_path / "by_opencv.yaml"
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE)
    storage.write("P1", np.array([[500.0, 0, 320, 0], [0, 500, 240, 0], [0, 0, 1, 0]]))
    storage.write("P2", np.array([[500.0, 0, 320, -37.5], [0, 500, 240, 0], [0, 0, 1, 0]]))
    storage.release()
    assert StereoCamera.from_file(path).baseline == pytest.approx(0.075)


def test_a_board_in_millimetres_is_recognised_and_said(tmp_path) -> None:
    path = written(tmp_path, "stereo.yml", OPENCV.replace("-60.", "-60000."))
    with pytest.warns(InputWarning, match="millimetres"):
        camera = StereoCamera.from_file(path)
    assert camera.baseline == pytest.approx(0.12)


def test_ros_pair_finds_its_right_file_by_name(tmp_path) -> None:
    left = written(tmp_path, "left.yaml", ROS_LEFT)
    with pytest.raises(InputError, match="one camera of a pair"):
        StereoCamera.from_file(left)
    right = written(tmp_path, "right.yaml", ROS_RIGHT)
    assert StereoCamera.from_file(left).baseline == pytest.approx(0.12)
    assert StereoCamera.from_file(left, right).baseline == pytest.approx(0.12)
    with pytest.raises(InputError, match="left camera's matrix or file first"):
        StereoCamera.from_file(right, left)


def test_json(tmp_path) -> None:
    text = '{"fx": 451.0, "baseline_meters": 0.075, "cx0": 299.0, "cx1": 301.0, "cy": 255.0, "width": 640}'
    camera = StereoCamera.from_file(written(tmp_path, "calibration.json", text))
    assert (camera.fx, camera.baseline, camera.cx, camera.doffs, camera.width) == (451.0, 0.075, 299.0, 2.0, 640)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("calib.txt", "hello", "known here"),
        ("calib.txt", "1 2 3", "known here"),
        ("calib.txt", "cam0=[1 2 3]\n", "3x3"),
        ("calib.txt", MIDDLEBURY.replace("baseline=193.001", ""), "no baseline"),
        ("calib.txt", "P2: 1 2 3\nP3: 1 2 3\n", "12 numbers"),
        ("calib.txt", "P2: 1 0 0 0 0 1 0 0 0 0 1 0\n", "pair"),
        ("calib.yaml", "K1: 3\n", "rectify"),
        ("calib.json", "{", "JSON"),
        ("calib.json", "[]", "JSON"),
        ("calib.json", '{"fx": 3}', "baseline"),
    ],
)
def test_what_is_not_a_calibration_says_so(tmp_path, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        StereoCamera.from_file(written(tmp_path, name, text))


def test_missing_folder_and_binary_files(tmp_path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        StereoCamera.from_file(tmp_path / "calib.txt")
    with pytest.raises(InputError, match="folder"):
        StereoCamera.from_file(tmp_path)
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    with pytest.raises(InputError, match="not text"):
        StereoCamera.from_file(tmp_path / "image.png")


@pytest.mark.parametrize(
    ("path", "baseline", "focal"),
    [
        ("MiddEval3/trainingQ/ArtL/calib.txt", 0.16, 935),
        ("kitti2015/training/calib_cam_to_cam/000080.txt", 0.5327, 721.5),
        ("no_ground_truth/foundationstereo/K.txt", 0.063, 754.7),
    ],
)
def test_real_files(path: str, baseline: float, focal: float) -> None:
    if not (SHARED / path).is_file():
        pytest.skip("the shared evaluation pairs are not here")
    camera = StereoCamera.from_file(SHARED / path)
    assert camera.baseline == pytest.approx(baseline, rel=1e-3)
    assert camera.fx == pytest.approx(focal, rel=1e-3)


def test_a_given_baseline_replaces_kittis(tmp_path) -> None:
    text = "P2: 700 0 600 40 0 700 180 0 0 0 1 0\nP3: 700 0 600 -340 0 700 180 0 0 0 1 0\n"
    (tmp_path / "calib.txt").write_text(text)
    assert StereoCamera.from_file(tmp_path / "calib.txt", baseline=0.1).baseline == 0.1


def test_a_name_of_thousands_of_letters_is_not_repeated(tmp_path):
    path = tmp_path / "left.yaml"
    path.write_text(ROS_LEFT.replace("projection_matrix", "9" * 5000))
    with pytest.raises(InputError, match="has neither P1 and P2") as caught:
        StereoCamera.from_file(path)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("name", ["camera.txt", "camera.yaml", "camera"])
def test_json_is_recognised_by_its_content(tmp_path, name: str) -> None:
    (tmp_path / name).write_text('\n{"fx": 451, "baseline": 0.075}')
    assert StereoCamera.from_file(tmp_path / name) == StereoCamera(fx=451, baseline=0.075)
