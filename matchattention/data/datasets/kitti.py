"""KITTI 2012 and 2015 (stereo, flow), HD1K, and Virtual KITTI 2.

KITTI 2012: ``training/{colored_0,colored_1,disp_occ,disp_noc,calib}/000000_10.png``; without the colour
images ``image_0`` and ``image_1`` (grey) are used. KITTI 2015: ``training/{image_2,image_3,disp_occ_0,
disp_noc_0,obj_map,flow_occ,flow_noc}/000000_10.png``. Disparity is uint16 / 256, flow (uint16 - 2^15) / 64,
sparse. ``occ`` files hold all pixels, ``noc`` those that the other image sees. Frame 11 follows frame 10.

HD1K: ``hd1k_input/image_2/000000_0010.png`` and ``hd1k_flow_gt/flow_occ/`` with the same names, in KITTI's
flow format.

Virtual KITTI 2: ``SceneXX/VARIATION/frames/{rgb,depth}/Camera_{0,1}/``, as unpacked into one tree or under
``vkitti_2.0.3_rgb`` and ``vkitti_2.0.3_depth``. Depth is uint16 in cm; the cameras are 0.532725 m apart with
a focal length of 725.0087 px in every scene.
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
    mask_nonzero,
    optional_file,
    require_file,
    require_folder,
    split_folder,
)
from matchattention.data.datasets.sample import FlowSample, StereoSample
from matchattention.data.formats import (
    UNKNOWN,
    known_pixels,
    read_kitti_disparity_png16,
    read_kitti_flow_png16,
)
from matchattention.data.png import read_png16
from matchattention.errors import InputError

VKITTI2_FOCAL_TIMES_BASELINE_CM = 725.0087 * 53.2725  # px · cm
_VKITTI2_SKY_CM = 65535


def kitti2012(root: Path, split: str) -> list[StereoSample]:
    """194 training or 195 test pairs."""
    return _stereo(
        split_folder(root, split), ("colored_0", "image_0"), ("colored_1", "image_1"), "disp_occ", "disp_noc"
    )


def kitti2015(root: Path, split: str) -> list[StereoSample]:
    """200 training or 200 test pairs."""
    return _stereo(split_folder(root, split), ("image_2",), ("image_3",), "disp_occ_0", "disp_noc_0")


def kitti2012_flow(root: Path, split: str) -> list[FlowSample]:
    """Frames 10 and 11 of the left camera."""
    return _flow(split_folder(root, split), ("colored_0", "image_0"))


def kitti2015_flow(root: Path, split: str) -> list[FlowSample]:
    """Frames 10 and 11 of the left colour camera."""
    return _flow(split_folder(root, split), ("image_2",))


def hd1k(root: Path, split: str) -> list[FlowSample]:
    """Consecutive frames of the 36 training sequences."""
    images = require_folder(root / "hd1k_input" / "image_2")
    truth = require_folder(root / "hd1k_flow_gt" / "flow_occ")
    samples = []
    for frame1, frame2 in pairwise(files(images, "*.png")):
        if frame1.stem.split("_")[0] != frame2.stem.split("_")[0]:
            continue  # the last frame of a sequence
        flow = require_file(truth / frame1.name)
        samples.append(FlowSample(frame1.stem, frame1, frame2, partial(read_kitti_flow_png16, flow)))
    return samples


def vkitti2(root: Path, split: str) -> list[StereoSample]:
    """Every frame of every scene in every weather."""
    colour = root / "vkitti_2.0.3_rgb" if (root / "vkitti_2.0.3_rgb").is_dir() else root
    depths = root / "vkitti_2.0.3_depth" if (root / "vkitti_2.0.3_depth").is_dir() else root
    samples = []
    for scene in [folder for folder in folders(colour) if folder.name.startswith("Scene")]:
        for variation in folders(scene):
            for left in files(variation / "frames" / "rgb" / "Camera_0", "rgb_*.jpg"):
                depth = depths / scene.name / variation.name / "frames" / "depth"
                frame = left.stem.replace("rgb", "depth") + ".png"
                right_depth = optional_file(depth / "Camera_1" / frame)
                samples.append(
                    StereoSample(
                        name=f"{scene.name}/{variation.name}/{left.stem[4:]}",
                        left_path=left,
                        right_path=require_file(left.parents[1] / "Camera_1" / left.name),
                        load_disparity=partial(
                            read_vkitti2_depth_as_disparity, require_file(depth / "Camera_0" / frame)
                        ),
                        load_disparity_right=(
                            partial(read_vkitti2_depth_as_disparity, right_depth) if right_depth else None
                        ),
                    )
                )
    if not samples:
        raise InputError(f"Expected folders such as {colour / 'Scene01/clone/frames/rgb/Camera_0'}")
    return samples


def read_vkitti2_depth_as_disparity(path: Path) -> NDArray[np.float32]:
    """Disparity in px from depth in cm; the sky, stored as 655.35 m, has disparity zero."""
    depth = read_png16(path).astype(np.float32)
    disparity = np.full(depth.shape, UNKNOWN, np.float32)
    np.divide(VKITTI2_FOCAL_TIMES_BASELINE_CM, depth, out=disparity, where=depth > 0)
    disparity[depth >= _VKITTI2_SKY_CM] = 0
    return disparity


def _stereo(
    folder: Path, left: tuple[str, ...], right: tuple[str, ...], all_name: str, seen_name: str
) -> list[StereoSample]:
    left_images = require_folder(*(folder / name for name in left))
    right_images = require_folder(*(folder / name for name in right))
    truth = None if folder.name == "testing" else require_folder(folder / all_name)
    samples = []
    for image in files(left_images, "*_10.png"):
        seen = optional_file(folder / seen_name / image.name)
        objects = optional_file(folder / "obj_map" / image.name)
        frame = image.stem.removesuffix("_10")
        samples.append(
            StereoSample(
                name=image.stem,
                left_path=image,
                right_path=require_file(right_images / image.name),
                load_disparity=(
                    partial(read_kitti_disparity_png16, require_file(truth / image.name)) if truth else None
                ),
                load_non_occluded=partial(_known_disparity, seen) if truth and seen else None,
                load_foreground=partial(mask_nonzero, objects) if truth and objects else None,
                camera_path=optional_file(
                    folder / "calib_cam_to_cam" / f"{frame}.txt", folder / "calib" / f"{frame}.txt"
                ),
            )
        )
    return samples


def _flow(folder: Path, cameras: tuple[str, ...]) -> list[FlowSample]:
    images = require_folder(*(folder / name for name in cameras))
    truth = None if folder.name == "testing" else require_folder(folder / "flow_occ")
    samples = []
    for frame1 in files(images, "*_10.png"):
        seen = optional_file(folder / "flow_noc" / frame1.name)
        samples.append(
            FlowSample(
                name=frame1.stem,
                frame1_path=frame1,
                frame2_path=require_file(images / frame1.name.replace("_10.png", "_11.png")),
                load_flow=partial(read_kitti_flow_png16, require_file(truth / frame1.name)) if truth else None,
                load_non_occluded=partial(_known_flow, seen) if truth and seen else None,
            )
        )
    return samples


def _known_disparity(path: Path) -> NDArray[np.bool_]:
    return known_pixels(read_kitti_disparity_png16(path))


def _known_flow(path: Path) -> NDArray[np.bool_]:
    return known_pixels(read_kitti_flow_png16(path))
