"""The commands evaluate, submission and results, as typed."""

import json

import numpy as np
import pytest

from matchattention.cli.main import main
from matchattention.data.formats import read_pfm, write_pfm
from tests.data import trees
from tests.data.trees import INF, field

pytest.importorskip("cv2")


@pytest.fixture
def pairs(tmp_path):
    """Two textured pairs with a disparity of 4 px, as the folder dataset has them."""
    from PIL import Image

    random = np.random.default_rng(0)
    for name in ("desk", "shelf"):
        world = random.integers(0, 256, (24, 44, 3), np.uint8).repeat(2, axis=0).repeat(2, axis=1)
        folder = tmp_path / "pairs" / name
        folder.mkdir(parents=True)
        Image.fromarray(world[:, :80]).save(folder / "im0.png")
        Image.fromarray(world[:, 4:84]).save(folder / "im1.png")
        truth = np.full((48, 80), 4, np.float32)
        truth[0] = np.inf
        write_pfm(folder / "disp0GT.pfm", truth)
        mask = np.full((48, 80), 255)
        mask[:, :4] = 128
        trees.grey8(folder / "mask0nocc.png", mask)
    return tmp_path / "pairs"


def test_sgbm_from_end_to_end(pairs, tmp_path, capsys):
    saved, report = tmp_path / "saved", tmp_path / "new folder" / "sgbm.json"
    arguments = ["evaluate", "folder", str(pairs), "--model", "sgbm", "--save", str(saved), "--json", str(report)]
    assert main(arguments) == 0
    output = capsys.readouterr()
    assert "SGBM (OpenCV) on folder (all), 2 scenes" in output.out
    assert "[2/2] shelf: EPE" in output.err
    content = json.loads(report.read_text())
    assert content["mean_over_scenes"]["noc"]["epe"] < 0.5
    assert content["command"] == "matchattention evaluate folder pairs --model sgbm"
    assert str(tmp_path) not in report.read_text()
    assert read_pfm(saved / "desk.pfm").shape == (48, 80)

    assert main(["evaluate", "folder", str(pairs), "--predictions", str(saved), "--label", "mine"]) == 0
    again = capsys.readouterr().out
    assert again.startswith("mine on folder")
    assert again.splitlines()[-1].split("|")[1:3] == output.out.splitlines()[-1].split("|")[1:3]

    assert main(["results", str(report)]) == 0
    assert "SGBM (OpenCV)" in capsys.readouterr().out


def test_patterns_and_limit(tmp_path, capsys):
    for name in ("a", "b"):
        trees.pair(tmp_path / f"{name}_left.png", tmp_path / f"{name}_right.png")
        trees.grey16(tmp_path / f"{name}_truth.png", field(0, base=200))
    (tmp_path / "guess").mkdir()
    write_pfm(tmp_path / "guess" / "a.pfm", field())
    arguments = ["evaluate", "folder", str(tmp_path), "--left", "*_left.png", "--right", "*_right.png"]
    arguments += ["--truth", "*_truth.png", "--png-scale", "100", "--limit", "1"]
    assert main([*arguments, "--predictions", str(tmp_path / "guess"), "--json", str(tmp_path / "a.json")]) == 0
    content = json.loads((tmp_path / "a.json").read_text())
    assert [scene["name"] for scene in content["scenes"]] == ["a"]
    assert content["mean_over_scenes"]["all"]["epe"] == 0
    assert "--png-scale 100" in content["command"]
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["middlebury", "{root}"], "Expected the folder"),
        (["kitti2015", "{root}", "--split", "trainingQ"], "choose one of training, testing"),
        (["folder", "{root}/none"], "no such folder"),
        (["folder", "{pairs}", "--model", "sgbm", "--predictions", "{root}"], "not both"),
        (["folder", "{pairs}", "--predictions", "{root}"], "Expected the prediction"),
        (["folder", "{pairs}", "--model", "sgbm", "--limit", "0"], "at least 1"),
        (["folder", "{pairs}", "--model", "{root}/none.safetensors"], "none.safetensors"),
        (["kitti2015", "{root}", "--left", "*.png"], "layout of its own"),
    ],
)
def test_mistakes_get_a_sentence(pairs, tmp_path, capsys, arguments, sentence):
    arguments = [word.format(root=tmp_path, pairs=pairs) for word in arguments]
    assert main(["evaluate", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error
    assert len(error.strip().splitlines()) == 1


def test_help_lists_the_datasets(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", "--help"])
    assert stopped.value.code == 0
    output = capsys.readouterr().out
    assert "trainingQ" in output
    assert "sintel" in output
    assert "--model sgbm" in output


def test_submission(tmp_path, capsys):
    scene = tmp_path / "data" / "testQ" / "Djembe"
    trees.image(scene / "im0.png", 10, (40, 64))
    trees.image(scene / "im1.png", 10, (40, 64))
    arguments = ["submission", "middlebury", str(tmp_path / "data"), "--split", "testQ", "--model", "sgbm"]
    assert main([*arguments, "--output", str(tmp_path / "up"), "--method", "X"]) == 0
    assert (tmp_path / "up" / "testQ" / "Djembe" / "disp0X.pfm").is_file()
    assert "wrote 1 results" in capsys.readouterr().out


def test_results_into_a_page(pairs, tmp_path, capsys):
    report, page = tmp_path / "a.json", tmp_path / "page.md"
    assert main(["evaluate", "folder", str(pairs), "--model", "sgbm", "--json", str(report)]) == 0
    assert main(["results", str(report), "--page", str(page)]) == 2
    from matchattention.evaluation.results_page import BEGIN, END

    page.write_text(f"{BEGIN}\n{END}\n")
    assert main(["results", str(report), "--page", str(page)]) == 0
    assert "folder all (pairs, 2 scenes)" in page.read_text()
    capsys.readouterr()


def test_unknown_truth_is_not_measured(tmp_path):
    trees.pair(tmp_path / "a" / "im0.png", tmp_path / "a" / "im1.png")
    trees.pfm(tmp_path / "a" / "disp0GT.pfm", field(INF, np.nan, 3))
    (tmp_path / "guess").mkdir()
    write_pfm(tmp_path / "guess" / "a.pfm", field(99, 99, 3))
    report = tmp_path / "a.json"
    arguments = ["evaluate", "folder", str(tmp_path), "--predictions", str(tmp_path / "guess"), "--json", str(report)]
    assert main(arguments) == 0
    measured = json.loads(report.read_text())["mean_over_scenes"]["all"]
    assert (measured["pixels"], measured["epe"]) == (22, 0)


@pytest.fixture
def paper_data(tmp_path):
    """KITTI 2015 and Middlebury Q as the paper's tables need them, one textured pair each."""
    import shutil

    from PIL import Image

    world = np.random.default_rng(0).integers(0, 256, (24, 44, 3), np.uint8).repeat(2, axis=0).repeat(2, axis=1)
    scene = tmp_path / "data" / "MiddEval3" / "trainingQ" / "Adirondack"
    scene.mkdir(parents=True)
    Image.fromarray(world[:, :80]).save(scene / "im0.png")
    Image.fromarray(world[:, 4:84]).save(scene / "im1.png")
    trees.pfm(scene / "disp0GT.pfm", np.full((48, 80), 4.0))
    trees.grey8(scene / "mask0nocc.png", np.full((48, 80), 255))
    kitti = tmp_path / "data" / "kitti2015" / "training"
    for source, folder in (("im0.png", "image_2"), ("im1.png", "image_3")):
        (kitti / folder).mkdir(parents=True)
        shutil.copy(scene / source, kitti / folder / "000000_10.png")
    trees.grey16(kitti / "disp_occ_0" / "000000_10.png", np.full((48, 80), 4 * 256))
    trees.grey16(kitti / "disp_noc_0" / "000000_10.png", np.full((48, 80), 4 * 256))
    return tmp_path / "data"


def test_results_measures_what_is_present(paper_data, tmp_path, capsys):
    kept = tmp_path / "kept"
    assert main(["results", "--data", str(paper_data), "--model", "sgbm", "--json", str(kept)]) == 0
    output = capsys.readouterr()
    header = (
        "| method | KITTI 2015 bad 3 all | KITTI 2015 bad 3 noc | Middlebury Q bad 2 all | Middlebury Q bad 2 noc |"
    )
    assert header in output.out
    assert "| MatchAttentionRT (paper) | 5.52 | 5.31 | 12.42 | 8.23 |" in output.out
    assert "| **SGBM (OpenCV)** |" in output.out
    assert "sgbm on kitti2015 training: [1/1] 000000_10" in output.err
    names = sorted(path.name for path in kept.iterdir())
    assert names == ["sgbm-kitti2015-training.json", "sgbm-middlebury-trainingQ.json"]
    assert main(["results", *(str(kept / name) for name in names)]) == 0
    assert header in capsys.readouterr().out


def test_results_mistakes(tmp_path, capsys):
    for arguments, sentence in [
        ([], "Give files"),
        (["--model", "sgbm"], "--data"),
        (["--data", str(tmp_path)], "MiddEval3"),
        ([str(tmp_path / "none.json")], "does not exist"),
    ]:
        assert main(["results", *arguments]) == 2
        assert sentence in capsys.readouterr().err
