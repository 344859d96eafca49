"""Your own pairs: files named by patterns.

A ``*`` in the pattern of the left image matches any text within one name; the same text then replaces the
``*`` of the other patterns in order, and a ``*`` left over there matches anything. With the defaults of
``folder``, ``SCENE/im0.png`` belongs to ``SCENE/im1.png`` and ``SCENE/disp0GT.pfm`` (or .png, .npy, .npz …).
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matchattention.data.datasets.layout import (
    mask_equal,
    mask_zero,
    optional_file,
    read_grey,
    require_folder,
    visible,
)
from matchattention.data.datasets.sample import FlowSample, StereoSample
from matchattention.data.field_files import (
    DISPARITY_SUFFIXES,
    FLOW_SUFFIXES,
    KITTI_SCALE,
    read_disparity,
    read_flow,
)
from matchattention.data.formats import UNKNOWN, known_pixels
from matchattention.data.png import is_png16
from matchattention.errors import InputError, InputWarning


@dataclass(frozen=True)
class FolderPatterns:
    """How the files of a folder dataset are named, relative to its root.

    Attributes:
        left: the left image or first frame.
        right: the right image or second frame.
        truth: disparity or flow; files that are missing make pairs without ground truth.
        visible: an image with 255 where the other view sees the pixel, or a ground-truth file of just
            those pixels (KITTI's ``noc``).
        occluded: an image that is not zero where the other view does not see the pixel.
        invalid: an image that is not zero where the ground truth is not to be used.
        png_scale: what disparity in 16-bit PNG files is divided by; None: 256 as KITTI has it, which is said.
    """

    left: str = "*/im0.png"
    right: str = "*/im1.png"
    truth: str = "*/disp0GT.*"
    visible: str = "*/mask0nocc.png"
    occluded: str | None = None
    invalid: str | None = None
    png_scale: float | None = None


FLOW_PATTERNS = FolderPatterns(
    left="*/frame1.png",
    right="*/frame2.png",
    truth="*/flow.*",
    visible="*/visible.png",
    occluded="*/occlusions.png",
    invalid="*/invalid.png",
)


def folder(root: Path, patterns: FolderPatterns) -> list[StereoSample]:
    """Stereo pairs by pattern."""
    samples: list[StereoSample] = []
    png_scale = _png_scale(patterns)
    for left, captured in _matches(root, patterns.left):
        truth = _by_suffix(root, patterns.truth, captured, DISPARITY_SUFFIXES)
        invalid = _beside(root, patterns.invalid, captured)
        samples.append(
            StereoSample(
                name=_name(root, left, captured),
                left_path=left,
                right_path=_partner(root, patterns.right, captured, left),
                load_disparity=partial(_disparity, truth, invalid, png_scale) if truth else None,
                load_non_occluded=_visibility(root, patterns, captured, flow=False),
                camera_path=optional_file(left.with_name("calib.txt")),
            )
        )
        if truth is not None and truth.suffix == ".png" and patterns.png_scale is None and len(samples) == 1:
            warnings.warn(
                f"{truth} and the like are read as KITTI's, value / 256 px; give --png-scale if yours differ.",
                InputWarning,
                stacklevel=2,
            )
    return samples


def folder_flow(root: Path, patterns: FolderPatterns) -> list[FlowSample]:
    """Two frames each, by pattern."""
    samples = []
    for frame1, captured in _matches(root, patterns.left):
        truth = _by_suffix(root, patterns.truth, captured, FLOW_SUFFIXES)
        invalid = _beside(root, patterns.invalid, captured)
        samples.append(
            FlowSample(
                name=_name(root, frame1, captured),
                frame1_path=frame1,
                frame2_path=_partner(root, patterns.right, captured, frame1),
                load_flow=partial(_flow, truth, invalid) if truth else None,
                load_non_occluded=_visibility(root, patterns, captured, flow=True),
            )
        )
    return samples


def _png_scale(patterns: FolderPatterns) -> float:
    scale = KITTI_SCALE if patterns.png_scale is None else patterns.png_scale
    if not (scale > 0 and math.isfinite(scale)):
        raise InputError(f"--png-scale must be above zero, not {scale:g}: the number that PNG values are divided by")
    return scale


def _matches(root: Path, pattern: str) -> list[tuple[Path, tuple[str, ...]]]:
    """Files that match, each with the text of every ``*``."""
    require_folder(root)
    expression = re.compile("([^/]*)".join(re.escape(part) for part in pattern.split("*")))
    found = []
    for path in visible(root, pattern):
        match = expression.fullmatch(path.relative_to(root).as_posix())
        if match and path.is_file():
            found.append((path, match.groups()))
    if not found:
        raise InputError(f"Expected files like {root / pattern}; name yours with --left, --right and --truth")
    return found


def _filled(pattern: str, captured: tuple[str, ...]) -> str:
    for text in captured:
        # A name may itself hold characters that mean something to glob.
        pattern = pattern.replace("*", re.sub(r"([\[\]?])", r"[\1]", text).replace("*", "[*]"), 1)
    return pattern


def _candidates(root: Path, pattern: str | None, captured: tuple[str, ...]) -> list[Path]:
    return [] if pattern is None else visible(root, _filled(pattern, captured))


def _beside(root: Path, pattern: str | None, captured: tuple[str, ...]) -> Path | None:
    return next(iter(_candidates(root, pattern, captured)), None)


def _by_suffix(root: Path, pattern: str, captured: tuple[str, ...], suffixes: tuple[str, ...]) -> Path | None:
    found = [path for path in _candidates(root, pattern, captured) if path.suffix in suffixes]
    return min(found, key=lambda path: (suffixes.index(path.suffix), path), default=None)


def _partner(root: Path, pattern: str, captured: tuple[str, ...], left: Path) -> Path:
    path = _beside(root, pattern, captured)
    if path is None:
        raise InputError(f"Expected the file {root / _filled(pattern, captured)} beside {left}")
    return path


def _name(root: Path, left: Path, captured: tuple[str, ...]) -> str:
    return "/".join(captured) or left.relative_to(root).with_suffix("").as_posix()


def _visibility(
    root: Path, patterns: FolderPatterns, captured: tuple[str, ...], flow: bool
) -> partial[NDArray[np.bool_]] | None:
    seen = _beside(root, patterns.visible, captured)
    if seen is not None:
        if seen.suffix != ".png" or is_png16(seen):
            return partial(_known, seen, flow)
        return partial(mask_equal, seen, 255)
    occluded = _beside(root, patterns.occluded, captured)
    return None if occluded is None else partial(mask_zero, occluded)


def _known(path: Path, flow: bool) -> NDArray[np.bool_]:
    return known_pixels(read_flow(path) if flow else read_disparity(path))


def _disparity(path: Path, invalid: Path | None, png_scale: float) -> NDArray[np.float32]:
    return _without(read_disparity(path, png_scale), invalid)


def _flow(path: Path, invalid: Path | None) -> NDArray[np.float32]:
    return _without(read_flow(path), invalid)


def _without(field: NDArray[np.float32], invalid: Path | None) -> NDArray[np.float32]:
    if invalid is not None:
        field[read_grey(invalid) != 0] = UNKNOWN
    return field
