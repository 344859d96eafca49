"""Predictions in the files that the benchmarks' servers take.

| server | files |
|---|---|
| Middlebury V3 | ``trainingF/SCENE/disp0METHOD.pfm`` and ``timeMETHOD.txt`` with the seconds; likewise ``testF`` |
| ETH3D | ``low_res_two_view/SCENE.pfm`` and ``SCENE.txt`` with a line ``runtime SECONDS`` |
| KITTI 2012 | ``000000_10.png``, disparity · 256 or KITTI's flow |
| KITTI 2015 | ``disp_0/000000_10.png``, ``flow/000000_10.png`` |
| Sintel | ``{clean,final}/SCENE/frame_0001.flo``, to be packed by the server's ``bundler`` |
| Spring flow | ``SCENE/flow_FW_left/flow_FW_left_0001.flo5``, both directions, both cameras |
| Spring stereo | ``SCENE/disp1_left/disp1_left_0001.dsp5``, both cameras |

Spring's files are to be packed by its own ``flow_subsampling`` and ``disp_subsampling``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matchattention.data.atomic import replacing
from matchattention.data.datasets.registry import Dataset
from matchattention.data.datasets.sample import StereoSample
from matchattention.data.formats import (
    write_dsp5,
    write_flo,
    write_flo5,
    write_kitti_disparity_png16,
    write_kitti_flow_png16,
    write_pfm,
)
from matchattention.errors import InputError
from matchattention.evaluation.matchers import Matcher
from matchattention.evaluation.runner import timed_match

Prediction = NDArray[np.float32]
# (output folder, split, sample's name, prediction, seconds, name of the method)
Writer = Callable[[Path, str, str, Prediction, float, str], None]


def write_submission(
    dataset: Dataset,
    matcher: Matcher,
    output: Path,
    method: str = "MatchAttention",
    on_sample: Callable[[int, str], None] | None = None,
) -> None:
    """Match every sample of ``dataset`` and write what its server takes.

    Raises:
        InputError: the dataset has no server, or the method's name does not fit into file names.
    """
    writer = WRITERS.get(dataset.name)
    if writer is None:
        raise InputError(f"{dataset.name} has no submission format; choose one of {', '.join(WRITERS)}")
    if not method.replace("-", "").replace("_", "").isalnum():
        raise InputError(f"The method's name {method!r} becomes part of file names: use letters, digits, - and _")
    for number, sample in enumerate(dataset, start=1):
        prediction, seconds = timed_match(matcher, sample)
        writer(output, dataset.split, sample.name, prediction, seconds, method)
        if dataset.name == "spring-stereo" and isinstance(sample, StereoSample):
            # Mirrored, the right view is a left one.
            left, right = sample.left[:, ::-1].copy(), sample.right[:, ::-1].copy()
            _spring_disparity(output, sample.name, "right", matcher(right, left, sample)[:, ::-1])
        if on_sample is not None:
            on_sample(number, sample.name)


def _middlebury(output: Path, split: str, name: str, prediction: Prediction, seconds: float, method: str) -> None:
    folder = _folder(output / split / name)
    write_pfm(folder / f"disp0{method}.pfm", prediction)
    _write_text(folder / f"time{method}.txt", f"{seconds:.4f}\n")


def _eth3d(output: Path, split: str, name: str, prediction: Prediction, seconds: float, method: str) -> None:
    folder = _folder(output / "low_res_two_view")
    write_pfm(folder / f"{name}.pfm", prediction)
    _write_text(folder / f"{name}.txt", f"runtime {seconds:.4f}\n")


def _kitti2012(output: Path, split: str, name: str, prediction: Prediction, seconds: float, method: str) -> None:
    write_kitti_disparity_png16(_folder(output) / f"{name}.png", prediction)


def _kitti2015(output: Path, split: str, name: str, prediction: Prediction, seconds: float, method: str) -> None:
    write_kitti_disparity_png16(_folder(output / "disp_0") / f"{name}.png", prediction)


def _kitti2012_flow(output: Path, split: str, name: str, prediction: Prediction, seconds: float, method: str) -> None:
    write_kitti_flow_png16(_folder(output) / f"{name}.png", prediction)


def _kitti2015_flow(output: Path, split: str, name: str, prediction: Prediction, seconds: float, method: str) -> None:
    write_kitti_flow_png16(_folder(output / "flow") / f"{name}.png", prediction)


def _sintel(output: Path, split: str, name: str, prediction: Prediction, seconds: float, method: str) -> None:
    scene, frame = name.split("/")
    render = split.split("-")[1]
    write_flo(_folder(output / render / scene) / f"{frame}.flo", prediction)


def _spring(output: Path, split: str, name: str, prediction: Prediction, seconds: float, method: str) -> None:
    scene, file = name.split("/")
    write_flo5(_folder(output / scene / file.rsplit("_", 1)[0]) / f"{file}.flo5", prediction)


def _spring_stereo(output: Path, split: str, name: str, prediction: Prediction, seconds: float, method: str) -> None:
    _spring_disparity(output, name, "left", prediction)


def _spring_disparity(output: Path, name: str, camera: str, prediction: Prediction) -> None:
    scene, number = name.split("/")
    folder = _folder(output / scene / f"disp1_{camera}")
    write_dsp5(folder / f"disp1_{camera}_{number}.dsp5", prediction)


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text)


WRITERS: dict[str, Writer] = {
    "middlebury": _middlebury,
    "eth3d": _eth3d,
    "kitti2012": _kitti2012,
    "kitti2015": _kitti2015,
    "kitti2012-flow": _kitti2012_flow,
    "kitti2015-flow": _kitti2015_flow,
    "sintel": _sintel,
    "spring": _spring,
    "spring-stereo": _spring_stereo,
}
