"""OpenCV's semi-global matcher, the baseline everyone has.

Settings are OpenCV's recommended ones, the same for every image: the full two-pass mode over eight
directions, 5 x 5 blocks in colour with P1 = 8·c·b², P2 = 32·c·b², a left-right check of 1 px, uniqueness 5 %,
speckles below 100 px removed. The search range comes from the ground truth where there is one (rounded up
to 16 px), which is generous to it. The left edge is padded by the range so that it is searched in full.
Holes take the smaller, farther, of the disparities on either side in the row, as KITTI's development kit fills.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.data.opencv import opencv

BLOCK = 5
CHANNELS = 3
# Names of OpenCV's own arguments.
PARAMETERS: dict[str, int] = {
    "blockSize": BLOCK,
    "P1": 8 * CHANNELS * BLOCK**2,
    "P2": 32 * CHANNELS * BLOCK**2,
    "disp12MaxDiff": 1,
    "preFilterCap": 63,
    "uniquenessRatio": 5,
    "speckleWindowSize": 100,
    "speckleRange": 2,
}


def search_range(truth: NDArray[Any] | None, width: int) -> int:
    """Disparities to search, a multiple of 16: up to the largest known one, or a quarter of the width."""
    known = None if truth is None else truth[np.isfinite(truth)]
    largest = float(known.max()) if known is not None and known.size else width / 4
    return max(16, 16 * int(np.ceil((largest + 1) / 16)))


def match(left: NDArray[np.uint8], right: NDArray[np.uint8], disparities: int) -> NDArray[np.float32]:
    """Dense disparity ``(H, W)`` px of the left view, searched in [0, ``disparities``)."""
    cv2 = opencv("--model sgbm")
    matcher = cv2.StereoSGBM.create(
        minDisparity=0, numDisparities=disparities, mode=cv2.StereoSGBM_MODE_HH, **PARAMETERS
    )
    padded = [cv2.copyMakeBorder(image, 0, 0, disparities, 0, cv2.BORDER_REPLICATE) for image in (left, right)]
    sixteenths = matcher.compute(*padded)[:, disparities:]
    disparity = np.where(sixteenths < 0, np.nan, sixteenths / 16)
    return fill_holes(disparity.astype(np.float32))


def fill_holes(disparity: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fill NaN in rows with the smaller of the nearest values left and right; empty rows from the row above."""
    from_left = _nearest_before(disparity)
    from_right = _nearest_before(disparity[:, ::-1])[:, ::-1]
    filled = np.where(np.isnan(disparity), np.fmin(from_left, from_right), disparity)
    if np.isnan(filled).any():  # rows without a single value
        filled = _nearest_before(filled.T).T
        filled = _nearest_before(filled.T[:, ::-1])[:, ::-1].T
    return np.nan_to_num(filled, nan=0.0).astype(np.float32)


def _nearest_before(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each value, or the last known one before it in its row; NaN where there is none."""
    columns = np.where(np.isnan(values), 0, np.arange(values.shape[1]))
    last = np.maximum.accumulate(columns, axis=1)
    return np.take_along_axis(values, last, axis=1)
