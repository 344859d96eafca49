"""ROS messages and arrays, and the node itself with stand-ins for ROS."""

from __future__ import annotations

import importlib
import runpy
import sys
import types
from array import array
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from matchattention.errors import InputError
from matchattention.inference.prediction import Prediction

PACKAGE = Path(__file__).resolve().parents[2] / "ros2" / "matchattention_ros"


@pytest.fixture(autouse=True)
def _importable(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGE))


@pytest.fixture
def conversions():
    from matchattention_ros import conversions

    return conversions


def message(array: np.ndarray, encoding: str, padding: int = 0, big: bool = False) -> SimpleNamespace:
    values = array.astype(array.dtype.newbyteorder(">" if big else "<"))
    rows = np.frombuffer(values.tobytes(), np.uint8).reshape(array.shape[0], -1)
    rows = np.pad(rows, ((0, 0), (0, padding)), constant_values=99)
    return SimpleNamespace(
        header=SimpleNamespace(stamp=1, frame_id="left_optical"), height=array.shape[0], width=array.shape[1],
        encoding=encoding, is_bigendian=int(big), step=rows.shape[1], data=rows.tobytes(),
    )  # fmt: skip


def info(fx: float, cx: float, tx: float = 0.0, **changes) -> SimpleNamespace:
    roi = SimpleNamespace(x_offset=changes.pop("x_offset", 0), y_offset=changes.pop("y_offset", 0))
    p = [fx, 0, cx, tx, 0, fx, 20.0, 0, 0, 0, 1, 0]
    roi.width = roi.height = 0  # the whole image
    binning = changes.pop("binning", 0)
    size = {"width": 0, "height": 0} | changes  # 0: not said
    return SimpleNamespace(p=p, roi=roi, binning_x=binning, binning_y=0, **size)


LEFT, RIGHT = info(500.0, 30.0), info(500.0, 34.0, -500.0 * 0.1)  # baseline 0.1 m, doffs + 4 px


@pytest.mark.parametrize("padding", [0, 5])
def test_image_encodings(conversions, padding: int) -> None:
    colour = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    opaque = np.concatenate([colour, np.full((4, 6, 1), 255, np.uint8)], -1)
    for encoding, stored in (
        ("rgb8", colour),
        ("bgr8", colour[..., ::-1]),
        ("rgba8", opaque),
        ("bgra8", opaque[..., [2, 1, 0, 3]]),
    ):
        got = conversions.image_of(message(stored, encoding, padding))
        np.testing.assert_array_equal(got, colour, encoding)
        deeper = message(stored.astype(np.uint16) * 257, encoding.replace("8", "16"), 2 * padding)
        np.testing.assert_array_equal(conversions.image_of(deeper), colour.astype(np.uint16) * 257, encoding)
    np.testing.assert_array_equal(conversions.image_of(message(colour[..., 0], "mono8", padding)), colour[..., 0])
    deep = colour[..., 0].astype(np.uint16) * 200
    for big in (False, True):
        np.testing.assert_array_equal(conversions.image_of(message(deep, "mono16", 2 * padding, big)), deep)


def test_images_that_cannot_be_used(conversions) -> None:
    grey = np.zeros((4, 6), np.uint8)
    with pytest.raises(InputError, match="image_proc"):
        conversions.image_of(message(grey, "bayer_rggb8"))
    short = message(grey, "mono8")
    short.data = short.data[:-1]
    with pytest.raises(InputError, match="cut short"):
        conversions.image_of(short)


def test_a_point_goes_through_both_cameras_and_back(conversions) -> None:
    """The definition: a point's pixel in each P, their difference, and the depth that comes of it."""
    camera = conversions.camera_of(LEFT, RIGHT)
    assert camera.baseline == pytest.approx(0.1)
    x, y, z = 0.02, -0.01, 2.0
    column = 500 * x / z + 30
    found_in_right = (500 * x + RIGHT.p[3]) / z + 34
    disparity = np.full((40, 60), column - found_in_right, np.float32)
    known = conversions.known_pixels(disparity, np.ones_like(disparity), camera, 0.5)
    fields = conversions.disparity_fields(disparity, known, camera)
    assert fields.image[0, 0] == pytest.approx(fields.f * fields.t / z)  # Z = f T / d with cx's difference taken out
    assert fields.t > 0
    depth = conversions.depth_metres(disparity, known, camera)
    np.testing.assert_allclose(depth, z, rtol=1e-6)
    cloud = conversions.cloud_bytes(depth, np.zeros((40, 60, 3), np.uint8), camera, 10)
    row = 500 * y / z + 20
    np.testing.assert_allclose(cloud[round(row), round(column), :3], [x, y, z], atol=z / 500)
    assert cloud[39, 0, 0] < 0 < cloud[39, 0, 1]  # left of the centre is -x, below it is +y


def test_invalid_values_are_image_pipelines(conversions) -> None:
    camera = conversions.camera_of(LEFT, RIGHT)
    disparity = np.array([[10.0, 10.0, -4.0, np.nan]], np.float32)
    confidence = np.array([[0.9, 0.1, 0.9, 0.9]], np.float32)
    known = conversions.known_pixels(disparity, confidence, camera, 0.5)
    np.testing.assert_array_equal(known, [[True, False, False, False]])
    fields = conversions.disparity_fields(disparity, known, camera)
    np.testing.assert_array_equal(fields.image, [[14, -1, -1, -1]])
    assert (fields.image[~known] < fields.min_disparity).all()
    assert fields.valid_window == (0, 0, 4, 1)
    depth = conversions.depth_metres(disparity, known, camera)
    np.testing.assert_array_equal(np.isnan(depth), ~known)
    np.testing.assert_array_equal(conversions.depth_millimetres(depth), [[round(1000 * 50 / 14), 0, 0, 0]])
    assert conversions.depth_millimetres(np.float32([[70.0, np.inf]])).tolist() == [[0, 0]]
    cloud = conversions.cloud_bytes(depth, np.zeros((1, 4), np.uint8), camera, 10)
    np.testing.assert_array_equal(np.isnan(cloud[..., :3]).all(-1), ~known)


def test_colours_are_packed_as_pcl_reads_them(conversions) -> None:
    camera = conversions.camera_of(LEFT, RIGHT)
    cloud = conversions.cloud_bytes(np.ones((1, 1), np.float32), np.uint8([[[1, 2, 3]]]), camera, 10)
    assert cloud.view(np.uint32)[0, 0, 3] == 0x010203


def test_regions_and_binning(conversions) -> None:
    left = info(500.0, 30.0, x_offset=10, y_offset=4, binning=2)
    right = info(500.0, 34.0, -50.0, x_offset=10, y_offset=4, binning=2)
    camera = conversions.camera_of(left, right)
    assert (camera.fx, camera.cx, camera.cy, camera.doffs) == (250.0, 10.0, 16.0, 2.0)
    assert camera.baseline == pytest.approx(0.1)


def test_a_calibration_of_another_size_is_refused(conversions) -> None:
    image = message(np.zeros((40, 60), np.uint8), "mono8")
    for width, height, binning in ((60, 40, 0), (0, 0, 0), (121, 40, 2)):
        conversions.require_own_size(image, info(500.0, 30.0, width=width, height=height, binning=binning))
    for width, height, binning in ((120, 80, 0), (60, 40, 2)):
        with pytest.raises(InputError, match="The left image is 60x40, its camera_info is for"):
            conversions.require_own_size(image, info(500.0, 30.0, width=width, height=height, binning=binning))
    part = info(500.0, 30.0, width=640, height=480, x_offset=8)
    part.roi.width, part.roi.height = 60, 40
    conversions.require_own_size(image, part)


def test_wrong_calibrations(conversions) -> None:
    with pytest.raises(InputError, match="swapped"):
        conversions.camera_of(RIGHT, LEFT)
    with pytest.raises(InputError, match="calibrate"):
        conversions.camera_of(info(0.0, 0.0), info(0.0, 0.0))


class _Message:
    """Any ROS message: attributes appear when they are set, nested ones when they are read."""

    FLOAT32 = 7

    def __init__(self, **values) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__[name] = _Message()
        return self.__dict__[name]


class _Publisher:
    def __init__(self) -> None:
        self.listeners = 0
        self.sent: list[_Message] = []

    def get_subscription_count(self) -> int:
        return self.listeners

    def publish(self, sent: _Message) -> None:
        self.sent.append(sent)


class _Node:
    def __init__(self, name: str) -> None:
        self.parameters: dict = {}
        self.publishers: dict[str, _Publisher] = {}
        self.said: list[str] = []

    def declare_parameter(self, name: str, default) -> None:
        self.parameters[name] = default

    def get_parameter(self, name: str):
        return SimpleNamespace(value=self.parameters[name])

    def create_publisher(self, kind, name: str, depth: int) -> _Publisher:
        self.publishers[name] = _Publisher()
        return self.publishers[name]

    def get_logger(self):
        return SimpleNamespace(warning=lambda text, **_: self.said.append(text))


def _module(**names) -> types.ModuleType:
    module = types.ModuleType("stand_in")
    module.__dict__.update(names)
    return module


@pytest.fixture
def node(monkeypatch):
    """The node with stand-ins for ROS and for the predictor."""
    synchronizer = SimpleNamespace(registerCallback=lambda call: None)
    subscribed: list[dict] = []
    stand_ins = {
        "rclpy": _module(init=lambda: None, try_shutdown=lambda: None),
        "rclpy.executors": _module(ExternalShutdownException=type("ExternalShutdownException", (Exception,), {})),
        "rclpy.node": _module(Node=_Node),
        "rclpy.qos": _module(QoSProfile=SimpleNamespace, ReliabilityPolicy=SimpleNamespace(BEST_EFFORT="best effort")),
        "message_filters": _module(
            Subscriber=lambda *_, **given: subscribed.append(given),
            ApproximateTimeSynchronizer=lambda *_, **__: synchronizer,
        ),
        "sensor_msgs": _module(),
        "sensor_msgs.msg": _module(CameraInfo=_Message, Image=_Message, PointCloud2=_Message, PointField=_Message),
        "stereo_msgs": _module(),
        "stereo_msgs.msg": _module(DisparityImage=_Message),
    }
    for name, module in stand_ins.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "matchattention_ros.node", raising=False)
    module = importlib.import_module("matchattention_ros.node")
    calls: list[tuple[np.ndarray, np.ndarray]] = []

    def predict(left: np.ndarray, right: np.ndarray) -> Prediction:
        calls.append((left, right))
        field = np.zeros((*left.shape[:2], 2), np.float32)
        field[..., 0] = -6
        one = np.ones(left.shape[:2], np.float32)
        return Prediction("stereo", field, -field, one < 0, one)

    monkeypatch.setattr(module, "Predictor", lambda *_, **__: predict)
    made = module.StereoNode()
    made.calls, made.module, made.subscribed = calls, module, subscribed
    return made


def test_nobody_listens_nothing_is_matched(node) -> None:
    grey = message(np.zeros((8, 12), np.uint8), "mono8")
    node.match(grey, grey, LEFT, RIGHT)
    assert node.calls == []


def test_only_what_somebody_listens_to_is_published(node) -> None:
    node.publishers["disparity"].listeners = 1
    grey = message(np.zeros((8, 12), np.uint8), "mono8")
    node.match(grey, grey, LEFT, RIGHT)
    (sent,) = node.publishers["disparity"].sent
    assert sent.header is grey.header
    assert (sent.f, sent.t, sent.delta_d) == (500.0, pytest.approx(0.1), 1 / 16)
    assert (sent.image.encoding, sent.image.step, sent.valid_window.width) == ("32FC1", 48, 12)
    np.testing.assert_array_equal(np.frombuffer(sent.image.data, "<f4"), np.full(96, 10, np.float32))
    assert not any(node.publishers[name].sent for name in ("depth", "confidence", "points2"))
    for name in ("depth", "confidence", "points2"):
        node.publishers[name].listeners = 1
    node.match(grey, grey, LEFT, RIGHT)
    np.testing.assert_allclose(np.frombuffer(node.publishers["depth"].sent[0].data, "<f4"), 5.0)
    cloud = node.publishers["points2"].sent[0]
    assert (cloud.row_step, cloud.height, len(cloud.data)) == (12 * 16, 8, 8 * 12 * 16)
    for data in (cloud.data, sent.image.data):  # what rclpy takes as it is; of bytes it checks one after the other
        assert (type(data), data.typecode) == (array, "B")


def test_frames_do_not_wait_while_a_pair_is_matched(node) -> None:
    assert [given["qos_profile"].depth for given in node.subscribed] == [1] * 4
    assert {given["qos_profile"].reliability for given in node.subscribed} == {"best effort"}  # as cameras send


def test_a_resized_image_with_the_old_calibration_is_a_warning(node) -> None:
    node.publishers["depth"].listeners = 1
    grey = message(np.zeros((8, 12), np.uint8), "mono8")
    left, right = info(500.0, 30.0, width=24, height=16), info(500.0, 34.0, -50.0, width=24, height=16)
    node.match(grey, grey, left, right)
    assert "camera_info is for 24x16" in node.said[0]
    assert node.publishers["depth"].sent == node.calls == []


def test_the_launch_file_gives_every_parameter_its_default(node, monkeypatch) -> None:
    for name, module in {
        "launch": _module(LaunchDescription=list),
        "launch.actions": _module(DeclareLaunchArgument=lambda name, **given: (name, given["default_value"])),
        "launch.substitutions": _module(LaunchConfiguration=lambda name: name),
        "launch_ros": _module(),
        "launch_ros.actions": _module(Node=SimpleNamespace),
        "launch_ros.parameter_descriptions": _module(ParameterValue=lambda name, value_type: (name, value_type)),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    *declared, started = runpy.run_path(str(PACKAGE / "launch" / "stereo.launch.py"))["generate_launch_description"]()
    ours = node.module.PARAMETERS
    assert dict(declared) == {"namespace": "stereo"} | {name: str(value) for name, value in ours.items()}
    assert started.parameters == [{name: (name, type(value)) for name, value in ours.items()}]


def test_a_wrong_pair_is_a_warning(node) -> None:
    node.publishers["depth"].listeners = 1
    grey = message(np.zeros((8, 12), np.uint8), "mono8")
    node.match(grey, grey, RIGHT, LEFT)
    assert "swapped" in node.said[0]
    assert node.publishers["depth"].sent == []


def test_a_model_that_cannot_be_loaded_is_one_sentence(node, monkeypatch, capsys) -> None:
    module = node.module

    def refuse(*_, **__):
        raise InputError("There is no model 'x'.")

    monkeypatch.setattr(module, "Predictor", refuse)
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "There is no model 'x'.\n"
