"""OpenCV's dense optical flow, the baselines everyone has: DIS and Farneback, with OpenCV's own settings.

DIS (Kroeger et al., ECCV 2016) runs its medium preset, the most accurate that ships. Farneback (2003) runs a pyramid
of five levels by halves, windows of 21 px, five iterations. Both see grey images and give every pixel a motion.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.data.opencv import opencv

# Names of OpenCV's own arguments.
FARNEBACK: dict[str, Any] = {
    "pyr_scale": 0.5,
    "levels": 5,
    "winsize": 21,
    "iterations": 5,
    "poly_n": 7,
    "poly_sigma": 1.5,
    "flags": 0,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "dis": {"label": "DIS (OpenCV)", "preset": "PRESET_MEDIUM"},
    "farneback": {"label": "Farneback (OpenCV)", **FARNEBACK},
}


def match(name: str, first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Flow ``(H, W, 2)`` px of two ``(H, W, 3)`` frames by "dis" or "farneback"."""
    cv2 = opencv(f"--model {name}")
    grey: tuple[Any, Any] = (cv2.cvtColor(first, cv2.COLOR_RGB2GRAY), cv2.cvtColor(second, cv2.COLOR_RGB2GRAY))
    start: Any = None  # OpenCV allocates the result
    if name == "dis":
        flow = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM).calc(*grey, start)
    else:
        flow = cv2.calcOpticalFlowFarneback(*grey, start, **FARNEBACK)
    return np.asarray(flow, np.float32)
