"""`matchattention predict` from the user's side: files in, files out, sentences and exit codes."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import matchattention as ma
from matchattention.cli import waiting
from matchattention.cli.main import main
from matchattention.data.formats import read_flo, read_pfm
from matchattention.data.png import read_png16, write_png16
from matchattention.inference import outputs, predictor, result_files
from matchattention.layers.confidence_head import ConfidenceHead
from matchattention.models.checkpoint import save
from matchattention.models.confidence_file import fingerprint, save_head
from tests.cli.conftest import read, write_pair
from tests.inference.oracle import TINY

FILES = ["confidence.png", "disparity.pfm", "disparity.png", "disparity_right.pfm", "occlusion.png", "prediction.json"]
CAMERA = "fx=200,baseline=0.1"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_pair(tmp_path, checkpoint, capsys) -> None:
    left, right = write_pair(tmp_path)
    out = tmp_path / "deep" / "result"
    assert main(["predict", left, right, "--output", str(out), "--model", checkpoint]) == 0
    assert names(out) == FILES
    disparity = read_pfm(out / "disparity.pfm")
    assert disparity.shape == read_pfm(out / "disparity_right.pfm").shape == (96, 160)
    assert (disparity >= 0).all()
    assert read(out / "occlusion.png").shape == read(out / "confidence.png").shape == (96, 160)
    assert set(np.unique(read(out / "occlusion.png"))) <= {0, 255}
    printed = capsys.readouterr().out
    for name in FILES:
        assert str(out / name) in printed
    assert "bright is near" in printed


def test_a_camera_adds_depth_and_cloud(tmp_path, checkpoint) -> None:
    left, right = write_pair(tmp_path)
    out = tmp_path / "result"
    assert main(["predict", left, right, "--output", str(out), "--model", checkpoint, "--camera", CAMERA]) == 0
    assert names(out) == sorted([*FILES, "cloud.ply", "depth.npy", "depth.png", "depth_colours.png", "depth_error.npy"])
    disparity, depth = read_pfm(out / "disparity.pfm"), np.load(out / "depth.npy")
    known = disparity > 0.01
    np.testing.assert_allclose(depth[known], 20 / disparity[known], rtol=1e-4)
    near = np.isfinite(depth) & (depth < 65)
    np.testing.assert_allclose(read_png16(out / "depth.png")[near], depth[near] * 1000, atol=1)
    assert (out / "cloud.ply").read_bytes().startswith(b"ply\nformat binary_little_endian")


def test_the_example_explains_itself(tmp_path, checkpoint, capsys) -> None:
    out = tmp_path / "demo"
    assert main(["predict", "--example", "--output", str(out), "--model", checkpoint]) == 0
    assert {"attention.png", "evolution.gif", "evolution.png", "cloud.ply", *FILES} <= set(names(out))
    assert "evolution.gif" in capsys.readouterr().out


def test_flow(tmp_path, flow_checkpoint) -> None:
    left, right = write_pair(tmp_path)
    out = tmp_path / "result"
    assert main(["predict", left, right, "--task", "flow", "--output", str(out), "--model", flow_checkpoint]) == 0
    assert names(out) == [
        "confidence.png", "flow.flo", "flow.png", "flow_backward.flo", "occlusion.png", "prediction.json",
    ]  # fmt: skip
    assert read_flo(out / "flow.flo").shape == (96, 160, 2)


@pytest.mark.parametrize("kind", ["16-bit", "alpha", "grey", "jpeg", "tiff", "palette"])
def test_every_kind_of_image_works(tmp_path, checkpoint, kind: str) -> None:
    left, right = write_pair(tmp_path)
    suffix = {"jpeg": ".jpg", "tiff": ".tif"}.get(kind, ".png")
    converted = []
    for path in (left, right):
        target = Path(path).with_name(Path(path).stem + "_converted" + suffix)
        image = Image.open(path)
        if kind == "16-bit":
            write_png16(target, np.asarray(image).astype(np.uint16) * 257)
        else:
            mode = {"alpha": "RGBA", "grey": "L", "palette": "P"}.get(kind, "RGB")
            image.convert(mode).save(target)
        converted.append(str(target))
    assert main(["predict", *converted, "--output", str(tmp_path / "result"), "--model", checkpoint]) == 0
    assert read_pfm(tmp_path / "result" / "disparity.pfm").shape == (96, 160)


def broken(tmp_path: Path, kind: str, checkpoint: str, flow_checkpoint: str) -> list[str]:
    """Arguments of one user mistake."""
    left, right = write_pair(tmp_path)
    image = read(right)
    model = ["--model", checkpoint]
    if kind == "missing file":
        return [left, str(tmp_path / "nowhere.png"), *model]
    if kind == "not an image":
        Path(right).write_text("hello")
    elif kind == "cut short":
        Path(right).write_bytes(Path(right).read_bytes()[:2000])
    elif kind == "different sizes":
        Image.fromarray(image[:, :100]).save(right)
    elif kind == "one black image":
        Image.fromarray(np.zeros_like(image)).save(right)
    elif kind == "swapped views":
        return [right, left, *model]
    elif kind == "5 px vertical shift":
        Image.fromarray(np.roll(image, -5, axis=0)).save(right)
    elif kind == "1x1 image":
        for path in (left, right):
            Image.fromarray(image[:1, :1]).save(path)
    elif kind == "corrupt checkpoint":
        bad = tmp_path / "bad.safetensors"
        bad.write_bytes(Path(checkpoint).read_bytes()[:500])
        return [left, right, "--model", str(bad)]
    elif kind == "missing checkpoint":
        return [left, right, "--model", str(tmp_path / "nowhere.safetensors")]
    elif kind == "wrong checkpoint for the task":
        return [left, right, "--model", flow_checkpoint]
    elif kind == "flow with a camera":
        return [left, right, "--model", flow_checkpoint, "--task", "flow", "--camera", CAMERA]
    elif kind == "missing calibration":
        return [left, right, *model, "--camera", str(tmp_path / "calib.txt")]
    elif kind == "calibration of another crop":
        return [left, right, *model, "--camera", CAMERA + ",width=500,height=500"]
    elif kind == "camera without baseline":
        return [left, right, *model, "--camera", "fx=200"]
    elif kind == "unknown device":
        return [left, right, *model, "--device", "abacus"]
    elif kind == "one view only":
        return [left, *model]
    elif kind == "too many inputs":
        return [left, right, left, *model]
    elif kind == "no input":
        return model
    elif kind == "example with inputs":
        return [left, right, "--example", *model]
    elif kind == "unknown example":
        return ["--example", "mona-lisa", *model]
    elif kind == "empty folder":
        (tmp_path / "empty").mkdir()
        return [str(tmp_path / "empty"), *model]
    elif kind == "glob of nothing":
        return [str(tmp_path / "*.bmp"), str(tmp_path / "*.bmp"), *model]
    elif kind == "not a video":
        (tmp_path / "film.mp4").write_text("hello")
        return [str(tmp_path / "film.mp4"), "--side-by-side", *model]
    return [left, right, *model]


MISTAKES = {
    "missing file": "does not exist",
    "not an image": "not an image",
    "cut short": "broken, cut short",
    "different sizes": "160x96 and the right one 100x96",
    "one black image": "The right image is one colour",
    "swapped views": "The views look swapped",
    "5 px vertical shift": "does not look rectified",
    "1x1 image": "too small to match",
    "corrupt checkpoint": "not a readable safetensors file",
    "missing checkpoint": "check the path",
    "wrong checkpoint for the task": "is a flow model, but stereo was asked for",
    "flow with a camera": "leave it out",
    "missing calibration": "does not exist",
    "calibration of another crop": "not a resized",
    "camera without baseline": "give at least fx (px) and baseline (m)",
    "unknown device": "no device 'abacus'",
    "one view only": "give LEFT and RIGHT",
    "too many inputs": "3 inputs came",
    "no input": "Give LEFT and RIGHT",
    "example with inputs": "leave the inputs out",
    "unknown example": "choose donkey or workbench",
    "empty folder": "No pairs were found",
    "glob of nothing": "no image",
    "not a video": "not a video",
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_mistakes_give_one_sentence_code_two_and_no_files(
    tmp_path, checkpoint, flow_checkpoint, capsys, kind: str
) -> None:
    arguments = broken(tmp_path, kind, checkpoint, flow_checkpoint)
    out = tmp_path / "deep" / "result"
    assert main(["predict", *arguments, "--output", str(out)]) == 2
    message = capsys.readouterr().err
    assert MISTAKES[kind] in message
    assert message.startswith("matchattention predict: ")
    assert message.count("\n") == 1
    assert "Traceback" not in message
    assert not (tmp_path / "deep").exists()


def test_no_check_goes_on_all_the_same(tmp_path, checkpoint) -> None:
    left, right = write_pair(tmp_path)
    out = str(tmp_path / "result")
    assert main(["predict", right, left, "--output", out, "--model", checkpoint, "--no-check"]) == 0


def test_no_output(tmp_path, checkpoint, capsys) -> None:
    assert main(["predict", *write_pair(tmp_path), "--model", checkpoint]) == 2
    assert "--output DIR" in capsys.readouterr().err


def test_output_inside_a_file_or_a_forbidden_folder(tmp_path, checkpoint, capsys, monkeypatch) -> None:
    pair = write_pair(tmp_path)
    assert main(["predict", *pair, "--model", checkpoint, "--output", pair[0]]) == 2
    assert "is a file" in capsys.readouterr().err
    assert main(["predict", *pair, "--model", checkpoint, "--output", f"{pair[0]}/result"]) == 2
    assert "is a file" in capsys.readouterr().err
    # The suite may run as root, to whom nothing is forbidden.
    monkeypatch.setattr(outputs.os, "access", lambda path, mode: False)
    assert main(["predict", *pair, "--model", checkpoint, "--output", str(tmp_path / "result")]) == 2
    assert "Nothing can be written into" in capsys.readouterr().err


def test_a_full_disk_leaves_nothing(tmp_path, checkpoint, capsys, monkeypatch) -> None:
    calls = []

    def full(path, values) -> None:
        calls.append(path)
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(result_files, "write_pfm", full)
    out = tmp_path / "deep" / "result"
    assert main(["predict", *write_pair(tmp_path), "--output", str(out), "--model", checkpoint]) == 2
    assert calls
    assert "No space left on device" in capsys.readouterr().err
    assert not (tmp_path / "deep").exists()


def test_a_file_that_cannot_grow_keeps_the_earlier_result(tmp_path, checkpoint, capsys) -> None:
    resource = pytest.importorskip("resource")
    out = tmp_path / "result"
    arguments = ["predict", *write_pair(tmp_path), "--output", str(out), "--model", checkpoint]
    assert main(arguments) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limits[1]))  # a PFM of 61 kB fails in its middle
    try:
        code = main([*arguments, "--camera", CAMERA])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 2
    assert "too large" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_huge_image_is_cut_or_halved_with_a_warning(tmp_path, checkpoint, capsys, monkeypatch) -> None:
    from matchattention.runtime import memory

    monkeypatch.setattr(memory, "available_bytes", lambda device: 1e6)
    monkeypatch.setattr(memory, "_SMALLEST_HALVED", 32)
    out = tmp_path / "result"
    assert main(["predict", *write_pair(tmp_path), "--output", str(out), "--model", checkpoint]) == 0
    assert "does not fit into this computer's memory" in capsys.readouterr().err
    assert read_pfm(out / "disparity.pfm").shape == (96, 160)


def folder_of_pairs(tmp_path: Path, count: int = 3) -> Path:
    for index in range(count):
        write_pair(tmp_path / "scenes" / f"scene{index}", "im0.png", "im1.png", seed=index)
    return tmp_path / "scenes"


def test_ctrl_c_in_a_folder_then_resume(tmp_path, checkpoint, capsys, monkeypatch) -> None:
    scenes, out = folder_of_pairs(tmp_path), tmp_path / "results"
    arguments = ["predict", str(scenes), "--output", str(out), "--model", checkpoint]
    real = predictor.Predictor.match
    done = []

    def interrupted(self, *images, **options):
        if len(done) == 1:
            raise KeyboardInterrupt
        done.append(1)
        return real(self, *images, **options)

    monkeypatch.setattr(predictor.Predictor, "match", interrupted)
    assert main(arguments) == 130
    assert names(out) == ["scene0"]
    assert names(out / "scene0") == FILES
    assert "goes on from here" in capsys.readouterr().out
    first = (out / "scene0" / "disparity.pfm").stat().st_mtime_ns

    monkeypatch.setattr(predictor.Predictor, "match", real)
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert "2 new and 1 earlier" in captured.out
    assert "3/3" in captured.err
    assert names(out) == ["scene0", "scene1", "scene2"]
    assert (out / "scene0" / "disparity.pfm").stat().st_mtime_ns == first
    assert main([*arguments, "--overwrite"]) == 0
    assert "3 new and 0 earlier" in capsys.readouterr().out


def test_another_model_is_not_taken_for_done(tmp_path, checkpoint, capsys) -> None:
    scenes, out = folder_of_pairs(tmp_path, 1), tmp_path / "results"
    assert main(["predict", str(scenes), "--output", str(out), "--model", checkpoint]) == 0
    assert main(["predict", str(scenes), "--output", str(out), "--model", checkpoint, "--camera", CAMERA]) == 0
    assert "1 new and 0 earlier" in capsys.readouterr().out
    assert (out / "scene0" / "cloud.ply").is_file()
    assert json.loads((out / "scene0" / "prediction.json").read_text())["camera"]["fx"] == 200


@pytest.mark.parametrize("change", ["image", "calibration", "baseline", "max-depth", "weights", "emptied result"])
def test_what_decides_a_result_is_computed_again(tmp_path, checkpoint, capsys, change: str) -> None:
    scenes, out = folder_of_pairs(tmp_path, 1), tmp_path / "results"
    calibration = tmp_path / "K.txt"
    calibration.write_text("200 0 80 0 200 48 0 0 1\n")
    model = tmp_path / "model.safetensors"
    model.write_bytes(Path(checkpoint).read_bytes())
    arguments = ["predict", str(scenes), "--output", str(out), "--model", str(model), "--camera", str(calibration)]
    last = ["--baseline", "0.1", "--max-depth", "9"]
    assert main([*arguments, *last]) == 0
    assert main([*arguments, *last]) == 0
    assert "0 new and 1 earlier" in capsys.readouterr().out
    if change == "image":
        write_pair(scenes / "scene0", "im0.png", "im1.png", seed=7)
    elif change == "calibration":
        calibration.write_text("210 0 80 0 200 48 0 0 1\n")
    elif change == "baseline":
        last[1] = "0.2"
    elif change == "max-depth":
        last[3] = "8"
    elif change == "weights":
        torch.manual_seed(1)
        save(ma.create_model(TINY), model, TINY)
    else:
        (out / "scene0" / "cloud.ply").write_bytes(b"")
    assert main([*arguments, *last]) == 0
    assert "1 new and 0 earlier" in capsys.readouterr().out


def test_another_confidence_head_at_the_same_path_computes_again(tmp_path, checkpoint, capsys) -> None:
    scenes, head = folder_of_pairs(tmp_path, 1), tmp_path / "head.safetensors"
    command = ["predict", str(scenes), "--output", str(tmp_path / "results"), "--model", checkpoint]
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        save_head(ConfidenceHead(16), head, fingerprint(ma.load(checkpoint)))
        assert main([*command, "--confidence", str(head)]) == 0
    last = capsys.readouterr().out.splitlines()
    assert [line[:5] for line in last] == ["1 new", "0 new", "1 new"]


def test_another_pair_leaves_nothing_of_the_first(tmp_path, checkpoint) -> None:
    out = tmp_path / "result"
    first, second = write_pair(tmp_path / "a"), write_pair(tmp_path / "b", seed=1)
    assert main(["predict", *first, "--output", str(out), "--model", checkpoint, "--camera", CAMERA, "--explain"]) == 0
    assert main(["predict", *second, "--output", str(out), "--model", checkpoint]) == 0
    assert names(out) == FILES


def test_a_folder_with_a_depth_of_its_own_keeps_it(tmp_path, checkpoint, capsys) -> None:
    pair = write_pair(tmp_path)
    (tmp_path / "depth.png").write_text("mine")
    assert main(["predict", *pair, "--output", str(tmp_path), "--model", checkpoint]) == 2
    assert "depth.png but no prediction.json" in capsys.readouterr().err
    assert names(tmp_path) == ["depth.png", "left.png", "right.png"]


def test_a_baseline_beside_numbers_and_a_negative_depth(tmp_path, checkpoint, capsys) -> None:
    common = ["predict", *write_pair(tmp_path), "--output", str(tmp_path / "result"), "--model", checkpoint]
    assert main([*common, "--camera", "fx=200", "--baseline", "0.1", "--threads", "1"]) == 0
    assert main([*common, "--camera", CAMERA, "--max-depth", "-4"]) == 2
    assert "give a positive number, not -4" in capsys.readouterr().err


def test_one_bad_pair_does_not_stop_the_others(tmp_path, checkpoint, capsys) -> None:
    scenes, out = folder_of_pairs(tmp_path), tmp_path / "results"
    (scenes / "scene1" / "im1.png").write_text("hello")
    assert main(["predict", str(scenes), "--output", str(out), "--model", checkpoint]) == 2
    assert names(out) == ["scene0", "scene2"]
    message = capsys.readouterr().err
    assert "1 of 3 pairs failed" in message
    assert "scene1" in message


def test_a_calibration_beside_each_pair(tmp_path, checkpoint) -> None:
    scenes, out = folder_of_pairs(tmp_path, 2), tmp_path / "results"
    for index in range(2):
        (scenes / f"scene{index}" / "K.txt").write_text(f"200 0 80 0 200 48 0 0 1\n{0.1 * (index + 1)}\n")
    assert main(["predict", str(scenes), "--output", str(out), "--model", checkpoint, "--camera", "K.txt"]) == 0
    for index in range(2):
        disparity, depth = (
            read_pfm(out / f"scene{index}" / "disparity.pfm"),
            np.load(out / f"scene{index}" / "depth.npy"),
        )
        known = disparity > 0.01
        np.testing.assert_allclose(depth[known], 20 * (index + 1) / disparity[known], rtol=1e-4)


def test_a_calibration_for_larger_images_is_scaled_and_said(tmp_path, checkpoint, capsys) -> None:
    out = tmp_path / "result"
    camera = "fx=400,baseline=0.1,width=320,height=192"
    arguments = ["predict", *write_pair(tmp_path), "--output", str(out), "--model", checkpoint, "--camera", camera]
    assert main(arguments) == 0
    assert "scaled to fit" in capsys.readouterr().err
    disparity, depth = read_pfm(out / "disparity.pfm"), np.load(out / "depth.npy")
    known = disparity > 0.01
    np.testing.assert_allclose(depth[known], 20 / disparity[known], rtol=1e-4)


def test_side_by_side_image(tmp_path, checkpoint) -> None:
    left, right = write_pair(tmp_path)
    Image.fromarray(np.concatenate([read(left), read(right)], axis=1)).save(tmp_path / "both.png")
    model = ["--model", checkpoint]
    both, apart = tmp_path / "both", tmp_path / "apart"
    assert main(["predict", str(tmp_path / "both.png"), "--side-by-side", "--output", str(both), *model]) == 0
    assert main(["predict", left, right, "--output", str(apart), *model]) == 0
    np.testing.assert_array_equal(read_pfm(both / "disparity.pfm"), read_pfm(apart / "disparity.pfm"))


def test_globs(tmp_path, checkpoint) -> None:
    for index in range(2):
        write_pair(tmp_path, f"{index}_left.png", f"{index}_right.png", seed=index)
    out = tmp_path / "results"
    globs = [str(tmp_path / "*_left.png"), str(tmp_path / "*_right.png")]
    assert main(["predict", *globs, "--output", str(out), "--model", checkpoint]) == 0
    assert names(out) == ["0_left", "1_left"]


def test_the_cloud_ends_at_max_depth(tmp_path, checkpoint) -> None:
    left, right = write_pair(tmp_path)

    def depths(*flags: str) -> np.ndarray:
        """z of the cloud's points."""
        arguments = ["predict", left, right, "--output", str(tmp_path / "out"), "--model", checkpoint, *flags]
        assert main([*arguments, "--camera", CAMERA]) == 0
        header, body = (tmp_path / "out" / "cloud.ply").read_bytes().split(b"end_header\n")
        count = int(header.split(b"element vertex ")[1].split()[0])
        points = np.frombuffer(body, np.uint8).reshape(count, -1)
        return np.ascontiguousarray(points[:, 8:12]).view(np.float32)[:, 0]

    every = np.abs(depths())
    limit = float(np.median(every))
    kept = np.abs(depths("--max-depth", str(limit)))
    assert len(kept) == (every <= limit).sum() < len(every)


def test_a_pair_that_takes_long_shows_how_far_it_is(tmp_path, checkpoint, capsys, monkeypatch) -> None:
    monkeypatch.setattr(waiting, "_PATIENCE", 0.0)
    monkeypatch.setattr(waiting, "_LOG_EVERY", 0.001)
    assert main(["predict", *write_pair(tmp_path), "--output", str(tmp_path / "out"), "--model", checkpoint]) == 0
    assert "matching 160x96 px: block" in capsys.readouterr().err


def test_only_and_min_confidence(tmp_path, checkpoint, capsys) -> None:
    pair, out = write_pair(tmp_path), tmp_path / "out"
    command = ["predict", *pair, "--output", str(out), "--model", checkpoint, "--camera", "fx=200,baseline=0.1"]
    assert main([*command, "--only", "disparity,cloud", "--min-confidence", "0"]) == 0
    names = {path.name for path in out.iterdir()}
    assert names == {"disparity.png", "disparity.pfm", "cloud.ply", "prediction.json"}
    everything = (out / "cloud.ply").stat().st_size
    assert main([*command, "--min-confidence", "1"]) == 0
    assert (out / "cloud.ply").stat().st_size < everything
    for words, answer in ((["--min-confidence", "2"], "between 0 and 1"), (["--only", "colour"], "choose among")):
        assert main([*command, *words]) == 2
        assert answer in capsys.readouterr().err
    assert main(["predict", *pair, "--output", str(out), "--model", checkpoint, "--only", "depth"]) == 2
    assert "needs the calibration" in capsys.readouterr().err


@pytest.mark.parametrize(("place", "words"), [("https://x.org/a.png", "download it first"), ("/dev/null", "a device")])
def test_addresses_and_devices_are_no_images(tmp_path, capsys, place: str, words: str) -> None:
    assert main(["predict", place, write_pair(tmp_path)[1], "--output", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_is_true_of_every_pair_is_said_once(tmp_path, checkpoint, capsys) -> None:
    pair = write_pair(tmp_path)
    (tmp_path / "pairs.txt").write_text(f"{' '.join(pair)}\n{' '.join(pair)}\n")
    command = ["predict", str(tmp_path / "pairs.txt"), "--output", str(tmp_path / "out"), "--model", checkpoint]
    assert main([*command, "--camera", "fx=200,baseline=75", "--only", "depth"]) == 0
    assert capsys.readouterr().err.count("millimetres") == 1


def test_a_broken_tiff_is_one_sentence(tmp_path, capsys) -> None:
    (tmp_path / "a.tif").write_bytes(b"II*\0broken")
    assert main(["predict", *[str(tmp_path / "a.tif")] * 2, "--output", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--baseline", "0.1"], "give --camera too"),
        (["--camera", "fx=200,baseline=0.1,width=nan,height=96"], "width is a whole number"),
        (["--camera", "fx=200,baseline=0.1,width=160.5,height=96"], "width is a whole number"),
        (["--camera", "fx=200", "--baseline", "abc"], "invalid float value: 'abc'"),
        (["--colour"], "predict: unrecognized arguments: --colour; see matchattention predict --help"),
    ],
)
def test_options_that_cannot_be_are_one_sentence(tmp_path, checkpoint, capsys, options, words: str) -> None:
    try:
        code = main(["predict", *write_pair(tmp_path), "--output", str(tmp_path / "out"), *options])
    except SystemExit as exit:
        code = exit.code
    message = capsys.readouterr().err
    assert code == 2
    assert words in message
    assert message.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("output", "words"), [("", "Give --output"), ("s3://bucket/out", "is an address"), ("depth.png", "give a folder")]
)
def test_an_output_that_is_no_folder(tmp_path, checkpoint, capsys, monkeypatch, output: str, words: str) -> None:
    pair = write_pair(tmp_path / "pair")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["predict", *pair, "--output", output, "--model", checkpoint]) == 2
    assert words in capsys.readouterr().err
    assert not list((tmp_path / "here").iterdir())


def test_a_baseline_replaces_the_one_of_the_numbers(tmp_path, checkpoint) -> None:
    common = ["predict", *write_pair(tmp_path), "--model", checkpoint, "--only", "depth"]
    assert main([*common, "--output", str(tmp_path / "a"), "--camera", "fx=200,baseline=0.1", "--baseline", "0.2"]) == 0
    assert main([*common, "--output", str(tmp_path / "b"), "--camera", "fx=200,baseline=0.2"]) == 0
    depths = [np.load(tmp_path / name / "depth.npy") for name in "ab"]
    np.testing.assert_array_equal(*depths)


def test_more_threads_than_cores_are_not_started(tmp_path, checkpoint, capsys, monkeypatch) -> None:
    """A hundred thousand of them were a segmentation fault."""
    started = []
    monkeypatch.setattr("torch.set_num_threads", started.append)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    command = ["predict", *write_pair(tmp_path), "--output", str(tmp_path / "out"), "--model", checkpoint]
    assert main([*command, "--threads", "100000"]) == 0
    assert started == [3]
    assert "3 are used, one a core" in capsys.readouterr().err
