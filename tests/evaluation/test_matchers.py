"""What can be measured: SGBM, files, and networks."""

from pathlib import Path

import numpy as np
import pytest

from matchattention import create_model
from matchattention.data.datasets import FlowSample, StereoSample
from matchattention.data.formats import write_flo, write_kitti_disparity_png16, write_pfm
from matchattention.errors import InputError
from matchattention.evaluation.matchers import NetworkMatcher, PredictionFiles, SgbmMatcher, create_matcher
from matchattention.models import checkpoint

PAIR = (np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8),) * 2
STEREO = StereoSample("scene/1", Path("left.png"), Path("right.png"))
FLOW = FlowSample("scene/1", Path("1.png"), Path("2.png"))
DISPARITY = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_sgbm_without_truth_and_with_flow():
    pytest.importorskip("cv2")
    matcher = SgbmMatcher()
    disparity = matcher(*PAIR, STEREO)
    assert disparity.shape == (64, 96)
    assert np.abs(disparity).mean() < 0.5  # the same image twice
    assert matcher.settings["P2"] == 2400
    with pytest.raises(InputError, match="flow network"):
        matcher(*PAIR, FLOW)


@pytest.mark.parametrize("name", ["scene/1.pfm", "scene_1.pfm", "scene/1/disparity.pfm", "scene/1.png"])
def test_files_are_found_by_the_samples_name(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    (write_pfm if path.suffix == ".pfm" else write_kitti_disparity_png16)(path, DISPARITY + 1)
    matcher = PredictionFiles(tmp_path, "mine")
    np.testing.assert_array_equal(matcher(*PAIR, STEREO), DISPARITY + 1)
    assert matcher.settings["label"] == "mine"


def test_flow_files(tmp_path):
    flow = np.ones((2, 3, 2), np.float32)
    (tmp_path / "scene").mkdir()
    write_flo(tmp_path / "scene" / "1.flo", flow)
    np.testing.assert_array_equal(PredictionFiles(tmp_path)(*PAIR, FLOW), flow)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(InputError, match=r"scene/1\.pfm"):
        PredictionFiles(tmp_path)(*PAIR, STEREO)
    with pytest.raises(InputError, match="folder of predictions"):
        PredictionFiles(tmp_path / "none")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    network = create_model("rt")
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    checkpoint.save(network, path, network.config, {"recipe": "none"})
    return path


def test_a_network_says_which_weights_it_has(weights):
    matcher = NetworkMatcher(str(weights), "stereo", device="cpu", label="ours")
    disparity = matcher(*PAIR, STEREO)
    assert disparity.shape == (64, 96)
    assert disparity.dtype == np.float32
    assert np.isfinite(disparity).all()
    settings = matcher.settings
    assert (settings["name"], settings["label"]) == ("tiny.safetensors", "ours")
    assert (settings["device"], settings["precision"]) == ("cpu", "float32")
    assert settings["checkpoint"] == {"recipe": "none"}
    assert len(settings["sha256"]) == 64


def test_a_stereo_network_does_not_measure_flow(weights):
    with pytest.raises(InputError, match="stereo model"):
        NetworkMatcher(str(weights), "flow", device="cpu")


def test_creation_by_name(tmp_path):
    assert isinstance(create_matcher("sgbm", "stereo"), SgbmMatcher)
    assert isinstance(create_matcher("rt", "stereo", tmp_path), PredictionFiles)
    with pytest.raises(InputError, match=r"none\.safetensors"):
        create_matcher(str(tmp_path / "none.safetensors"), "stereo")
