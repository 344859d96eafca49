"""Depth, its error, points and size checks of a stereo camera."""

import numpy as np
import pytest

from matchattention.errors import InputError, InputWarning
from matchattention.geometry import StereoCamera, flying_pixel_mask, write_depth_png16, write_ply
from matchattention.geometry.confidence import disagreement_of

CAMERA = StereoCamera(fx=800.0, baseline=0.1, cx=31.5, cy=23.5, doffs=20.0, width=64, height=48)


def test_depth_counts_the_offset_of_the_centres() -> None:
    depth = CAMERA.depth(np.array([[20.0, 60.0, -20.0, np.inf, np.nan, -30.0]]))
    np.testing.assert_allclose(depth[0], [2.0, 1.0, np.inf, np.inf, np.inf, np.inf])


def test_disparity_inverts_depth() -> None:
    disparity = np.linspace(1, 90, 50, dtype=np.float32)[None]
    np.testing.assert_allclose(CAMERA.disparity(CAMERA.depth(disparity)), disparity, rtol=1e-4, atol=1e-4)


def test_depth_error_is_the_change_of_depth_by_the_disparity_error() -> None:
    disparity = np.full((1, 1), 20.0)
    for disagreement in (0.0, 0.5, 2.0):
        sigma = np.hypot(0.25, disagreement)
        step = 1e-2
        slope = abs(CAMERA.depth(disparity + step) - CAMERA.depth(disparity - step)) / (2 * step)
        error = CAMERA.depth_error(disparity, np.exp(np.full((1, 1), -disagreement / 2)))
        np.testing.assert_allclose(error, slope * sigma, rtol=1e-3)


def test_a_confidence_stands_for_a_disagreement_and_zero_for_none_in_view() -> None:
    pixels = np.array([0.0, 0.3, 1.0, 5.0], np.float32)
    np.testing.assert_allclose(disagreement_of(np.exp(-pixels / 2)), pixels, atol=1e-5)
    assert np.isinf(disagreement_of(np.array(0.0)))


def test_points_project_back_to_their_pixels() -> None:
    generator = np.random.default_rng(0)
    disparity = np.full((48, 64), 30.0) + generator.normal(0, 0.05, (48, 64))
    image = generator.integers(0, 256, (48, 64, 3), dtype=np.uint8)
    points, colours = CAMERA.points(disparity, image)
    assert points.shape == (48 * 64, 3) == colours.shape
    x = points[:, 0] / points[:, 2] * 800 + 31.5
    y = points[:, 1] / points[:, 2] * 800 + 23.5
    np.testing.assert_array_equal(colours, image[np.rint(y).astype(int), np.rint(x).astype(int)])
    # The right camera sees each point shifted by the disparity, counted from its own centre.
    right = (points[:, 0] - 0.1) / points[:, 2] * 800 + 31.5 + 20.0
    np.testing.assert_allclose(x - right, disparity.ravel(), atol=1e-3)


def test_points_of_pixels_that_are_not_square() -> None:
    camera = StereoCamera(fx=800.0, fy=400.0, baseline=0.1, cx=1.0, cy=0.5)
    points, _ = camera.points(np.full((2, 3), 40.0), flying_pixels=True)
    np.testing.assert_allclose(points[:, 1], [-0.5 / 400 * 2] * 3 + [0.5 / 400 * 2] * 3)
    np.testing.assert_allclose(points[:, 0], [-1 / 800 * 2, 0, 1 / 800 * 2] * 2)


def test_points_are_filtered_by_confidence_distance_and_flying_pixels() -> None:
    disparity = np.full((48, 64), 60.0, np.float32)
    disparity[:, 32:] = 5.0
    disparity[:, 32] = 30.0  # a column hanging between foreground and background
    confidence = np.ones((48, 64), np.float32)
    confidence[0] = 0.1
    camera = StereoCamera(fx=800.0, baseline=0.1)
    assert len(camera.points(disparity, flying_pixels=True)[0]) == 48 * 64
    assert len(camera.points(disparity)[0]) == 48 * 63
    assert len(camera.points(disparity, confidence=confidence)[0]) == 47 * 63
    assert len(camera.points(disparity, max_depth=2.0)[0]) == 48 * 32


def test_flying_pixels_spare_a_receding_plane() -> None:
    slanted = np.broadcast_to(np.linspace(2, 100, 200, dtype=np.float32)[:, None], (200, 50))
    assert not flying_pixel_mask(slanted).any()


def test_wrong_size_says_how_to_resize_and_resizing_keeps_depth() -> None:
    with pytest.raises(InputError, match=r"resized\(32, 24\)"):
        CAMERA.points(np.ones((24, 32)))
    small = CAMERA.resized(32, 24)
    np.testing.assert_allclose(small.depth(np.array([[10.0]])), CAMERA.depth(np.array([[20.0]])))
    assert small.centre(32, 24) == (15.5, 11.5)
    with pytest.raises(InputError, match="crop"):
        CAMERA.resized(64, 40)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"fx": 0.0, "baseline": 0.1}, "focal length"),
        ({"fx": 100.0, "baseline": -0.1}, "baseline"),
        ({"fx": 100.0, "baseline": float("nan")}, "finite"),
    ],
)
def test_impossible_numbers_are_refused(numbers: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        StereoCamera(**numbers)


def test_ply_is_binary_and_holds_every_point(tmp_path) -> None:
    points = np.arange(12, dtype=np.float32).reshape(4, 3)
    colours = np.arange(12, dtype=np.uint8).reshape(4, 3)
    write_ply(tmp_path / "cloud.ply", points, colours)
    header, _, body = (tmp_path / "cloud.ply").read_bytes().partition(b"end_header\n")
    assert b"element vertex 4" in header
    stored = np.frombuffer(body, dtype=[("p", "<f4", 3), ("c", "u1", 3)])
    np.testing.assert_array_equal(stored["p"], points)
    np.testing.assert_array_equal(stored["c"], colours)


def test_depth_png_is_millimetres_and_zero_where_unknown(tmp_path) -> None:
    from matchattention.data.png import read_png16

    write_depth_png16(tmp_path / "depth.png", np.array([[1.2345, np.inf, np.nan, 0.0001, 65.5, 70.0]]))
    np.testing.assert_array_equal(read_png16(tmp_path / "depth.png")[0], [1234, 0, 0, 1, 65500, 0])


def test_metres_where_millimetres_belong_are_suspected(tmp_path) -> None:
    text = "cam0=[700 0 300; 0 700 200; 0 0 1]\ncam1=[700 0 300; 0 700 200; 0 0 1]\nbaseline=0.193\n"
    (tmp_path / "calib.txt").write_text(text)
    with pytest.warns(InputWarning, match=r"0.000193 m is shorter than any rig's: check its unit"):
        StereoCamera.from_file(tmp_path / "calib.txt")


def test_a_baseline_in_millimetres_is_suspected() -> None:
    with pytest.warns(InputWarning, match=r"millimetres, give 0\.075"):
        StereoCamera(fx=450.0, baseline=75.0)


@pytest.mark.parametrize("centre", [{"cx": 9999.0}, {"cy": -1.0}])
def test_a_principal_point_outside_the_image_is_suspected(centre: dict) -> None:
    camera = StereoCamera(fx=450.0, baseline=0.1, **centre)
    with pytest.warns(InputWarning, match="outside the image of 640x480"):
        camera.fitting(640, 480)
    resized = StereoCamera(fx=450.0, baseline=0.1, width=320, height=240, **centre)
    with pytest.warns(InputWarning, match="outside the image of 640x480"):
        resized.fitting(640, 480)
