"""Rendered training sets: FSD, CREStereo, WMGStereo and IRS.

FSD (FoundationStereo): ``…/left/rgb/NAME.{jpg,png}``, ``…/right/rgb/`` with the same names, and
``…/left/disparity/NAME.png``, three bytes of an RGB image in units of 1/1000 px.

CREStereo: ``{tree,shapenet,reflective,hole}/NAME_{left,right}.jpg`` and ``NAME_{left,right}.disp.png``,
uint16 / 32.

WMGStereo: ``{indoor,flying,nature}/SEED/frames/{Image/camera_0,Image/camera_1,disparity/camera_0}``,
disparity ``.npy`` in px, zero or less where there is none.

IRS: ``{Home,Office,Restaurant,Store}/SCENE/{l,r}_NUMBER.png`` and ``d_NUMBER.exr`` in px.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matchattention.data.datasets.layout import (
    files,
    optional_file,
    require_file,
    require_folder,
    same_length,
    visible,
)
from matchattention.data.datasets.sample import StereoSample
from matchattention.data.formats import (
    UNKNOWN,
    read_disparity_png16,
    read_exr,
    read_fsd_disparity_rgb8,
    read_npy,
)
from matchattention.errors import InputError

CRESTEREO_SCALE = 32.0


def fsd(root: Path, split: str) -> list[StereoSample]:
    """Every pair below ``root``."""
    samples = []
    for images in visible(require_folder(root), "**/left/rgb"):
        scene = images.parents[1]
        for left in sorted([*visible(images, "*.jpg"), *visible(images, "*.png")]):
            samples.append(
                StereoSample(
                    name=f"{scene.relative_to(root).as_posix()}/{left.stem}",
                    left_path=left,
                    right_path=require_file(scene / "right" / "rgb" / left.name),
                    load_disparity=partial(
                        read_fsd_disparity_rgb8,
                        require_file(scene / "left" / "disparity" / f"{left.stem}.png"),
                    ),
                )
            )
    return _some(samples, root / "SCENE/dataset/data/left/rgb/0000.jpg")


def crestereo(root: Path, split: str) -> list[StereoSample]:
    """Every pair below ``root``."""
    samples = []
    for left in visible(require_folder(root), "**/*_left.jpg"):
        stem = left.stem.removesuffix("_left")
        other = optional_file(left.with_name(f"{stem}_right.disp.png"))
        samples.append(
            StereoSample(
                name=(left.parent.relative_to(root) / stem).as_posix(),
                left_path=left,
                right_path=require_file(left.with_name(f"{stem}_right.jpg")),
                load_disparity=partial(
                    read_disparity_png16,
                    require_file(left.with_name(f"{stem}_left.disp.png")),
                    CRESTEREO_SCALE,
                ),
                load_disparity_right=partial(read_disparity_png16, other, CRESTEREO_SCALE) if other else None,
            )
        )
    return _some(samples, root / "tree/0_left.jpg")


def wmgstereo(root: Path, split: str) -> list[StereoSample]:
    """Every pair of the indoor, flying and nature scenes."""
    samples = []
    for frames in visible(require_folder(root), "**/frames"):
        if not frames.is_dir():
            continue
        left_images = files(frames / "Image" / "camera_0", "*.*g")  # png or jpg
        right_images = files(frames / "Image" / "camera_1", "*.*g")
        disparities = files(frames / "disparity" / "camera_0", "*.npy")
        # The three name their files differently, but count the same frames in the same order.
        same_length(left_images, right_images, disparities)
        scene = frames.parent.relative_to(root).as_posix()
        for left, right, disparity in zip(left_images, right_images, disparities):
            samples.append(
                StereoSample(
                    name=f"{scene}/{left.stem}",
                    left_path=left,
                    right_path=right,
                    load_disparity=partial(read_positive_npy, disparity),
                )
            )
    return _some(samples, root / "indoor/SEED/frames/Image/camera_0")


def irs(root: Path, split: str) -> list[StereoSample]:
    """Every pair below ``root``."""
    samples = []
    for left in visible(require_folder(root), "**/l_*.png"):
        number = left.stem.removeprefix("l_")
        samples.append(
            StereoSample(
                name=(left.parent.relative_to(root) / number).as_posix(),
                left_path=left,
                right_path=require_file(left.with_name(f"r_{number}.png")),
                load_disparity=partial(_read_exr_magnitude, require_file(left.with_name(f"d_{number}.exr"))),
            )
        )
    return _some(samples, root / "Home/SCENE/l_1.png")


def read_positive_npy(path: Path) -> NDArray[np.float32]:
    """Disparity of a numpy file; values of zero or less are unknown."""
    disparity = read_npy(path)
    return np.where(disparity > 0, disparity, UNKNOWN)


def _read_exr_magnitude(path: Path) -> NDArray[np.float32]:
    return np.abs(read_exr(path))


def _some(samples: list[StereoSample], example: Path) -> list[StereoSample]:
    if not samples:
        raise InputError(f"Expected files such as {example}")
    return samples
