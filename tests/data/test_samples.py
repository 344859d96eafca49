"""What samples say about their ground truth, and what a folder warns about."""

import warnings

import numpy as np
import pytest

from matchattention.data import datasets
from matchattention.data.datasets.folder import FolderPatterns
from matchattention.errors import InputWarning
from tests.data import trees
from tests.data.trees import INF, field, flow_field


def test_flow_is_valid_where_it_is_known(tmp_path):
    trees.pair(tmp_path / "a" / "frame1.png", tmp_path / "a" / "frame2.png")
    flow = flow_field(3, 4).astype(np.float32)
    flow[0, 0] = INF
    trees.flo(tmp_path / "a" / "flow.flo", flow)
    (sample,) = datasets.open("folder-flow", tmp_path)
    expected = np.ones(flow.shape[:2], bool)
    expected[0, 0] = False
    np.testing.assert_array_equal(sample.valid, expected)


def test_frames_without_flow_have_nothing_valid(tmp_path):
    trees.pair(tmp_path / "a" / "frame1.png", tmp_path / "a" / "frame2.png")
    (sample,) = datasets.open("folder-flow", tmp_path)
    assert sample.flow is None
    assert sample.valid is None


@pytest.mark.parametrize("suffix", [".png", ".pfm"])
def test_only_png_disparities_are_warned_about(tmp_path, suffix):
    for name in ("a", "b"):
        trees.pair(tmp_path / name / "im0.png", tmp_path / name / "im1.png")
        if suffix == ".png":
            trees.grey16(tmp_path / name / "disparity.png", field(256, base=512))
        else:
            trees.pfm(tmp_path / name / "disparity.pfm", field(1.0, base=2.0))
    patterns = FolderPatterns(truth=f"*/disparity{suffix}")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        samples = datasets.open("folder", tmp_path, patterns=patterns)
    assert samples[0].disparity is not None
    said = [str(w.message) for w in seen if issubclass(w.category, InputWarning)]
    assert len(said) == (1 if suffix == ".png" else 0)
    assert all("--png-scale" in sentence for sentence in said)
