"""Running over a dataset: what is measured, kept and refused."""

import json

import numpy as np
import pytest

from matchattention.data import datasets
from matchattention.data.formats import read_flo, read_pfm
from matchattention.errors import InputError
from matchattention.evaluation.report import read_report
from matchattention.evaluation.runner import evaluate, save_prediction
from tests.data import trees
from tests.data.trees import INF, field, flow_field


class Constant:
    """Predicts the same value everywhere and remembers whom it was asked about."""

    def __init__(self, value, shape=(trees.HEIGHT, trees.WIDTH)):
        self.settings = {"name": "constant", "label": "Constant", "value": value}
        self._value, self._shape = value, shape
        self.asked = []

    def __call__(self, first, second, sample):
        assert (first[0, 0, 0], second[0, 0, 0]) == (10, 20)
        self.asked.append(sample.name)
        return np.full(self._shape, self._value, np.float32)


@pytest.fixture
def middlebury(tmp_path):
    for scene, disparity in (("Adirondack", 2.0), ("Vintage", 5.0)):
        folder = tmp_path / "MiddEval3" / "trainingQ" / scene
        trees.pair(folder / "im0.png", folder / "im1.png")
        trees.pfm(folder / "disp0GT.pfm", field(INF, base=disparity))
        trees.grey8(folder / "mask0nocc.png", field(0, 128, base=255))
    return datasets.open("middlebury", tmp_path / "MiddEval3")


def test_scenes_and_averages(middlebury):
    seen = []
    matcher = Constant(2.0)
    report = evaluate(middlebury, matcher, "typed", lambda number, result, *_: seen.append((number, result.name)))
    assert matcher.asked == ["Adirondack", "Vintage"]
    assert seen == [(1, "Adirondack"), (2, "Vintage")]
    assert [scene.metrics["noc"]["bad2"] for scene in report.scenes] == [0, 100]
    assert report.mean()["noc"]["bad2"] == 50
    assert report.mean()["all"]["pixels"] == 46
    # Vintage counts half on Middlebury's server.
    assert report.weighted_mean()["noc"]["bad2"] == pytest.approx(100 / 3)
    assert report.pooled()["occ"]["epe"] == pytest.approx(1.5)
    assert report.scenes[0].size == (trees.WIDTH, trees.HEIGHT)
    assert report.scenes[0].seconds >= 0


def test_the_file_holds_every_setting_and_reads_back(middlebury, tmp_path):
    report = evaluate(middlebury, Constant(2.0), "typed")
    path = tmp_path / "report.json"
    report.write(path)
    content = json.loads(path.read_text())
    assert content["root"] == "MiddEval3"
    assert content["model"] == {"name": "constant", "label": "Constant", "value": 2.0}
    assert content["command"] == "typed"
    assert {"date", "commit", "versions", "processor"} <= set(content["environment"])
    assert content["mean_over_scenes"]["noc"]["bad2"] == 50
    assert content["official_weighted_mean"]["noc"]["bad2"] == pytest.approx(33.3333)
    assert str(tmp_path) not in path.read_text()
    again = read_report(path)
    assert [scene.metrics for scene in again.scenes] == [scene.metrics for scene in report.scenes]
    assert again.table() == report.table()


def test_table_shows_every_scene(middlebury):
    lines = evaluate(middlebury, Constant(2.0)).table().splitlines()
    assert [line.split()[0] for line in lines[3:5]] == ["Adirondack", "Vintage"]
    assert "50.00" in next(line for line in lines if line.startswith("mean"))
    assert "33.33" in next(line for line in lines if line.startswith("weighted mean"))


def test_kitti_has_objects_and_pooled_pixels(tmp_path):
    folder = tmp_path / "training"
    trees.pair(folder / "image_2" / "000000_10.png", folder / "image_3" / "000000_10.png")
    trees.grey16(folder / "disp_occ_0" / "000000_10.png", field(0, 256, base=512))
    trees.grey8(folder / "obj_map" / "000000_10.png", field(3, 3, base=0))
    report = evaluate(datasets.open("kitti2015", tmp_path), Constant(2.0))
    assert report.mean()["fg"]["pixels"] == 1
    assert report.mean()["bg"]["pixels"] == 22
    assert report.weighted_mean() is None
    assert "D1-bg 0.00  D1-fg 0.00" in report.table()


def test_flow(tmp_path):
    trees.pair(tmp_path / "a" / "frame1.png", tmp_path / "a" / "frame2.png")
    trees.flo(tmp_path / "a" / "flow.flo", flow_field(3, 4))
    report = evaluate(datasets.open("folder-flow", tmp_path), Constant(0.0, (trees.HEIGHT, trees.WIDTH, 2)))
    assert report.mean()["all"]["epe"] == 5
    assert report.mean()["all"]["fl"] == 100
    assert "Fl" in report.table()
    assert "s0-10: EPE 5.00 px, Fl 100.00 %, bad 1 100.00 % (100.0 % of the pixels)" in report.table()
    assert "s40+" not in report.table()


def test_wrong_size_and_no_truth(tmp_path, middlebury):
    with pytest.raises(InputError, match="Adirondack has shape"):
        evaluate(middlebury, Constant(1.0, (3, 3)))
    scene = tmp_path / "testQ" / "Djembe"
    trees.pair(scene / "im0.png", scene / "im1.png")
    with pytest.raises(InputError, match="no ground truth"):
        evaluate(datasets.open("middlebury", tmp_path, "testQ"), Constant(1.0))


def test_foreign_json_is_refused(tmp_path):
    for content in ("[]", "{}", '{"schema": 99, "scenes": []}', "nonsense"):
        (tmp_path / "a.json").write_text(content)
        with pytest.raises(InputError, match=r"a\.json"):
            read_report(tmp_path / "a.json")
    with pytest.raises(InputError, match="does not exist"):
        read_report(tmp_path / "b.json")


def test_saved_predictions(tmp_path):
    disparity = field(1.5).astype(np.float32)
    path = save_prediction(tmp_path, "scene/1", disparity)
    assert path == tmp_path / "scene" / "1.pfm"
    np.testing.assert_array_equal(read_pfm(path), disparity)
    flow = flow_field(1, 2).astype(np.float32)
    np.testing.assert_array_equal(read_flo(save_prediction(tmp_path, "x", flow)), flow)


def test_hidden_pixels_are_not_counted_as_visible(tmp_path):
    """One pixel is hidden (128 in the mask), and it alone is wrong."""
    folder = tmp_path / "MiddEval3" / "trainingQ" / "Adirondack"
    trees.pair(folder / "im0.png", folder / "im1.png")
    trees.pfm(folder / "disp0GT.pfm", field(INF, 9.0, base=2.0))
    trees.grey8(folder / "mask0nocc.png", field(0, 128, base=255))
    metrics = evaluate(datasets.open("middlebury", tmp_path / "MiddEval3"), Constant(2.0), "typed").scenes[0].metrics
    assert (metrics["occ"]["pixels"], metrics["occ"]["epe"]) == (1, 7)
    assert metrics["noc"]["epe"] == 0
