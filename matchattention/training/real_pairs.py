"""Pairs with ground truth that a training is measured on and never sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchattention.errors import InputError

MOST_HELD_OUT = 16  # pairs of a dataset: enough to see a trend, few enough to be measured often


class RealPair(NamedTuple):
    """A pair with the first view's ground truth.

    Attributes:
        dataset: Pairs are averaged per dataset.
        name: The scene's.
        left: (H, W, 3) uint8.
        right: (H, W, 3) uint8.
        disparity: (H, W) float32 px, inf where unknown; of flow what stands in ``flow`` counts.
        visible: (H, W) bool, not occluded; all True when nobody knows.
        flow: (H, W, 2) float32 px, inf where unknown; None for stereo.
    """

    dataset: str
    name: str
    left: NDArray[np.uint8]
    right: NDArray[np.uint8]
    disparity: NDArray[np.float32]
    visible: NDArray[np.bool_]
    flow: NDArray[np.float32] | None = None

    @property
    def field(self) -> NDArray[np.float32]:
        """(H, W, 2) px offset to the match, inf where unknown."""
        if self.flow is not None:
            return self.flow
        known = np.isfinite(self.disparity)
        return np.stack((np.where(known, -self.disparity, np.inf), np.where(known, 0.0, np.inf)), -1).astype(np.float32)


def as_real_pair(dataset: str, sample: Any) -> RealPair | None:
    """A dataset's sample to measure with; None when it has no ground truth."""
    flow = getattr(sample, "flow", None)
    truth = flow if flow is not None else getattr(sample, "disparity", None)
    if truth is None:
        return None
    views = (sample.frame1, sample.frame2) if flow is not None else (sample.left, sample.right)
    visible = sample.non_occluded
    if visible is None:
        visible = np.ones(truth.shape[:2], bool)
    disparity = -flow[..., 0] if flow is not None else truth
    return RealPair(dataset, sample.name, *views, disparity, visible, flow)


def read_real_pairs(texts: Iterable[str], most: int = MOST_HELD_OUT) -> list[RealPair]:
    """The first pairs with ground truth of each NAME[/SPLIT]:PATH.

    Raises:
        InputError: A dataset is not there, or none of its pairs has ground truth.
    """
    from matchattention.training.file_source import open_samples

    found = []
    for text in texts:
        name = text.partition(":")[0].partition("/")[0]
        samples = open_samples(text)
        pairs = (as_real_pair(name, samples[index]) for index in range(len(samples)))
        known = [pair for _, pair in zip(range(most), (pair for pair in pairs if pair is not None))]
        if not known:
            raise InputError(f"No pair of {text} has ground truth to validate with: choose another split")
        found += known
    return found


def hold_out(count: int, share: float) -> tuple[list[int], list[int]]:
    """Which of ``count`` samples to train on and which to measure with: the same ones in every run.

    At most `MOST_HELD_OUT` are held out, at least one where there are two samples and ``share`` is above zero.
    """
    if not share or count < 2:
        return list(range(count)), []
    number = min(max(round(share * count), 1), MOST_HELD_OUT, count - 1)
    chosen = set(np.random.default_rng(20).permutation(count)[:number].tolist())
    return [i for i in range(count) if i not in chosen], sorted(chosen)
