"""Flow datasets: generated trees with known flow in each official layout."""

import numpy as np
import pytest

from matchattention.data import datasets
from matchattention.data.datasets import FLOW_PATTERNS, FlowSample, FolderPatterns
from matchattention.errors import InputError
from tests.data import trees
from tests.data.trees import INF, field, flow_field


def check(sample: FlowSample, flow) -> FlowSample:
    assert int(sample.frame1[0, 0, 0]) == 10
    assert int(sample.frame2[0, 0, 0]) == 20
    assert sample.flow.dtype == np.float32
    np.testing.assert_allclose(sample.flow, flow, rtol=1e-6)
    return sample


def unknown_first(flow):
    flow[0, 0] = INF
    return flow


def kitti_code(u, v, known=True):
    code = np.empty((trees.HEIGHT, trees.WIDTH, 3), np.uint16)
    code[...] = (2**15 + 64 * u, 2**15 + 64 * v, known)
    return code


@pytest.mark.parametrize(("name", "camera"), [("kitti2015-flow", "image_2"), ("kitti2012-flow", "colored_0")])
def test_kitti_flow(tmp_path, name, camera):
    folder = tmp_path / "training"
    trees.pair(folder / camera / "000000_10.png", folder / camera / "000000_11.png")
    code = kitti_code(-3, 1.5)
    code[0, 0] = 0
    trees.colour16(folder / "flow_occ" / "000000_10.png", code)
    code[0, 1] = 0
    trees.colour16(folder / "flow_noc" / "000000_10.png", code)
    (sample,) = datasets.open(name, tmp_path)
    check(sample, unknown_first(flow_field(-3, 1.5)))
    assert sample.valid.sum() == 23
    assert sample.non_occluded.sum() == 22


def test_kitti_flow_testing(tmp_path):
    folder = tmp_path / "testing" / "image_2"
    trees.pair(folder / "000000_10.png", folder / "000000_11.png")
    (sample,) = datasets.open("kitti2015-flow", tmp_path, "testing")
    assert sample.flow is None
    assert sample.valid is None


def test_hd1k_pairs_stay_within_a_sequence(tmp_path):
    images, truth = tmp_path / "hd1k_input" / "image_2", tmp_path / "hd1k_flow_gt" / "flow_occ"
    for name in ("000000_0010", "000000_0011", "000001_0010", "000001_0011"):
        trees.image(images / f"{name}.png", 10 if name.endswith("10") else 20)
        trees.colour16(truth / f"{name}.png", kitti_code(2, -2))
    first, second = datasets.open("hd1k", tmp_path)
    assert (first.name, second.name) == ("000000_0010", "000001_0010")
    check(first, flow_field(2, -2))


@pytest.mark.parametrize("render", ["clean", "final"])
def test_sintel(tmp_path, render):
    training = tmp_path / "training"
    trees.pair(training / render / "alley_1" / "frame_0001.png", training / render / "alley_1" / "frame_0002.png")
    trees.flo(training / "flow" / "alley_1" / "frame_0001.flo", flow_field(1.5, -0.25))
    trees.grey8(training / "occlusions" / "alley_1" / "frame_0001.png", field(0, 255, base=0))
    trees.grey8(training / "invalid" / "alley_1" / "frame_0001.png", field(255, base=0))
    (sample,) = datasets.open("sintel", tmp_path, f"training-{render}")
    assert sample.name == "alley_1/frame_0001"
    check(sample, unknown_first(flow_field(1.5, -0.25)))
    np.testing.assert_array_equal(sample.non_occluded, field(1, 0, base=1) > 0)


def test_sintel_test(tmp_path):
    folder = tmp_path / "test" / "clean" / "ambush_1"
    trees.pair(folder / "frame_0001.png", folder / "frame_0002.png")
    (sample,) = datasets.open("sintel", tmp_path, "test-clean")
    assert sample.flow is None


def test_spring(tmp_path):
    scene = tmp_path / "train" / "0001"
    trees.pair(scene / "frame_left" / "frame_left_0001.png", scene / "frame_left" / "frame_left_0002.png")
    trees.pair(scene / "frame_right" / "frame_right_0001.png", scene / "frame_right" / "frame_right_0002.png")
    large = np.kron(flow_field(4, 5), np.ones((2, 2, 1)))
    large[:2, :2] = np.nan
    trees.hdf5(scene / "flow_FW_left" / "flow_FW_left_0001.flo5", "flow", large)
    trees.hdf5(scene / "flow_BW_left" / "flow_BW_left_0002.flo5", "flow", -large)
    forward, backward = datasets.open("spring", tmp_path)
    assert (forward.name, backward.name) == ("0001/flow_FW_left_0001", "0001/flow_BW_left_0002")
    check(forward, unknown_first(flow_field(4, 5)))
    assert backward.frame1_path.name == "frame_left_0002.png"
    assert backward.frame2_path.name == "frame_left_0001.png"


def test_spring_test_has_both_directions_of_both_cameras(tmp_path):
    scene = tmp_path / "test" / "0003"
    for camera in ("left", "right"):
        for number in (1, 2, 3):
            trees.image(scene / f"frame_{camera}" / f"frame_{camera}_000{number}.png", 10)
    names = [sample.name for sample in datasets.open("spring", tmp_path, "test")]
    assert len(names) == 8
    assert "0003/flow_BW_right_0003" in names
    assert "0003/flow_BW_right_0001" not in names


def test_sceneflow_flow_with_change(tmp_path):
    base = tmp_path / "FlyingThings3D"
    clip = "TRAIN/A/0000"
    images = base / "frames_cleanpass" / clip / "left"
    trees.pair(images / "0006.png", images / "0007.png")
    third = np.concatenate([flow_field(3, -4), np.zeros((trees.HEIGHT, trees.WIDTH, 1))], axis=-1)
    trees.pfm(base / "optical_flow" / clip / "into_future" / "left" / "OpticalFlowIntoFuture_0006_L.pfm", third)
    trees.pfm(base / "disparity_change" / clip / "into_future" / "left" / "0006.pfm", field(-1.5))
    (sample,) = datasets.open("sceneflow-flow", tmp_path, "train-clean")
    check(sample, flow_field(3, -4))
    np.testing.assert_allclose(sample.disparity_change, field(-1.5))


def test_flyingchairs_follows_its_list(tmp_path):
    data = tmp_path / "data"
    for name in ("00001", "00002", "00003"):
        trees.pair(data / f"{name}_img1.ppm", data / f"{name}_img2.ppm")
        trees.flo(data / f"{name}_flow.flo", flow_field(int(name), 0))
    listing = tmp_path / "FlyingChairs_train_val.txt"
    listing.write_text("1\n2\n1\n")
    (validation,) = datasets.open("flyingchairs", tmp_path, "validation")
    check(validation, flow_field(2, 0))
    assert [sample.name for sample in datasets.open("flyingchairs", tmp_path, "training")] == ["00001", "00003"]
    listing.write_text("1\n2\n")
    with pytest.raises(InputError, match="2 entries for 3 pairs"):
        datasets.open("flyingchairs", tmp_path)


def test_middlebury_flow_skips_scenes_without_truth(tmp_path):
    for scene in ("Grove2", "Beanbags"):
        folder = tmp_path / "other-data" / scene
        trees.pair(folder / "frame10.png", folder / "frame11.png")
    flow = flow_field(1, 2)
    flow[0, 0] = 1e10
    trees.flo(tmp_path / "other-gt-flow" / "Grove2" / "flow10.flo", flow)
    (sample,) = datasets.open("middlebury-flow", tmp_path)
    check(sample, unknown_first(flow_field(1, 2)))


def test_folder_flow_defaults(tmp_path):
    trees.pair(tmp_path / "a" / "frame1.png", tmp_path / "a" / "frame2.png")
    trees.flo(tmp_path / "a" / "flow.flo", flow_field(1, 2))
    trees.grey8(tmp_path / "a" / "occlusions.png", field(9, base=0))
    trees.grey8(tmp_path / "a" / "invalid.png", field(9, base=0))
    (sample,) = datasets.open("folder-flow", tmp_path)
    check(sample, unknown_first(flow_field(1, 2)))
    assert sample.non_occluded.sum() == 23
    assert FLOW_PATTERNS.truth == "*/flow.*"


def test_folder_flow_with_kitti_files(tmp_path):
    trees.pair(tmp_path / "a" / "frame1.png", tmp_path / "a" / "frame2.png")
    code = kitti_code(1, 2)
    trees.colour16(tmp_path / "a" / "flow_occ.png", code)
    code[0, 0] = 0
    trees.colour16(tmp_path / "a" / "flow_noc.png", code)
    patterns = FolderPatterns("*/frame1.png", "*/frame2.png", "*/flow_occ.png", "*/flow_noc.png")
    (sample,) = datasets.open("folder-flow", tmp_path, patterns=patterns)
    check(sample, flow_field(1, 2))
    assert sample.non_occluded.sum() == 23


@pytest.mark.parametrize("name", [n for n in datasets.DATASETS if datasets.DATASETS[n].kind == "flow"])
def test_an_empty_folder_names_what_was_expected(tmp_path, name):
    for split in datasets.DATASETS[name].splits:
        with pytest.raises(InputError, match=f"Expected .*{tmp_path}"):
            datasets.open(name, tmp_path, split)
