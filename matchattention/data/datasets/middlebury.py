"""Middlebury V3 and ETH3D two-view, which share a layout, and Middlebury's optical flow.

Middlebury V3 (``MiddEval3``): ``{training,test}{F,H,Q}/SCENE/`` with ``im0.png``, ``im1.png``, ``calib.txt``,
``disp0GT.pfm`` (px of that size, inf = unknown) and ``mask0nocc.png`` (255 seen by both, 128 occluded,
0 unknown); ``disp1GT.pfm`` where the right view's ground truth was fetched too.

ETH3D: ``two_view_training/SCENE/`` with images and ``calib.txt``, ``two_view_training_gt/SCENE/`` with
``disp0GT.pfm`` and ``mask0nocc.png``; ``two_view_test`` has images only.

Middlebury flow: ``other-data/SCENE/frame10.png``, ``frame11.png`` and ``other-gt-flow/SCENE/flow10.flo``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from matchattention.data.datasets.layout import (
    folders,
    mask_equal,
    optional_file,
    require_file,
    require_folder,
    split_folder,
)
from matchattention.data.datasets.sample import FlowSample, StereoSample
from matchattention.data.formats import read_flo, read_pfm
from matchattention.errors import InputError

MIDDLEBURY_SPLITS = ("trainingQ", "trainingH", "trainingF", "testQ", "testH", "testF")

# The benchmark's own weights: images of scenes that are shown twice, or are overly hard, count half.
MIDDLEBURY_WEIGHTS = {
    "PianoL": 0.5,
    "Playroom": 0.5,
    "Playtable": 0.5,
    "Shelves": 0.5,
    "Vintage": 0.5,
    "Australia": 0.5,
    "Classroom2E": 0.5,
    "DjembeL": 0.5,
    "Hoops": 0.5,
    "Staircase": 0.5,
}


def middlebury(root: Path, split: str) -> list[StereoSample]:
    """Scenes of one size, e.g. ``trainingQ``."""
    folder = split_folder(root, split, "MiddEval3")
    scenes = folders(folder)
    if not scenes:
        raise InputError(f"Expected scene folders such as {folder / 'Adirondack'}")
    return [_scene(scene, scene, truth=split.startswith("training")) for scene in scenes]


def eth3d(root: Path, split: str) -> list[StereoSample]:
    """The 27 training or 20 test pairs."""
    if split == "test":
        folder = require_folder(root / "two_view_test", root / "two_view_testing")
        return [_scene(scene, scene, truth=False) for scene in folders(folder)]
    folder = require_folder(root / "two_view_training")
    ground_truth = root / "two_view_training_gt"
    beside = ground_truth if ground_truth.is_dir() else folder
    return [_scene(scene, beside / scene.name, truth=True) for scene in folders(folder)]


def middlebury_flow(root: Path, split: str) -> list[FlowSample]:
    """The eight scenes with public ground truth (``training``), or the evaluation's (``test``)."""
    if split == "test":
        images = require_folder(root / "eval-data", root / "eval-color-twoframes" / "eval-data")
        return [_two_frames(scene, None) for scene in folders(images)]
    images = require_folder(root / "other-data", root / "other-color-twoframes" / "other-data")
    truth = require_folder(root / "other-gt-flow")
    # Scenes without public ground truth lie in the same folder of images.
    return [
        _two_frames(scene, truth / scene.name / "flow10.flo")
        for scene in folders(images)
        if (truth / scene.name).is_dir()
    ]


def _scene(images: Path, ground_truth: Path, truth: bool) -> StereoSample:
    mask = optional_file(ground_truth / "mask0nocc.png")
    right = optional_file(ground_truth / "disp1GT.pfm")
    return StereoSample(
        name=images.name,
        left_path=require_file(images / "im0.png"),
        right_path=require_file(images / "im1.png"),
        load_disparity=partial(read_pfm, require_file(ground_truth / "disp0GT.pfm")) if truth else None,
        load_disparity_right=partial(read_pfm, right) if truth and right else None,
        load_non_occluded=partial(mask_equal, mask, 255) if truth and mask else None,
        camera_path=optional_file(images / "calib.txt"),
    )


def _two_frames(scene: Path, flow: Path | None) -> FlowSample:
    return FlowSample(
        name=scene.name,
        frame1_path=require_file(scene / "frame10.png"),
        frame2_path=require_file(scene / "frame11.png"),
        load_flow=None if flow is None else partial(read_flo, require_file(flow)),
    )
