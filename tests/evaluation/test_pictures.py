"""Pictures of a scene: four panels of known places, one range of colours, an error map."""

import numpy as np
import pytest
from PIL import Image

from matchattention.data import datasets
from matchattention.evaluation.pictures import side_by_side, write_pictures
from tests.data import trees

HEIGHT, WIDTH = 60, 80


@pytest.fixture
def stereo(tmp_path):
    trees.image(tmp_path / "a" / "im0.png", 77, (HEIGHT, WIDTH))
    trees.image(tmp_path / "a" / "im1.png", 77, (HEIGHT, WIDTH))
    truth = np.broadcast_to(np.linspace(1, 30, WIDTH), (HEIGHT, WIDTH)).copy()
    truth[0] = np.inf
    trees.pfm(tmp_path / "a" / "disp0GT.pfm", truth)
    return datasets.open("folder", tmp_path)[0]


def panels(picture):
    """The four pictures without their captions: image, truth, prediction, error."""
    caption = picture.shape[0] // 2 - HEIGHT
    halves = picture[caption : caption + HEIGHT], picture[2 * caption + HEIGHT :]
    return [half[:, side * WIDTH : (side + 1) * WIDTH] for half in halves for side in (0, 1)]


def test_a_perfect_prediction_looks_like_the_truth(stereo):
    prediction = np.where(np.isfinite(stereo.disparity), stereo.disparity, 5).astype(np.float32)
    image, truth, predicted, error = panels(side_by_side(stereo, prediction))
    assert (image == 77).all()
    np.testing.assert_array_equal(truth[1:], predicted[1:])
    assert len(np.unique(error[1:].reshape(-1, 3), axis=0)) == 1
    assert (error[0] != error[1]).any()  # unknown has a colour of its own


def test_the_range_of_colours_is_the_truths(stereo):
    *_, predicted, error = panels(side_by_side(stereo, np.full((HEIGHT, WIDTH), 1000, np.float32)))
    truth = panels(side_by_side(stereo, np.ones((HEIGHT, WIDTH), np.float32)))[1]
    np.testing.assert_array_equal(predicted[1, 0], truth[1, -1])
    assert error[1:].mean() < 128  # far off everywhere


def test_files(tmp_path, stereo):
    write_pictures(tmp_path, stereo, stereo.disparity, "error: EPE 0.00 px")
    with Image.open(tmp_path / "a.png") as whole, Image.open(tmp_path / "a_error.png") as error:
        assert whole.width == 2 * WIDTH
        assert error.width > WIDTH  # the legend


def test_flow(tmp_path):
    for name in ("frame1.png", "frame2.png"):
        trees.image(tmp_path / "a" / name, 77, (HEIGHT, WIDTH))
    trees.flo(tmp_path / "a" / "flow.flo", np.full((HEIGHT, WIDTH, 2), 3.0))
    sample = datasets.open("folder-flow", tmp_path)[0]
    image, truth, predicted, _ = panels(side_by_side(sample, sample.flow))
    assert (image == 77).all()
    np.testing.assert_array_equal(truth, predicted)


def test_without_truth_there_is_nothing_to_show(tmp_path):
    trees.pair(tmp_path / "a" / "im0.png", tmp_path / "a" / "im1.png")
    sample = datasets.open("folder", tmp_path)[0]
    with pytest.raises(ValueError, match="no ground truth"):
        side_by_side(sample, np.zeros((trees.HEIGHT, trees.WIDTH), np.float32))
