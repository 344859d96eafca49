"""What a confidence between 0 and 1 means in pixels.

The network matches both views. A left pixel's match in the right view should point back to it; by how many
pixels it misses is the disagreement e, and the confidence is exp(-e / 2 px): 1 where the views agree,
0.6 at one pixel apart, under 0.1 from 4.6 px, 0 where the match is out of view.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SCALE = 2.0  # px


def disagreement_of(confidence: NDArray[Any]) -> NDArray[np.float32]:
    """Disagreement in px that a confidence stands for; inf where it is zero."""
    with np.errstate(divide="ignore"):
        return -np.log(np.asarray(confidence, np.float32)) * np.float32(SCALE)
