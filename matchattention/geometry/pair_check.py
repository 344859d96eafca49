"""Is this a rectified pair, the right way round? Measured on the images themselves, said in words.

Corner-like patches of the left image are looked for in the right one, up, down and to both sides, by normalised
cross-correlation (which ignores gain and offset). What the unambiguous matches say:

- vertical error: a rectified pair has matches on the same row;
- swapped views: seen from the right, everything near has moved to the left, never to the right;
- exposure clash: the brightness of matched patches, right over left.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from matchattention.errors import InputError, InputWarning
from matchattention.geometry.patch_matching import PATCH, box_mean, match_patches

_MEASURING_WIDTH = 640  # px: wide enough for 0.1 px at 640 and 1 px at 8K, small enough for a fraction of a second
_CELLS = (14, 18)  # at most one patch a cell, so that one textured corner does not speak for the whole image
_VERTICAL_REACH = 28  # px at the measuring width
_HORIZONTAL_REACH = 0.3  # of the width
_ENOUGH_MATCHES = 12
_ENOUGH_PATCHES = 60  # with fewer corners in the left image, missing matches prove nothing
_RELATED_SHARE = 0.08  # real pairs match 17 to 94 % of their patches, two different scenes at most 4 %
_SAMPLES = 200  # planes tried
_AGREEMENT = 2.0  # px at the measuring width
_STEEPEST_PLANE = 0.15  # vertical offset a pixel: a rotation of 9 degrees
_LEVEL_FLAT = 2.0  # standard deviation in grey levels of 255 under which an image shows nothing

# Benchmarks known as rectified (Middlebury, KITTI, ETH3D, consumer cameras) measure up to 1.6 px at 1000 px width.
VERTICAL_WARNING = 1.75  # px
VERTICAL_ERROR = 2.5  # px
EXPOSURE_WARNING = 1.5  # ratio of brightness


@dataclass(frozen=True)
class PairReport:
    """What `check_pair` measured.

    Attributes:
        patches: number of corner-like patches looked for.
        matches: number of them found, unambiguously and in agreement with each other; the rest rests on these.
        vertical_shift: median of (y in the right image - y in the left), px of the given images.
        vertical_spread: 75th percentile of the absolute vertical offset, px: also sees rotation and zoom.
        horizontal_shift: median of (x in the right image - x in the left), px; negative in a pair in order.
        swapped_share: share of matches that moved the wrong way by more than a pixel.
        exposure_ratio: brightness of the right image over the left's, at matched patches.
        tolerance: px of vertical error that are let pass whatever the limits: 3/4 px at the measuring width, which
            is more px of a larger image, whose rectification errs by more px too.
    """

    patches: int
    matches: int
    vertical_shift: float
    vertical_spread: float
    horizontal_shift: float
    swapped_share: float
    exposure_ratio: float
    tolerance: float

    @property
    def conclusive(self) -> bool:
        """Whether there were enough matches to judge the geometry."""
        return self.matches >= _ENOUGH_MATCHES and not self.unrelated

    @property
    def unrelated(self) -> bool:
        """Plenty to match in the left image, and next to nothing of it in the right one."""
        return self.patches >= _ENOUGH_PATCHES and self.matches < _RELATED_SHARE * self.patches

    @property
    def swapped(self) -> bool:
        """Nearly everything moved the wrong way."""
        return self.conclusive and self.swapped_share > 0.75

    @property
    def vertical_problem(self) -> bool:
        """Far enough from rectified that the matches of a row-wise matcher are wrong."""
        return self.conclusive and self.vertical_spread > max(VERTICAL_ERROR, self.tolerance)

    @property
    def vertical_doubt(self) -> bool:
        """Far enough from rectified to mention it."""
        return self.conclusive and self.vertical_spread > max(VERTICAL_WARNING, self.tolerance)

    @property
    def exposure_clash(self) -> bool:
        """Whether one view is much brighter than the other."""
        ratio = max(self.exposure_ratio, 1 / max(self.exposure_ratio, 1e-6))
        return self.conclusive and ratio > EXPOSURE_WARNING

    def sentences(self) -> list[str]:
        """Everything worth telling, most important first; empty when the pair is in order."""
        said = []
        if self.unrelated:
            said.append(
                f"The two images do not seem to show the same scene: {self.matches} of {self.patches} patches of the "
                "left were found in the right. Check that both files belong to one pair."
            )
        if self.swapped:
            said.append(
                f"The views look swapped: {self.swapped_share:.0%} of the matched patches moved to the right "
                f"(median {self.horizontal_shift:+.1f} px). Give the left image first."
            )
        if self.vertical_doubt:
            said.append(
                f"The pair does not look rectified: matches are {self.vertical_spread:.1f} px off their row "
                f"(median {self.vertical_shift:+.1f} px). Rectify it first (`matchattention rectify`)."
            )
        if self.exposure_clash:
            brighter = self.exposure_ratio > 1
            ratio = self.exposure_ratio if brighter else 1 / self.exposure_ratio
            said.append(
                f"The exposures clash: the right image is {ratio:.1f} times {'brighter' if brighter else 'darker'} "
                "where the two show the same thing. Lock exposure and white balance of both cameras."
            )
        return said


def check_pair(left: np.ndarray, right: np.ndarray) -> PairReport:
    """Measure vertical error, order of the views and exposure of a pair.

    Args:
        left: uint8 or float image (H, W) or (H, W, 3).
        right: the other view, the same size.

    Returns:
        the measurements; `PairReport.sentences` puts them in words.
    """
    if left.shape[:2] != right.shape[:2]:
        raise InputError(
            f"The images differ in size ({left.shape[1]}x{left.shape[0]} and {right.shape[1]}x{right.shape[0]}): "
            "give two views of the same size."
        )
    grey_left, grey_right = _measuring_size(left), _measuring_size(right)
    scale = left.shape[1] / grey_left.shape[1]
    corners = _corners(grey_left)
    height, width = grey_left.shape
    reach = min(_VERTICAL_REACH, height // 6), int(width * _HORIZONTAL_REACH)
    where, offsets, ratio = match_patches(grey_left, grey_right, corners, reach)
    agreeing = _agreement(where, offsets[:, 1])
    offsets, ratio = offsets[agreeing], ratio[agreeing]
    tolerance = 0.75 * scale if scale > 1 else 0.0
    if len(offsets) == 0:
        return PairReport(len(corners), 0, 0.0, 0.0, 0.0, 0.0, 1.0, tolerance)
    dx, dy = (offsets * scale).T
    return PairReport(
        patches=len(corners),
        matches=len(offsets),
        vertical_shift=float(np.median(dy)),
        vertical_spread=float(np.percentile(np.abs(dy), 75)),
        horizontal_shift=float(np.median(dx)),
        swapped_share=float(np.mean(dx > max(1.0, 0.5 * scale))),
        exposure_ratio=float(np.median(ratio)),
        tolerance=tolerance,
    )


def blank_view(left: np.ndarray, right: np.ndarray) -> str | None:
    """ "left" or "right" when that view is of one colour, else None."""
    views = {"left": left, "right": right}
    return next((name for name, image in views.items() if _grey_sample(image).std() < _LEVEL_FLAT), None)


def require_visible(image: np.ndarray, name: str) -> None:
    """Refuse an image of one colour (a lens cap, a failed decode): nothing can be matched in it."""
    grey = _grey_sample(image)
    if float(grey.std()) < _LEVEL_FLAT:
        raise InputError(
            f"The {name} image is one colour (grey level {float(grey.mean()):.0f}): check the camera or the file."
        )


def _grey_sample(image: np.ndarray) -> np.ndarray:
    """Grey levels of some hundred rows and columns."""
    step = max(1, min(image.shape[:2]) // 128)
    sample = image[::step, ::step].astype(np.float32)
    if sample.ndim == 2:
        return sample
    # Twenty times as fast as a mean over three neighbours, and every frame of a video comes by.
    return sample @ np.full(sample.shape[2], 1 / sample.shape[2], np.float32)


def judge_pair(left: np.ndarray, right: np.ndarray) -> PairReport:
    """`check_pair`, then raise on what makes the result useless and warn about what makes it worse.

    Raises:
        InputError: an image of one colour, the same image twice, swapped views, or matches more than `VERTICAL_ERROR`
            px off their row.
    """
    require_visible(left, "left")
    require_visible(right, "right")
    if np.array_equal(left, right):
        raise InputError("Both images are the same: give the left and the right view of one moment.")
    report = check_pair(left, right)
    sentences = report.sentences()
    if report.swapped or report.vertical_problem:
        raise InputError(" ".join(sentences))
    for sentence in sentences:
        warnings.warn(sentence, InputWarning, stacklevel=3)
    return report


def _measuring_size(image: np.ndarray) -> Tensor:
    """Grey (h, w) float tensor in [0, 255], at most `_MEASURING_WIDTH` wide."""
    grey = torch.from_numpy(image.astype(np.float32))
    if grey.ndim == 3:
        grey = grey @ torch.tensor([0.299, 0.587, 0.114])
    height, width = grey.shape
    if width > _MEASURING_WIDTH:
        size = (max(1, round(height * _MEASURING_WIDTH / width)), _MEASURING_WIDTH)
        grey = F.interpolate(grey[None, None], size=size, mode="bilinear", antialias=True)[0, 0]
    return grey


def _corners(grey: Tensor) -> Tensor:
    """(N, 2) integer (x, y): the strongest corner of each grid cell, far enough from the border for a patch."""
    height, width = grey.shape
    if min(height, width) < 3 * PATCH:
        return torch.zeros(0, 2, dtype=torch.long)
    dx = F.pad(grey[:, 2:] - grey[:, :-2], (1, 1))
    dy = F.pad(grey[2:] - grey[:-2], (0, 0, 1, 1))
    products = torch.stack([dx * dx, dy * dy, dx * dy])
    xx, yy, xy = box_mean(products, 7)
    strength = (xx + yy) / 2 - (((xx - yy) / 2) ** 2 + xy**2).sqrt()  # smaller eigenvalue of the structure tensor
    margin = PATCH // 2 + 1
    inside = torch.zeros_like(strength)
    inside[margin : height - margin, margin : width - margin] = 1
    strength = strength * inside
    cell_height, cell_width = max(PATCH, height // _CELLS[0]), max(PATCH, width // _CELLS[1])
    best, where = F.max_pool2d(strength[None, None], (cell_height, cell_width), ceil_mode=True, return_indices=True)
    best, where = best.flatten(), where.flatten()
    where = where[best > 4.0]  # a gradient of one grey level a pixel in the weaker direction
    return torch.stack([where % width, where // width], 1)


def _agreement(where: np.ndarray, vertical: np.ndarray) -> np.ndarray:
    """Mask of the matches whose vertical offset one plane explains (shift, rotation, zoom), by random sampling.

    Wrong matches fall anywhere; those of one misaligned rig agree with each other.
    """
    count = len(where)
    if count < 3:
        return np.zeros(count, bool)
    design = np.column_stack([np.ones(count), where - where.mean(axis=0)])
    generator = np.random.default_rng(0)
    samples = generator.integers(0, count, (_SAMPLES, 3))
    samples = samples[np.abs(np.linalg.det(design[samples])) >= 1.0]  # three different places, not on one line
    planes = np.linalg.solve(design[samples], vertical[samples][..., None])[..., 0]
    planes = planes[np.abs(planes[:, 1:]).max(axis=1, initial=0) <= _STEEPEST_PLANE]
    level = np.array([[np.median(vertical), 0, 0]])
    inside = np.abs(design @ np.concatenate([level, planes]).T - vertical[:, None]) < _AGREEMENT
    return inside[:, inside.sum(axis=0).argmax()]
