"""Real sets of one layout each: InStereo2K, DrivingStereo and Booster.

InStereo2K: ``{train,test}/SCENE/{left,right}.png`` and ``{left,right}_disp.png``, uint16 / 100 as its authors
document (not 1024, as some loaders have it), zero = unknown. The training parts ``part1`` … lie side by side.

DrivingStereo: ``{train,test}-{left-image,right-image}/DRIVE/*.jpg`` and ``{train,test}-disparity-map/`` with
the same names as ``.png``, uint16 / 256 at half size; the weather subsets are ``{sunny,cloudy,foggy,rainy}/
{left-image,right-image,disparity-map}-half-size``.

Booster: ``train/balanced/SCENE/{camera_00,camera_02}/im*.png`` in several lightings, ``disp_00.npy``,
``disp_02.npy`` in px of the full size, and ``mask_00.png``, non-zero where both cameras see the pixel.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from matchattention.data.datasets.layout import (
    files,
    folders,
    mask_nonzero,
    optional_file,
    require_file,
    require_folder,
    visible,
)
from matchattention.data.datasets.sample import StereoSample
from matchattention.data.datasets.synthetic import read_positive_npy
from matchattention.data.formats import read_disparity_png16, read_kitti_disparity_png16
from matchattention.errors import InputError

INSTEREO2K_SCALE = 100.0
DRIVINGSTEREO_WEATHERS = ("sunny", "cloudy", "foggy", "rainy")
DRIVINGSTEREO_SPLITS = ("test", "train", *DRIVINGSTEREO_WEATHERS)


def instereo2k(root: Path, split: str) -> list[StereoSample]:
    """2010 training or 50 test pairs."""
    folder = require_folder(root / split)
    scenes = [path.parent for path in visible(folder, "**/left.png")]
    if not scenes:
        raise InputError(f"Expected pairs such as {folder / '000000/left.png'}")
    samples = []
    for scene in scenes:
        other = optional_file(scene / "right_disp.png")
        samples.append(
            StereoSample(
                name=scene.relative_to(folder).as_posix(),
                left_path=scene / "left.png",
                right_path=require_file(scene / "right.png"),
                load_disparity=partial(read_disparity_png16, require_file(scene / "left_disp.png"), INSTEREO2K_SCALE),
                load_disparity_right=(partial(read_disparity_png16, other, INSTEREO2K_SCALE) if other else None),
            )
        )
    return samples


def drivingstereo(root: Path, split: str) -> list[StereoSample]:
    """One part of the set at half size (881 x 400 px)."""
    if split in DRIVINGSTEREO_WEATHERS:
        left_name, right_name, disparity_name = (
            f"{split}/{kind}-half-size" for kind in ("left-image", "right-image", "disparity-map")
        )
    else:
        left_name, right_name, disparity_name = (
            f"{split}-{kind}" for kind in ("left-image", "right-image", "disparity-map")
        )
    left_images = require_folder(root / left_name)
    right_images = require_folder(root / right_name)
    disparities = require_folder(root / disparity_name)
    found = sorted([*visible(left_images, "**/*.jpg"), *visible(left_images, "**/*.png")])
    if not found:
        raise InputError(f"Expected images such as {left_images / 'DRIVE/FRAME.jpg'}")
    samples = []
    for left in found:
        relative = left.relative_to(left_images)
        truth = require_file(disparities / relative.with_suffix(".png"))
        samples.append(
            StereoSample(
                name=relative.with_suffix("").as_posix(),
                left_path=left,
                right_path=require_file(right_images / relative),
                load_disparity=partial(read_kitti_disparity_png16, truth),
            )
        )
    return samples


def booster(root: Path, split: str) -> list[StereoSample]:
    """Each lighting of each balanced training scene."""
    samples = []
    for scene in folders(require_folder(root / "train" / "balanced", root / "balanced")):
        mask = optional_file(scene / "mask_00.png")
        other = optional_file(scene / "disp_02.npy")
        truth = require_file(scene / "disp_00.npy")
        for left in files(scene / "camera_00", "im*.png"):
            samples.append(
                StereoSample(
                    name=f"{scene.name}/{left.stem}",
                    left_path=left,
                    right_path=require_file(scene / "camera_02" / left.name),
                    load_disparity=partial(read_positive_npy, truth),
                    load_disparity_right=partial(read_positive_npy, other) if other else None,
                    load_non_occluded=partial(mask_nonzero, mask) if mask else None,
                    camera_path=optional_file(scene / "calib_00-02.xml"),
                )
            )
    return samples
