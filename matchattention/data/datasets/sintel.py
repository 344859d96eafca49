"""MPI Sintel (flow and stereo) and Spring (flow and stereo).

Sintel flow: ``{training,test}/{clean,final}/SCENE/frame_0001.png`` and ``training/{flow,occlusions,
invalid}``.

Sintel stereo: ``training/{clean,final}_{left,right}/SCENE/frame_0001.png`` and ``training/{disparities,
occlusions,outofframe}``; the disparity is three bytes of an RGB image. In the masks non-zero means occluded,
invalid or out of the frame.

Spring: ``{train,test}/0001/{frame_left,frame_right,disp1_left,flow_FW_left}/NAME_0001.{png,dsp5,flo5}``; flow
is there forward (FW) and backward (BW) for both cameras. The ground truth has twice the images' size, its
values are in the images' px; every other pixel of every other line is taken.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matchattention.data.datasets.layout import (
    files,
    folders,
    mask_zero,
    optional_file,
    read_grey,
    require_file,
    require_folder,
)
from matchattention.data.datasets.sample import FlowSample, StereoSample
from matchattention.data.formats import UNKNOWN, read_dsp5, read_flo, read_flo5, read_sintel_disparity_rgb8


def sintel(root: Path, split: str) -> list[FlowSample]:
    """Consecutive frames of one part and render pass."""
    part, render = split.split("-")
    images = require_folder(root / part / render)
    samples = []
    for scene in folders(images):
        for frame1, frame2 in pairwise(files(scene, "frame_*.png")):
            name = f"{scene.name}/{frame1.stem}"
            if part == "test":
                samples.append(FlowSample(name, frame1, frame2))
                continue
            occluded = optional_file(root / part / "occlusions" / f"{name}.png")
            invalid = optional_file(root / part / "invalid" / f"{name}.png")
            flow = require_file(root / part / "flow" / f"{name}.flo")
            samples.append(
                FlowSample(
                    name,
                    frame1,
                    frame2,
                    load_flow=partial(read_sintel_flow, flow, invalid),
                    load_non_occluded=partial(mask_zero, occluded) if occluded else None,
                )
            )
    return samples


def sintel_stereo(root: Path, split: str) -> list[StereoSample]:
    """Pairs of the training scenes; out-of-frame pixels count as occluded."""
    part, render = split.split("-")
    left_images = require_folder(root / part / f"{render}_left")
    right_images = require_folder(root / part / f"{render}_right")
    samples = []
    for scene in folders(left_images):
        for left in files(scene, "frame_*.png"):
            relative = Path(scene.name) / left.name
            masks = [root / part / kind / relative for kind in ("occlusions", "outofframe")]
            present = [mask for mask in masks if mask.is_file()]
            samples.append(
                StereoSample(
                    name=f"{scene.name}/{left.stem}",
                    left_path=left,
                    right_path=require_file(right_images / relative),
                    load_disparity=partial(
                        read_sintel_disparity_rgb8, require_file(root / part / "disparities" / relative)
                    ),
                    load_non_occluded=partial(mask_zero, *present) if present else None,
                )
            )
    return samples


def spring(root: Path, split: str) -> list[FlowSample]:
    """Both directions of both cameras; of the training part those whose ground truth was unpacked."""
    samples = []
    for scene in folders(_spring_root(root, split)):
        for camera in ("left", "right"):
            frames = files(scene / f"frame_{camera}", f"frame_{camera}_*.png")
            forward = list(pairwise(frames))
            for direction, pairs in (("FW", forward), ("BW", [(b, a) for a, b in forward])):
                kind = f"flow_{direction}_{camera}"
                if split == "train" and not (scene / kind).is_dir():
                    continue
                for frame1, frame2 in pairs:
                    name = f"{kind}_{frame1.stem.rsplit('_', 1)[1]}"
                    truth = scene / kind / f"{name}.flo5"
                    load = None if split == "test" else partial(_halved_flow, require_file(truth))
                    samples.append(FlowSample(f"{scene.name}/{name}", frame1, frame2, load))
    return samples


def spring_stereo(root: Path, split: str) -> list[StereoSample]:
    """Every frame of both cameras."""
    samples = []
    for scene in folders(_spring_root(root, split)):
        for left in files(scene / "frame_left", "frame_left_*.png"):
            number = left.stem.rsplit("_", 1)[1]
            disparity = scene / "disp1_left" / f"disp1_left_{number}.dsp5"
            other = optional_file(scene / "disp1_right" / f"disp1_right_{number}.dsp5")
            truth = split != "test"
            samples.append(
                StereoSample(
                    name=f"{scene.name}/{number}",
                    left_path=left,
                    right_path=require_file(scene / "frame_right" / f"frame_right_{number}.png"),
                    load_disparity=partial(_halved_disparity, require_file(disparity)) if truth else None,
                    load_disparity_right=partial(_halved_disparity, other) if truth and other else None,
                    camera_path=optional_file(scene / "cam_data" / "intrinsics.txt"),
                )
            )
    return samples


def read_sintel_flow(flow_path: Path, invalid_path: Path | None) -> NDArray[np.float32]:
    """Flow with the pixels of the ``invalid`` mask unknown."""
    flow = read_flo(flow_path)
    if invalid_path is not None:
        flow[read_grey(invalid_path) != 0] = UNKNOWN
    return flow


def _spring_root(root: Path, split: str) -> Path:
    return require_folder(root / split, root / "spring" / split)


def _halved_flow(path: Path) -> NDArray[np.float32]:
    return np.ascontiguousarray(read_flo5(path)[::2, ::2])


def _halved_disparity(path: Path) -> NDArray[np.float32]:
    return np.abs(read_dsp5(path)[::2, ::2])
