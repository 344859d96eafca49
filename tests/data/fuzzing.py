"""Every kind of file that is read, a good example of each, and what mutated ones do to its reader.

    python -m tests.data.fuzzing 400          # that many mutations of every kind; prints what was no sentence

The test runs the same in a process of its own, so that a crash or a burst of memory is seen.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from matchattention.errors import InputError
from tests.data.mutations import (
    Mutation,
    any_bytes,
    counted_json,
    json_values,
    png_chunks,
    safetensors_strings,
    words,
    zip_members,
)
from tests.geometry.test_calibration_files import KITTI, MIDDLEBURY, OPENCV, ROS_LEFT, ROS_RIGHT

SEED = 20260101
DICE = np.random.default_rng(0)
RGB = DICE.integers(0, 256, (12, 16, 3), np.uint8)
GREY = RGB[..., 0]
DEEP = DICE.integers(1, 65536, (12, 16, 3), np.uint16)
DISPARITY = DICE.uniform(1, 60, (12, 16)).astype(np.float32)
FLOW = DICE.uniform(-9, 9, (12, 16, 2)).astype(np.float32)
RAW = """%YAML:1.0
---
image_width: 640
image_height: 480
"""
for _name, _rows, _values in (
    ("K1", 3, "500. 0. 320. 0. 500. 240. 0. 0. 1."),
    ("D1", 1, "0.1 0. 0. 0. 0."),
    ("K2", 3, "500. 0. 320. 0. 500. 240. 0. 0. 1."),
    ("D2", 1, "0.1 0. 0. 0. 0."),
    ("R", 3, "1. 0. 0. 0. 1. 0. 0. 0. 1."),
    ("T", 3, "-0.1 0. 0."),
):
    _columns = len(_values.split()) // _rows
    _list = ", ".join(_values.split())
    RAW += f"{_name}: !!opencv-matrix\n   rows: {_rows}\n   cols: {_columns}\n   dt: d\n   data: [ {_list} ]\n"


@dataclass(frozen=True)
class Kind:
    """One kind of file.

    Attributes:
        name: the file's, with its suffix.
        write: makes a good one.
        read: what users' commands read it with.
        mutations: ways to spoil it, each as likely as the others.
        share: of the mutations asked for; less than 1 for slow readers.
    """

    name: str
    write: Callable[[Path], Any]
    read: Callable[[Path], Any]
    mutations: tuple[Mutation, ...] = (any_bytes,)
    share: float = 1.0


def _text(text: str) -> Callable[[Path], Any]:
    return lambda path: path.write_text(text)


def _picture(array: np.ndarray, **options: Any) -> Callable[[Path], Any]:
    from PIL import Image

    return lambda path: Image.fromarray(array).save(path, **options)


def _by_opencv(array: np.ndarray) -> Callable[[Path], Any]:
    import cv2

    return lambda path: cv2.imwrite(str(path), array)


def _palette(path: Path) -> None:
    from PIL import Image

    Image.fromarray(RGB).quantize(16).save(path, transparency=3)


def _exr(path: Path) -> None:
    import OpenEXR

    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    OpenEXR.File(header, {"R": DISPARITY, "G": DISPARITY, "B": DISPARITY}).write(str(path))


def _ros_pair(path: Path) -> None:
    path.write_text(ROS_LEFT)
    path.with_name("right.yaml").write_text(ROS_RIGHT)


def _report(path: Path) -> None:
    from matchattention.evaluation.report import Report, SceneResult

    metrics = {"all": {"bad1": 1.0, "bad2": 0.5, "bad3": 0.2, "d1": 0.2, "epe": 0.3, "pixels": 100.0}}
    scenes = (SceneResult("a", (16, 12), 0.5, metrics), SceneResult("b", (16, 12), 0.5, metrics))
    environment = {"commit": "0", "date": "today", "processor": "one"}
    Report("eth3d", "root", "training", "stereo", {"label": "rt"}, scenes, environment, "evaluate").write(path)


def _use_report(path: Path) -> None:
    from matchattention.evaluation.report import read_report
    from matchattention.evaluation.results_page import results_markdown

    report = read_report(path)
    report.table()
    results_markdown([report])


def _network() -> tuple[Any, Any]:
    from matchattention import create_model
    from matchattention.models.config import NetworkConfig

    config = NetworkConfig(channels=(16, 16, 16, 16), encoder_depths=(1, 1, 1, 1), decoder_depths=(1, 1, 1, 1))
    return create_model(config), config


def _checkpoint(path: Path) -> None:
    from matchattention.models import checkpoint

    checkpoint.save(*(lambda network, config: (network, path, config, {"license": "Apache-2.0"}))(*_network()))


def _released(legacy: bool) -> Callable[[Path], Any]:
    def write(path: Path) -> None:
        import torch

        names = [f"encoder.stages.{stage}.0.norm1.weight" for stage in range(4)]
        state = {name: torch.ones(16) for name in names} | {"encoder.norm.weight": torch.ones(3)}
        torch.save({"model": state}, path, _use_new_zipfile_serialization=not legacy)

    return write


def _read_released(path: Path) -> None:
    from matchattention.models.released import read_released

    read_released(path, "stereo")


def _shards(path: Path) -> None:
    """One shard of two samples and its list, in a folder of their own."""
    from types import SimpleNamespace

    from matchattention.data.shard_writer import write_shards

    sample = SimpleNamespace(name="a", left=RGB, right=RGB, disparity=DISPARITY)
    folder = path.parent / "shards"
    written = write_shards([sample, sample], folder)
    (written[0] if path.suffix == ".tar" else folder / "shards.json").rename(path)


def _read_shard(path: Path) -> None:
    from matchattention.data.shards import ShardFile

    shard = ShardFile(path, str(path))
    for number in range(len(shard.samples)):
        shard[number]


def _read_shard_list(path: Path) -> None:
    from matchattention.data.shards import read_shard_list

    read_shard_list(str(path))


def _state(path: Path) -> None:
    import torch

    from matchattention.training.state import write_state

    parts = {name: {"a": torch.ones(3)} for name in ("model", "average", "moments", "random")}
    write_state(path.parent, {"counters": {"steps": 1}, **parts})


def _read_state(path: Path) -> None:
    from matchattention.training.state import read_state

    read_state(path.parent, lambda text: None)


def _photo_bank() -> Any:
    try:
        from matchattention.synth.photos import photo_bank
    except ImportError:
        from matchattention.synth import photo_bank
    return photo_bank


def _write_bank(path: Path) -> None:
    import torch

    _photo_bank().save(torch.from_numpy(DICE.integers(0, 256, (2, 3, 16, 16), np.uint8)), path)


def _chairs(path: Path) -> None:
    data = path.parent / "data"
    data.mkdir(exist_ok=True)
    for name in ("00001_img1.ppm", "00001_img2.ppm", "00001_flow.flo"):
        (data / name).touch()
    path.write_text("1\n")


def kinds() -> list[Kind]:
    """The table."""
    from matchattention.data import formats
    from matchattention.data.datasets import kitti, layout, sceneflow, synthetic
    from matchattention.data.field_files import read_disparity, read_flow
    from matchattention.data.images import read_image
    from matchattention.data.png import write_png16
    from matchattention.geometry import StereoCamera
    from matchattention.geometry.rectification import RawCalibration
    from matchattention.inference.images import read_pair
    from matchattention.inference.sources import find_pairs
    from matchattention.models import checkpoint

    def both(path: Path) -> None:
        read_pair(path, path)

    def camera(path: Path) -> None:
        StereoCamera.from_file(path).depth(DISPARITY)

    def resized_camera(path: Path) -> None:
        StereoCamera.from_file(path).fitting(370, 248)

    def chairs(path: Path) -> None:
        sceneflow.flyingchairs(path.parent, "training")

    def pair_list(path: Path) -> None:
        for pair in find_pairs(str(path))[:3]:
            pair.read()

    def sample_text(path: Path) -> None:
        from matchattention.data.datasets.sample import StereoSample

        StereoSample("a", path, path, camera_path=path).camera  # noqa: B018

    png = (any_bytes, png_chunks)
    text = (any_bytes, words)
    return [
        Kind("grey.pfm", lambda p: formats.write_pfm(p, DISPARITY), read_disparity),
        Kind("colour.pfm", lambda p: formats.write_pfm(p, np.dstack([FLOW, FLOW[..., 0]])), read_flow),
        Kind("sceneflow.pfm", lambda p: formats.write_pfm(p, DISPARITY), sceneflow.read_disparity_magnitude_pfm),
        Kind("flow.flo", lambda p: formats.write_flo(p, FLOW), read_flow),
        Kind("disparity.png", lambda p: formats.write_kitti_disparity_png16(p, DISPARITY), read_disparity, png),
        Kind("flow.png", lambda p: formats.write_kitti_flow_png16(p, FLOW), read_flow, png),
        Kind("vkitti.png", lambda p: write_png16(p, DEEP[..., 0]), kitti.read_vkitti2_depth_as_disparity, png),
        Kind("sintel.png", _picture(RGB), formats.read_sintel_disparity_rgb8, png),
        Kind("fsd.png", _picture(RGB), formats.read_fsd_disparity_rgb8, png),
        Kind("mask.png", _picture(GREY), layout.read_grey, png),
        Kind("flow.flo5", lambda p: formats.write_flo5(p, FLOW), read_flow),
        Kind("disparity.dsp5", lambda p: formats.write_dsp5(p, DISPARITY), read_disparity),
        Kind("disparity.npy", lambda p: np.save(p, DISPARITY), read_disparity),
        Kind("flow.npy", lambda p: np.save(p, FLOW), read_flow),
        Kind("positive.npy", lambda p: np.save(p, DISPARITY), synthetic.read_positive_npy),
        Kind("disparity.npz", lambda p: formats.write_npy(p, DISPARITY), read_disparity, (any_bytes, zip_members)),
        Kind("disparity.exr", _exr, read_disparity),
        Kind("picture.exr", _exr, read_image),
        Kind("picture.hdr", _by_opencv(RGB.astype(np.float32)), read_image),
        Kind("picture.png", _picture(RGB), read_image, png),
        Kind("grey16.png", lambda p: write_png16(p, DEEP[..., 0]), read_image, png),
        Kind("deep.png", lambda p: write_png16(p, np.tile(DEEP, (2, 2, 1))), both, png),
        Kind("palette.png", _palette, read_image, png),
        Kind("picture.jpg", _picture(RGB), read_image),
        Kind("picture.bmp", _picture(RGB), read_image),
        Kind("picture.ppm", _picture(RGB), read_image, (any_bytes,)),
        Kind("deep.ppm", lambda p: p.write_bytes(b"P6 16 12 65535\n" + DEEP.astype(">u2").tobytes()), read_image),
        Kind("picture.pgm", _picture(GREY), read_image),
        Kind("picture.tif", _picture(RGB), read_image),
        Kind("deep.tif", _by_opencv(DEEP), read_image),
        Kind("float.tif", _picture(DISPARITY), read_image),
        Kind("picture.webp", _picture(RGB), read_image),
        Kind("picture.gif", _palette, read_image),
        Kind("calib.txt", _text(MIDDLEBURY), resized_camera, text),
        Kind("kitti.txt", _text(KITTI), camera, text),
        Kind("K.txt", _text("754.6 0 489.3 0 754.6 265.1 0 0 1\n0.063\n"), camera, text),
        Kind("opencv.yaml", _text(OPENCV), camera, text),
        Kind("left.yaml", _ros_pair, camera, text),
        Kind(
            "camera.json",
            _text(
                '{"fx": 451.0, "baseline": 0.075, "cx0": 299.0, "cx1": 301.0, "cy": 255.0, "width": 640, "doffs": 1}'
            ),
            camera,
            (any_bytes, words, json_values),
        ),
        Kind("raw.yml", _text(RAW), RawCalibration.from_file, text),
        Kind("sample.txt", _text(KITTI), sample_text, text),
        Kind("pairs.txt", _text("# pairs\na.png b.png\n'c d.png' e.png\n"), pair_list, text),
        Kind("pairs.csv", _text("a.png,b.png\nc.png,d.png\n"), pair_list, text),
        Kind("FlyingChairs_train_val.txt", _chairs, chairs, text),
        Kind("report.json", _report, _use_report, (any_bytes, words, json_values)),
        Kind("bytes.safetensors", _checkpoint, checkpoint.load, (any_bytes, counted_json(0)), 0.5),
        Kind("config.safetensors", _checkpoint, checkpoint.load, (safetensors_strings,), 0.5),
        Kind("released.pth", _released(legacy=False), _read_released, (any_bytes, zip_members)),
        Kind("legacy.pth", _released(legacy=True), _read_released),
        Kind("shard.tar", _shards, _read_shard),
        Kind("shards.json", _shards, _read_shard_list, (any_bytes, words, json_values)),
        Kind("state.pt", _state, _read_state, (any_bytes, zip_members)),
        Kind("bank.safetensors", _write_bank, lambda p: _photo_bank().load(p), (any_bytes, counted_json(0))),
    ]


def fuzz(kind: Kind, count: int, folder: Path) -> dict[str, Any]:
    """Read ``count`` mutations of a kind; what was raised other than a sentence, by its class, with an example."""
    path = folder / kind.name
    kind.write(path)
    content = path.read_bytes()
    if kind.name not in ("pairs.txt", "pairs.csv"):  # the images they name are not there
        kind.read(path)
    dice = random.Random(f"{SEED} {kind.name}")
    foreign: Counter[str] = Counter()
    examples: dict[str, str] = {}
    refused = 0
    for _ in range(max(1, int(count * kind.share))):
        path.write_bytes(dice.choice(kind.mutations)(dice, content))
        try:
            kind.read(path)
        except InputError as error:
            refused += 1
            flaw = _flaw(str(error), kind.name)
            if flaw:
                foreign[flaw] += 1
                examples.setdefault(flaw, str(error)[:1000])
        except Exception as error:
            name = type(error).__name__
            foreign[name] += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            examples.setdefault(name, f"{str(error)[:200]} at {Path(place.filename).name}:{place.lineno}")
    return {"refused": refused, "foreign": dict(foreign), "examples": examples}


def _flaw(sentence: str, name: str) -> str:
    """What is wrong with an error's text, if anything: it names a file in one short line."""
    stem = name.split(".")[0]
    if "\n" in sentence.strip() or len(sentence) > 700:
        return "several lines"
    if "weights_only" in sentence or "Traceback" in sentence:
        return "not for users"
    names = (stem, "right.yaml", "a.png", "c d.png", "c.png", "calibration", "camera", "The images are")
    return "" if any(part in sentence for part in names) else "no file named"


def main(count: int, only: str = "") -> None:
    """Print the outcome as JSON: per kind, and how much memory it all took (MiB, above what imports took)."""
    sys.setrecursionlimit(1000)
    warnings.simplefilter("ignore")
    memory = _peak()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds():
            if only in kind.name:
                place = Path(folder) / kind.name.replace(".", "_")
                place.mkdir()
                memory = max(memory, _peak()) if not results else memory
                results[kind.name] = fuzz(kind, count, place)
                results[kind.name]["peak"] = _peak()
    print(json.dumps({"kinds": results, "before": memory, "after": _peak()}))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:3])
