"""OpenCV's flow as baselines: right on a texture that moves, refused for stereo."""

from pathlib import Path

import numpy as np
import pytest

from matchattention.data.datasets import FlowSample, StereoSample
from matchattention.errors import InputError
from matchattention.evaluation.matchers import create_matcher

FLOW = FlowSample("a", Path("1.png"), Path("2.png"))


@pytest.mark.parametrize("name", ["dis", "farneback"])
def test_finds_a_shift_and_says_its_settings(name):
    cv2 = pytest.importorskip("cv2")
    noise = np.random.default_rng(0).integers(0, 256, (120, 160, 3), np.uint8)
    canvas = cv2.GaussianBlur(noise, (0, 0), 2.0)
    canvas = cv2.normalize(canvas, None, 0, 255, cv2.NORM_MINMAX)
    first, second = canvas[8:104, 8:136], canvas[5:101, 13:141]  # things go 5 to the left and 3 down
    matcher = create_matcher(name, "flow")
    flow = matcher(first, second, FLOW)
    assert flow.shape == (96, 128, 2)
    assert flow.dtype == np.float32
    inner = flow[24:-24, 24:-24].reshape(-1, 2)
    np.testing.assert_allclose(np.median(inner, 0), (-5, 3), atol=0.3)
    assert matcher.settings["name"] == name
    assert "OpenCV" in matcher.settings["label"]
    with pytest.raises(InputError, match="rt or sgbm"):
        matcher(first, second, StereoSample("a", Path("1.png"), Path("2.png")))
