"""Submissions: the exact files and values that each server takes."""

import numpy as np
import pytest
from PIL import Image

from matchattention.data import datasets
from matchattention.data.formats import read_dsp5, read_flo, read_flo5, read_kitti_flow_png16, read_pfm
from matchattention.errors import InputError
from matchattention.evaluation.submission import WRITERS, write_submission
from tests.data import trees


class Columns:
    """Disparity or flow that grows to the right, so that mirroring shows."""

    settings = {"name": "columns", "label": "Columns"}  # noqa: RUF012

    def __call__(self, first, second, sample):
        ramp = np.broadcast_to(np.arange(trees.WIDTH, dtype=np.float32) + 1, (trees.HEIGHT, trees.WIDTH))
        if isinstance(sample, datasets.FlowSample):
            return np.stack([ramp, -ramp], axis=-1)
        # A constant that names the view: 10 for left, 20 for right.
        return ramp + np.float32(first[0, 0, 0])


RAMP = np.broadcast_to(np.arange(trees.WIDTH) + 1.0, (trees.HEIGHT, trees.WIDTH))


def written(root):
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def submit(tmp_path, name, split, **options):
    output = tmp_path / "upload"
    write_submission(datasets.open(name, tmp_path / "data", split), Columns(), output, **options)
    return output


def test_middlebury(tmp_path):
    scene = tmp_path / "data" / "testF" / "Djembe"
    trees.pair(scene / "im0.png", scene / "im1.png")
    output = submit(tmp_path, "middlebury", "testF", method="Ours")
    assert written(output) == ["testF/Djembe/disp0Ours.pfm", "testF/Djembe/timeOurs.txt"]
    np.testing.assert_array_equal(read_pfm(output / "testF/Djembe/disp0Ours.pfm"), RAMP + 10)
    assert float((output / "testF/Djembe/timeOurs.txt").read_text()) >= 0


def test_eth3d(tmp_path):
    scene = tmp_path / "data" / "two_view_test" / "door_1l"
    trees.pair(scene / "im0.png", scene / "im1.png")
    output = submit(tmp_path, "eth3d", "test")
    assert written(output) == ["low_res_two_view/door_1l.pfm", "low_res_two_view/door_1l.txt"]
    word, seconds = (output / "low_res_two_view/door_1l.txt").read_text().split()
    assert word == "runtime"
    assert float(seconds) >= 0


@pytest.mark.parametrize(
    ("name", "left", "right", "expected"),
    [
        ("kitti2015", "image_2", "image_3", "disp_0/000000_10.png"),
        ("kitti2012", "colored_0", "colored_1", "000000_10.png"),
    ],
)
def test_kitti_stereo(tmp_path, name, left, right, expected):
    testing = tmp_path / "data" / "testing"
    trees.pair(testing / left / "000000_10.png", testing / right / "000000_10.png")
    output = submit(tmp_path, name, "testing")
    assert written(output) == [expected]
    stored = np.asarray(Image.open(output / expected))
    assert stored.dtype == np.uint16
    np.testing.assert_array_equal(stored, (RAMP + 10) * 256)


@pytest.mark.parametrize(
    ("name", "camera", "expected"),
    [("kitti2015-flow", "image_2", "flow/000000_10.png"), ("kitti2012-flow", "colored_0", "000000_10.png")],
)
def test_kitti_flow(tmp_path, name, camera, expected):
    testing = tmp_path / "data" / "testing" / camera
    trees.pair(testing / "000000_10.png", testing / "000000_11.png")
    output = submit(tmp_path, name, "testing")
    assert written(output) == [expected]
    np.testing.assert_array_equal(read_kitti_flow_png16(output / expected), np.stack([RAMP, -RAMP], axis=-1))


def test_sintel(tmp_path):
    folder = tmp_path / "data" / "test" / "final" / "ambush_1"
    trees.pair(folder / "frame_0001.png", folder / "frame_0002.png")
    output = submit(tmp_path, "sintel", "test-final")
    assert written(output) == ["final/ambush_1/frame_0001.flo"]
    np.testing.assert_array_equal(read_flo(output / "final/ambush_1/frame_0001.flo")[..., 1], -RAMP)


def test_spring_flow(tmp_path):
    pytest.importorskip("h5py")
    for camera in ("left", "right"):
        folder = tmp_path / "data" / "test" / "0003" / f"frame_{camera}"
        trees.pair(folder / f"frame_{camera}_0001.png", folder / f"frame_{camera}_0002.png")
    output = submit(tmp_path, "spring", "test")
    assert written(output) == [
        "0003/flow_BW_left/flow_BW_left_0002.flo5",
        "0003/flow_BW_right/flow_BW_right_0002.flo5",
        "0003/flow_FW_left/flow_FW_left_0001.flo5",
        "0003/flow_FW_right/flow_FW_right_0001.flo5",
    ]
    np.testing.assert_array_equal(read_flo5(output / written(output)[0])[..., 0], RAMP)


def test_spring_stereo_matches_the_right_view_mirrored(tmp_path):
    pytest.importorskip("h5py")
    scene = tmp_path / "data" / "test" / "0003"
    trees.pair(scene / "frame_left" / "frame_left_0001.png", scene / "frame_right" / "frame_right_0001.png")
    right = np.full((trees.HEIGHT, trees.WIDTH, 3), 20, np.uint8)
    right[:, -1] = 33  # in the mirror this column comes first
    Image.fromarray(right).save(scene / "frame_right" / "frame_right_0001.png")
    output = submit(tmp_path, "spring-stereo", "test")
    left, right = written(output)
    assert (left, right) == ("0003/disp1_left/disp1_left_0001.dsp5", "0003/disp1_right/disp1_right_0001.dsp5")
    np.testing.assert_array_equal(read_dsp5(output / left), RAMP + 10)
    np.testing.assert_array_equal(read_dsp5(output / right), RAMP[:, ::-1] + 33)


def test_sets_without_a_server_and_odd_names(tmp_path):
    trees.pair(tmp_path / "data" / "a" / "im0.png", tmp_path / "data" / "a" / "im1.png")
    with pytest.raises(InputError, match="no submission format"):
        submit(tmp_path, "folder", None)
    scene = tmp_path / "data" / "testF" / "Djembe"
    trees.pair(scene / "im0.png", scene / "im1.png")
    with pytest.raises(InputError, match="letters, digits"):
        submit(tmp_path, "middlebury", "testF", method="../ours")
    assert not (tmp_path / "upload").exists()
    assert set(WRITERS) <= set(datasets.DATASETS)
