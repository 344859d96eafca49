"""Stereo datasets: generated trees with known disparities in each official layout."""

import pickle
import shutil

import numpy as np
import pytest

from matchattention.data import datasets
from matchattention.data.datasets import FolderPatterns, StereoSample
from matchattention.errors import InputError
from tests.data import trees
from tests.data.trees import INF, field


def only(name, root, split=None, **options) -> StereoSample:
    dataset = datasets.open(name, root, split, **options)
    assert len(dataset) == 1
    return check_images(dataset[0])


def check_images(sample: StereoSample) -> StereoSample:
    assert sample.left.shape == sample.right.shape == (trees.HEIGHT, trees.WIDTH, 3)
    # JPEG may be off by one.
    assert abs(int(sample.left[0, 0, 0]) - 10) <= 1
    assert abs(int(sample.right[0, 0, 0]) - 20) <= 1
    return sample


def equal(actual, expected):
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize("root", ["MiddEval3", "", "MiddEval3/trainingH"])
def test_middlebury(tmp_path, root):
    scene = tmp_path / "MiddEval3" / "trainingH" / "Adirondack"
    trees.pair(scene / "im0.png", scene / "im1.png")
    trees.pfm(scene / "disp0GT.pfm", field(INF, 7.25))
    trees.pfm(scene / "disp1GT.pfm", field(3.5))
    trees.grey8(scene / "mask0nocc.png", field(0, 128, base=255))
    (scene / "calib.txt").write_text("baseline=176\n")
    sample = only("middlebury", tmp_path / root, "trainingH")
    assert sample.name == "Adirondack"
    equal(sample.disparity, field(INF, 7.25))
    equal(sample.disparity_right, field(3.5))
    assert sample.valid.sum() == 23
    np.testing.assert_array_equal(sample.non_occluded, field(0, 0, base=1) > 0)
    assert sample.camera == "baseline=176\n"
    assert sample.foreground is None


def test_middlebury_test_split_has_no_truth(tmp_path):
    scene = tmp_path / "testQ" / "Djembe"
    trees.pair(scene / "im0.png", scene / "im1.png")
    sample = only("middlebury", tmp_path, "testQ")
    assert sample.disparity is None
    assert sample.valid is None
    assert sample.non_occluded is None


@pytest.mark.parametrize("separate", [True, False], ids=["two folders", "one folder"])
def test_eth3d(tmp_path, separate):
    images = tmp_path / "two_view_training" / "forest_1s"
    truth = tmp_path / "two_view_training_gt" / "forest_1s" if separate else images
    trees.pair(images / "im0.png", images / "im1.png")
    trees.pfm(truth / "disp0GT.pfm", field(INF, 0.5))
    trees.grey8(truth / "mask0nocc.png", field(0, base=255))
    sample = only("eth3d", tmp_path)
    equal(sample.disparity, field(INF, 0.5))
    assert sample.non_occluded.sum() == 23


def test_eth3d_test_split(tmp_path):
    scene = tmp_path / "two_view_test" / "door_1l"
    trees.pair(scene / "im0.png", scene / "im1.png")
    assert only("eth3d", tmp_path, "test").disparity is None


@pytest.mark.parametrize("colour", [True, False])
def test_kitti2012(tmp_path, colour):
    folder = tmp_path / "training"
    left, right = ("colored_0", "colored_1") if colour else ("image_0", "image_1")
    trees.pair(folder / left / "000003_10.png", folder / right / "000003_10.png")
    trees.image(folder / left / "000003_11.png", 99)
    trees.grey16(folder / "disp_occ" / "000003_10.png", field(0, 256, 12345, base=512))
    trees.grey16(folder / "disp_noc" / "000003_10.png", field(0, 0, 12345, base=512))
    sample = only("kitti2012", tmp_path)
    assert sample.name == "000003_10"
    equal(sample.disparity, field(INF, 1, 12345 / 256))
    assert not sample.non_occluded[0, 1]
    assert sample.non_occluded.sum() == 22


def test_kitti2015(tmp_path):
    folder = tmp_path / "training"
    trees.pair(folder / "image_2" / "000000_10.png", folder / "image_3" / "000000_10.png")
    trees.grey16(folder / "disp_occ_0" / "000000_10.png", field(0, 256, base=512))
    trees.grey16(folder / "disp_noc_0" / "000000_10.png", field(0, 0, base=512))
    trees.grey8(folder / "obj_map" / "000000_10.png", field(3, base=0))
    (folder / "calib_cam_to_cam").mkdir()
    (folder / "calib_cam_to_cam" / "000000.txt").write_text("P_rect_02: 1\n")
    sample = only("kitti2015", tmp_path)
    equal(sample.disparity, field(INF, 1))
    assert sample.non_occluded.sum() == 22
    np.testing.assert_array_equal(sample.foreground, field(1, base=0) > 0)
    assert sample.camera.startswith("P_rect_02")
    (folder / "obj_map" / "000000_10.png").unlink()
    assert only("kitti2015", tmp_path).foreground is None


def test_kitti2015_testing(tmp_path):
    folder = tmp_path / "testing"
    trees.pair(folder / "image_2" / "000000_10.png", folder / "image_3" / "000000_10.png")
    assert only("kitti2015", tmp_path, "testing").disparity is None


def sceneflow_clip(base, clip, render="final", sign=1):
    for view, value in (("left", 10), ("right", 20)):
        trees.image(base / f"frames_{render}pass" / clip / view / "0006.png", value)
    trees.pfm(base / "disparity" / clip / "left" / "0006.pfm", sign * field(5.5))
    trees.pfm(base / "disparity" / clip / "right" / "0006.pfm", field(6.5))


def test_sceneflow_test_is_flyingthings_alone(tmp_path):
    sceneflow_clip(tmp_path / "FlyingThings3D", "TEST/A/0000", sign=-1)
    sceneflow_clip(tmp_path / "FlyingThings3D", "TRAIN/A/0000")
    sceneflow_clip(tmp_path / "Monkaa", "a_rain_of_stones_x2")
    sample = only("sceneflow", tmp_path)
    assert sample.name == "FlyingThings3D/TEST/A/0000/0006"
    equal(sample.disparity, field(5.5))
    equal(sample.disparity_right, field(6.5))


def test_sceneflow_train_is_all_three(tmp_path):
    for render in ("final", "clean"):
        sceneflow_clip(tmp_path / "FlyingThings3D", "TRAIN/C/0012", render)
        sceneflow_clip(tmp_path / "Monkaa", "funnyworld_x2", render)
        sceneflow_clip(tmp_path / "Driving", "15mm_focallength/scene_forwards/fast", render)
    for split in ("train-final", "train-clean"):
        dataset = datasets.open("sceneflow", tmp_path, split)
        assert [sample.name for sample in dataset] == [
            "FlyingThings3D/TRAIN/C/0012/0006",
            "Monkaa/funnyworld_x2/0006",
            "Driving/15mm_focallength/scene_forwards/fast/0006",
        ]
        assert all(f"frames_{split[6:]}pass" in str(sample.left_path) for sample in dataset)
    assert len(datasets.open("sceneflow", tmp_path / "Driving", "train-clean")) == 1


def test_fsd(tmp_path):
    data = tmp_path / "manipulation_1" / "dataset" / "data"
    trees.pair(data / "left" / "rgb" / "0001.jpg", data / "right" / "rgb" / "0001.jpg")
    code = np.zeros((trees.HEIGHT, trees.WIDTH, 3), np.uint8)
    code[...] = (0, 7, 215)  # 7 * 255 + 215 = 2000
    code[0, 0] = 0
    code[0, 1] = (1, 2, 3)
    from PIL import Image

    Image.fromarray(code).save(trees.write(data / "left" / "disparity" / "0001.png"))
    sample = only("fsd", tmp_path)
    equal(sample.disparity, field(INF, (65025 + 510 + 3) / 1000))


def test_crestereo(tmp_path):
    folder = tmp_path / "tree"
    trees.pair(folder / "007_left.jpg", folder / "007_right.jpg")
    trees.grey16(folder / "007_left.disp.png", field(0, 48, base=64))
    trees.grey16(folder / "007_right.disp.png", field(32, base=64))
    sample = only("crestereo", tmp_path)
    assert sample.name == "tree/007"
    equal(sample.disparity, field(INF, 1.5))
    equal(sample.disparity_right, field(1))


def test_wmgstereo(tmp_path):
    frames = tmp_path / "indoor" / "3f2a" / "frames"
    trees.pair(frames / "Image" / "camera_0" / "Image_0_0.png", frames / "Image" / "camera_1" / "Image_0_1.png")
    np.save(trees.write(frames / "disparity" / "camera_0" / "disparity_0_0.npy"), field(0, -1, 9.5))
    sample = only("wmgstereo", tmp_path)
    equal(sample.disparity, field(INF, INF, 9.5))
    np.save(frames / "disparity" / "camera_0" / "disparity_1_0.npy", field())
    with pytest.raises(InputError, match="differ in number"):
        datasets.open("wmgstereo", tmp_path)


def test_irs(tmp_path):
    exr = pytest.importorskip("OpenEXR")
    folder = tmp_path / "Home" / "ABookstore"
    trees.pair(folder / "l_12.png", folder / "r_12.png")
    header = {"compression": exr.ZIP_COMPRESSION, "type": exr.scanlineimage}
    exr.File(header, {"Y": field(8.25).astype(np.float32)}).write(str(folder / "d_12.exr"))
    equal(only("irs", tmp_path).disparity, field(8.25))


@pytest.mark.parametrize("render", ["clean", "final"])
def test_sintel_stereo(tmp_path, render):
    training = tmp_path / "training"
    frame = "alley_1/frame_0001.png"
    trees.pair(training / f"{render}_left" / frame, training / f"{render}_right" / frame)
    from PIL import Image

    code = np.zeros((trees.HEIGHT, trees.WIDTH, 3), np.uint8)
    code[...] = (0, 128, 0)
    code[0, 0] = (3, 32, 64)
    Image.fromarray(code).save(trees.write(training / "disparities" / frame))
    trees.grey8(training / "occlusions" / frame, field(255, 0, base=0))
    trees.grey8(training / "outofframe" / frame, field(0, 255, base=0))
    sample = only("sintel-stereo", tmp_path, f"training-{render}")
    equal(sample.disparity, field(12 + 0.5 + 64 / 2**14))
    np.testing.assert_array_equal(sample.non_occluded, field(0, 0, base=1) > 0)


def test_instereo2k_is_hundredths(tmp_path):
    scene = tmp_path / "train" / "part1" / "000042"
    trees.pair(scene / "left.png", scene / "right.png")
    trees.grey16(scene / "left_disp.png", field(0, 150, base=200))
    trees.grey16(scene / "right_disp.png", field(300, base=200))
    sample = only("instereo2k", tmp_path, "train")
    assert sample.name == "part1/000042"
    equal(sample.disparity, field(INF, 1.5))
    equal(sample.disparity_right, field(3))


@pytest.mark.parametrize("prefixed", [True, False])
def test_vkitti2(tmp_path, prefixed):
    colour = tmp_path / "vkitti_2.0.3_rgb" if prefixed else tmp_path
    depth = tmp_path / "vkitti_2.0.3_depth" if prefixed else tmp_path
    frames = colour / "Scene01" / "clone" / "frames" / "rgb"
    trees.pair(frames / "Camera_0" / "rgb_00007.jpg", frames / "Camera_1" / "rgb_00007.jpg")
    centimetres = field(65535, 0, 1000, base=2000)
    for camera in ("Camera_0", "Camera_1"):
        trees.grey16(depth / "Scene01" / "clone" / "frames" / "depth" / camera / "depth_00007.png", centimetres)
    sample = only("vkitti2", tmp_path)
    assert sample.name == "Scene01/clone/00007"
    ten_metres = 725.0087 * 0.532725 / 10
    equal(sample.disparity, field(0, INF, ten_metres, base=ten_metres / 2))
    equal(sample.disparity_right, sample.disparity)


@pytest.mark.parametrize(
    ("split", "names"),
    [
        ("test", ("test-left-image/a", "test-right-image/a", "test-disparity-map/a")),
        ("train", ("train-left-image/a", "train-right-image/a", "train-disparity-map/a")),
        ("foggy", ("foggy/left-image-half-size", "foggy/right-image-half-size", "foggy/disparity-map-half-size")),
    ],
)
def test_drivingstereo(tmp_path, split, names):
    left, right, disparity = (tmp_path / name for name in names)
    trees.pair(left / "x.jpg", right / "x.jpg")
    trees.grey16(disparity / "x.png", field(0, 256, base=512))
    equal(only("drivingstereo", tmp_path, split).disparity, field(INF, 1))


def test_booster(tmp_path):
    scene = tmp_path / "train" / "balanced" / "Bathroom"
    for name in ("im0.png", "im1.png"):
        trees.pair(scene / "camera_00" / name, scene / "camera_02" / name)
    np.save(scene / "disp_00.npy", field(0, 200.5))
    np.save(scene / "disp_02.npy", field(100.5))
    trees.grey8(scene / "mask_00.png", field(0, 0, base=255))
    dataset = datasets.open("booster", tmp_path)
    assert [sample.name for sample in dataset] == ["Bathroom/im0", "Bathroom/im1"]
    sample = check_images(dataset[1])
    equal(sample.disparity, field(INF, 200.5))
    equal(sample.disparity_right, field(100.5))
    assert sample.non_occluded.sum() == 22


def test_spring_stereo(tmp_path):
    scene = tmp_path / "train" / "0001"
    trees.pair(scene / "frame_left" / "frame_left_0001.png", scene / "frame_right" / "frame_right_0001.png")
    # Twice the size, values in the images' px.
    large = np.kron(field(np.nan, -3.5), np.ones((2, 2)))
    trees.hdf5(scene / "disp1_left" / "disp1_left_0001.dsp5", "disparity", large)
    sample = only("spring-stereo", tmp_path)
    assert sample.name == "0001/0001"
    equal(sample.disparity, field(INF, 3.5))


class TestFolder:
    def test_defaults(self, tmp_path):
        trees.pair(tmp_path / "desk" / "im0.png", tmp_path / "desk" / "im1.png")
        trees.pfm(tmp_path / "desk" / "disp0GT.pfm", field(INF, 1.5))
        trees.grey8(tmp_path / "desk" / "mask0nocc.png", field(128, base=255))
        sample = only("folder", tmp_path)
        assert sample.name == "desk"
        equal(sample.disparity, field(INF, 1.5))
        assert sample.non_occluded.sum() == 23

    @pytest.mark.parametrize("suffix", ["png", "npy", "npz"])
    def test_kinds_of_truth(self, tmp_path, suffix):
        trees.pair(tmp_path / "left" / "a_1.png", tmp_path / "right" / "a_1.png")
        truth = trees.write(tmp_path / "truth" / f"a_1.{suffix}")
        if suffix == "png":
            trees.grey16(truth, field(0, 150, base=200))
        else:
            np.save(truth, field(np.nan, 1.5)) if suffix == "npy" else np.savez(truth, field(np.nan, 1.5))
        patterns = FolderPatterns("left/*.png", "right/*.png", "truth/*.*", png_scale=100)
        sample = only("folder", tmp_path, patterns=patterns)
        assert sample.name == "a_1"
        equal(sample.disparity, field(INF, 1.5))

    def test_exr(self, tmp_path):
        exr = pytest.importorskip("OpenEXR")
        trees.pair(tmp_path / "a" / "im0.png", tmp_path / "a" / "im1.png")
        header = {"compression": exr.ZIP_COMPRESSION, "type": exr.scanlineimage}
        exr.File(header, {"Y": field(8.25).astype(np.float32)}).write(str(tmp_path / "a" / "disp0GT.exr"))
        equal(only("folder", tmp_path).disparity, field(8.25))

    def test_two_stars_and_masks(self, tmp_path):
        trees.pair(tmp_path / "s[1]" / "7_L.png", tmp_path / "s[1]" / "7_R.png")
        trees.pair(tmp_path / "s[1]" / "8_L.png", tmp_path / "s[1]" / "8_R.png")
        trees.grey16(tmp_path / "s[1]" / "7_occ.png", field(512, 256, base=512))
        trees.grey16(tmp_path / "s[1]" / "7_noc.png", field(512, 0, base=512))
        trees.grey8(tmp_path / "s[1]" / "7_bad.png", field(1, base=0))
        patterns = FolderPatterns("*/*_L.png", "*/*_R.png", "*/*_occ.png", "*/*_noc.png", invalid="*/*_bad.png")
        first, second = datasets.open("folder", tmp_path, patterns=patterns)
        assert (first.name, second.name) == ("s[1]/7", "s[1]/8")
        equal(first.disparity, field(INF, 1))
        np.testing.assert_array_equal(first.non_occluded, field(1, 0, base=1) > 0)
        assert second.disparity is None

    def test_occluded(self, tmp_path):
        trees.pair(tmp_path / "a" / "im0.png", tmp_path / "a" / "im1.png")
        trees.grey8(tmp_path / "a" / "hidden.png", field(7, base=0))
        sample = only("folder", tmp_path, patterns=FolderPatterns(occluded="*/hidden.png"))
        np.testing.assert_array_equal(sample.non_occluded, field(0, base=1) > 0)

    def test_sentences(self, tmp_path):
        with pytest.raises(InputError, match=r"Expected files like .*im0\.png"):
            datasets.open("folder", tmp_path)
        trees.image(tmp_path / "a" / "im0.png", 10)
        with pytest.raises(InputError, match=r"a/im1\.png"):
            datasets.open("folder", tmp_path)


class TestOpening:
    def kitti(self, tmp_path):
        folder = tmp_path / "training"
        for number in range(3):
            name = f"00000{number}_10.png"
            trees.pair(folder / "image_2" / name, folder / "image_3" / name)
            trees.grey16(folder / "disp_occ_0" / name, field(256 * number, base=512))
        return tmp_path

    def test_is_a_sequence_of_fresh_samples_that_pickle(self, tmp_path):
        dataset = datasets.open("kitti2015", self.kitti(tmp_path))
        assert len(dataset) == 3
        assert [sample.name for sample in dataset[1:]] == ["000001_10", "000002_10"]
        assert dataset[-1].name == "000002_10"
        assert dataset[0] is not dataset[0]
        with pytest.raises(IndexError):
            dataset[3]
        again = pickle.loads(pickle.dumps(dataset))
        equal(again[1].disparity, dataset[1].disparity)

    def test_a_sample_reads_its_files_once(self, tmp_path):
        root = self.kitti(tmp_path)
        sample = datasets.open("kitti2015", root)[0]
        first = sample.left
        shutil.rmtree(root)
        assert sample.left is first

    def test_unknown_names(self, tmp_path):
        with pytest.raises(InputError, match="no dataset 'kitty'"):
            datasets.open("kitty", tmp_path)
        with pytest.raises(InputError, match="choose one of training, testing"):
            datasets.open("kitti2015", tmp_path, "validation")
        with pytest.raises(InputError, match="no such folder"):
            datasets.open("kitti2015", tmp_path / "nowhere")
        with pytest.raises(InputError, match="layout of its own"):
            datasets.open("kitti2015", tmp_path, patterns=FolderPatterns())

    @pytest.mark.parametrize(
        ("missing", "sentence"),
        [
            ("training/image_3/000001_10.png", r"Expected the file .*training/image_3/000001_10\.png"),
            ("training/disp_occ_0/000002_10.png", r"Expected the file .*disp_occ_0/000002_10\.png"),
            ("training/image_3", r"Expected the folder .*training/image_3"),
            ("training", r"Expected the folder .*training"),
        ],
    )
    def test_a_broken_tree_names_the_path(self, tmp_path, missing, sentence):
        root = self.kitti(tmp_path)
        path = root / missing
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        with pytest.raises(InputError, match=sentence):
            datasets.open("kitti2015", root)

    @pytest.mark.parametrize("name", [n for n in datasets.DATASETS if datasets.DATASETS[n].kind == "stereo"])
    def test_an_empty_folder_names_what_was_expected(self, tmp_path, name):
        for split in datasets.DATASETS[name].splits:
            with pytest.raises(InputError, match=f"Expected .*{tmp_path}"):
                datasets.open(name, tmp_path, split)

    def test_sizes_must_fit(self, tmp_path):
        scene = tmp_path / "trainingQ" / "Adirondack"
        trees.pair(scene / "im0.png", scene / "im1.png")
        trees.pfm(scene / "disp0GT.pfm", np.zeros((8, 12)))
        with pytest.raises(InputError, match="different sizes"):
            _ = datasets.open("middlebury", tmp_path)[0].disparity
