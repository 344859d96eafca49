"""Scene Flow: FlyingThings3D, Monkaa and Driving; FlyingChairs.

``ROOT/{FlyingThings3D,Monkaa,Driving}/{frames_cleanpass,frames_finalpass,disparity,disparity_change,
optical_flow}``, or ROOT is one of the three. Below these FlyingThings3D has ``{TRAIN,TEST}/{A,B,C}/0000``,
Monkaa scene names, Driving ``15mm_focallength/scene_forwards/fast``; then ``left`` and ``right`` (change and
flow have ``into_future`` and ``into_past`` before them). Disparity and change are PFM in px, flow is a
three-channel PFM whose third channel is empty.

FlyingChairs: ``data/00001_{img1.ppm,img2.ppm,flow.flo}`` and ``FlyingChairs_train_val.txt``, where 1 is
training and 2 validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matchattention.data.datasets.layout import (
    files,
    optional_file,
    require_file,
    require_folder,
    visible,
)
from matchattention.data.datasets.sample import FlowSample, StereoSample
from matchattention.data.formats import read_flo, read_pfm
from matchattention.data.reading import read_text
from matchattention.errors import InputError

SUBSETS = ("FlyingThings3D", "Monkaa", "Driving")
SCENEFLOW_SPLITS = ("train-clean", "train-final", "test-clean", "test-final")


def sceneflow(root: Path, split: str) -> list[StereoSample]:
    """``train``: all of Monkaa and Driving and FlyingThings3D's TRAIN; ``test``: FlyingThings3D's TEST."""
    samples = []
    for base, clip, images in _clips(root, split):
        disparity = base / "disparity" / clip
        for left in files(images / "left", "*.png"):
            right_truth = optional_file(disparity / "right" / f"{left.stem}.pfm")
            samples.append(
                StereoSample(
                    name=f"{base.name}/{clip.as_posix()}/{left.stem}",
                    left_path=left,
                    right_path=require_file(images / "right" / left.name),
                    load_disparity=partial(
                        read_disparity_magnitude_pfm, require_file(disparity / "left" / f"{left.stem}.pfm")
                    ),
                    load_disparity_right=(partial(read_disparity_magnitude_pfm, right_truth) if right_truth else None),
                )
            )
    return samples


def sceneflow_flow(root: Path, split: str) -> list[FlowSample]:
    """Flow of the left camera into the next frame, with the change of disparity where it is there."""
    samples = []
    for base, clip, images in _clips(root, split):
        flows = base / "optical_flow" / clip / "into_future" / "left"
        for frame1, frame2 in pairwise(files(images / "left", "*.png")):
            change = optional_file(base / "disparity_change" / clip / "into_future" / "left" / f"{frame1.stem}.pfm")
            flow = require_file(flows / f"OpticalFlowIntoFuture_{frame1.stem}_L.pfm")
            samples.append(
                FlowSample(
                    name=f"{base.name}/{clip.as_posix()}/{frame1.stem}",
                    frame1_path=frame1,
                    frame2_path=frame2,
                    load_flow=partial(read_flow_pfm, flow),
                    load_disparity_change=partial(read_pfm, change) if change else None,
                )
            )
    return samples


def flyingchairs(root: Path, split: str) -> list[FlowSample]:
    """22232 training or 640 validation pairs, split as the set's own list says."""
    data = require_folder(root / "data", root / "FlyingChairs_release" / "data")
    listing = require_file(root / "FlyingChairs_train_val.txt", data.parent / "FlyingChairs_train_val.txt")
    wanted = "1" if split == "training" else "2"
    pairs = files(data, "*_img1.ppm")
    labels = read_text(listing).split()
    if len(labels) != len(pairs):
        raise InputError(f"{listing} has {len(labels)} entries for {len(pairs)} pairs in {data}")
    return [
        FlowSample(
            name=frame1.stem.removesuffix("_img1"),
            frame1_path=frame1,
            frame2_path=require_file(frame1.with_name(frame1.name.replace("_img1", "_img2"))),
            load_flow=partial(read_flo, require_file(frame1.with_name(f"{frame1.stem[:-5]}_flow.flo"))),
        )
        for frame1, label in zip(pairs, labels)
        if label == wanted
    ]


def read_disparity_magnitude_pfm(path: Path) -> NDArray[np.float32]:
    """Disparity as a positive number: releases of the set differ in the sign of one view."""
    return np.abs(read_pfm(path))


def read_flow_pfm(path: Path) -> NDArray[np.float32]:
    """``(H, W, 2)`` of a three-channel PFM."""
    flow = read_pfm(path)
    if flow.ndim != 3:
        raise InputError(f"{path} has one channel; Scene Flow's flow files have three")
    return np.ascontiguousarray(flow[..., :2])


def _clips(root: Path, split: str) -> Iterator[tuple[Path, Path, Path]]:
    """Yield (subset's folder, the clip's path below it, its folder of images)."""
    part, render = split.split("-")
    frames = f"frames_{render}pass"
    bases = [root / name for name in SUBSETS if (root / name).is_dir()]
    if not bases and (root / frames).is_dir():
        bases = [root]
    if not bases:
        raise InputError(f"Expected the folder {root / SUBSETS[0]} (or Monkaa, Driving)")
    found = False
    for base in bases:
        images = require_folder(base / frames)
        divided = (images / "TRAIN").is_dir() or (images / "TEST").is_dir()  # FlyingThings3D
        if part == "test" and not divided:
            continue
        for left in visible(images / part.upper() if divided else images, "**/left"):
            found = True
            yield base, left.parent.relative_to(images), left.parent
    if not found:
        raise InputError(f"Expected FlyingThings3D's clips in {bases[0] / frames / part.upper() / 'A/0000/left'}")
