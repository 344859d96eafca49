"""What a prediction does for its user: metres, points, files, and one line that says what it is."""

from __future__ import annotations

import numpy as np
import pytest

from matchattention import InputError, InputWarning, StereoCamera
from matchattention.inference.prediction import Prediction
from matchattention.inference.result_files import KINDS, MEANINGS, RECORD

CAMERA = StereoCamera(fx=100.0, baseline=0.1)


def stereo(height: int = 20, width: int = 30, **extra) -> Prediction:
    field = np.zeros((height, width, 2), np.float32)
    field[..., 0] = -5
    confidence = np.ones((height, width), np.float32)
    confidence[:, : width // 2] = 0.3
    image = np.full((height, width, 3), 77, np.uint8)
    return Prediction("stereo", field, -field, np.zeros((height, width), bool), confidence, image=image, **extra)


def flow() -> Prediction:
    field = np.full((20, 30, 2), 3, np.float32)
    return Prediction("flow", field, -field, np.zeros((20, 30), bool), np.ones((20, 30), np.float32))


def test_one_line_says_what_it_is() -> None:
    assert repr(stereo()) == "<stereo prediction 30x20: disparity 5.0 to 5.0 px, 0% occluded>"
    assert repr(flow()) == "<flow prediction 30x20: motion up to 4.2 px, 0% occluded>"


def test_depth_and_points_in_metres() -> None:
    result = stereo()
    np.testing.assert_allclose(result.depth(CAMERA), 2.0)
    points, colours = result.points(CAMERA)
    assert len(points) == 20 * 15  # the uncertain half is left out
    np.testing.assert_allclose(points[:, 2], 2.0)
    assert (colours == 77).all()
    assert len(result.points(CAMERA, min_confidence=0.2)[0]) == 20 * 30
    assert len(result.points(CAMERA, max_depth=1.5)[0]) == 0


def test_a_camera_of_another_size_is_scaled_and_it_is_said() -> None:
    camera = StereoCamera(fx=200.0, baseline=0.1, width=60, height=40)
    with pytest.warns(InputWarning, match="scaled to fit"):
        np.testing.assert_allclose(stereo().depth(camera), 2.0)


def test_save_writes_what_predict_writes(tmp_path) -> None:
    plain = {path.name for path in stereo().save(tmp_path / "a")}
    assert plain == {*KINDS["disparity"], *KINDS["right"], "occlusion.png", "confidence.png", RECORD}
    metric = {path.name for path in stereo().save(str(tmp_path / "a"), camera=CAMERA)}
    assert metric == plain | {*KINDS["depth"], *KINDS["cloud"]}
    assert {path.name for path in (tmp_path / "a").iterdir()} == metric
    one = {path.name for path in stereo().save(tmp_path / "a", CAMERA, only=["depth"])}
    assert one == {*KINDS["depth"], RECORD}
    assert {path.name for path in (tmp_path / "a").iterdir()} == one  # the others were of another result
    assert {path.name for path in flow().save(tmp_path / "b")} >= set(KINDS["flow"])


@pytest.mark.parametrize(
    ("result", "only", "words"),
    [
        (stereo(), ["colour"], "choose among disparity"),
        (stereo(), ["depth"], "needs the calibration"),
        (stereo(), ["flow"], "has no flow"),
        (flow(), ["disparity"], "has no disparity"),
    ],
)
def test_kinds_that_cannot_be(tmp_path, result, only, words) -> None:
    with pytest.raises(InputError, match=words):
        result.save(tmp_path / "out", only=only)
    assert not list(tmp_path.iterdir())


def test_a_flow_prediction_has_no_metres() -> None:
    with pytest.raises(InputError, match="has no disparity"):
        flow().depth(CAMERA)


def test_every_file_is_of_one_kind() -> None:
    names = [name for files in KINDS.values() for name in files]
    assert sorted(names) == sorted(set(MEANINGS) - {RECORD})


def test_one_kind_may_be_a_word(tmp_path) -> None:
    assert {path.name for path in stereo().save(tmp_path, only="disparity")} == {*KINDS["disparity"], RECORD}


@pytest.mark.parametrize(
    ("option", "words"),
    [({"max_depth": -4}, "positive number, not -4"), ({"min_confidence": 5}, "between 0 and 1, not 5")],
)
def test_limits_of_the_cloud_that_cannot_be(tmp_path, option, words) -> None:
    with pytest.raises(InputError, match=words):
        stereo().points(CAMERA, **option)
    with pytest.raises(InputError, match=words):
        stereo().save(tmp_path / "out", CAMERA, **option)
    assert not list(tmp_path.iterdir())
