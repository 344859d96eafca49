"""Does a confidence mean what it says? Ranking, reliability and coverage, as pure functions of errors.

A confidence ranks well when leaving out its least confident pixels takes the wrong ones out: the area under the
sparsification error (AUSE) compares that curve with the best possible one. It is calibrated when of all pixels that
it gives 0.8, 80 % are right; and a one-sigma error is one when 68.3 % of the pixels lie within it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SIGMAS = (1.0, 2.0, 3.0)
BINS = 20


class Sparsification(NamedTuple):
    """Error rate of the pixels that stay, as the least confident ones are taken out.

    Attributes:
        removed: (S,) shares taken out, from 0 to just below 1.
        by_confidence: (S,) error rate of what stays.
        by_oracle: (S,) the same when errors are known.
        ause: area between the two curves as a share of the area between leaving out at random and the oracle:
            0 is perfect, 1 is no better than random. NaN where no pixel or every pixel is wrong.
    """

    removed: NDArray[np.float64]
    by_confidence: NDArray[np.float64]
    by_oracle: NDArray[np.float64]
    ause: float


def sparsification(wrong: NDArray[np.bool_], confidence: NDArray[Any], steps: int = 100) -> Sparsification:
    """The curve of one image.

    Args:
        wrong: (N,) at the evaluated pixels.
        confidence: (N,) any scale; pixels of equal confidence leave in random order, on average.
        steps: points of the curves.
    """
    count = wrong.size
    removed = np.arange(steps) / steps
    if not count:
        nothing = np.full(steps, np.nan)
        return Sparsification(removed, nothing, nothing, float("nan"))
    _, group, sizes = np.unique(confidence, return_inverse=True, return_counts=True)
    rates = np.bincount(group, weights=wrong) / sizes
    by_confidence = _remaining(rates[np.sort(group)], removed)
    by_oracle = _remaining(np.sort(wrong)[::-1].astype(np.float64), removed)
    random = float(wrong.mean())
    best = random - by_oracle.mean()
    ause = float((by_confidence - by_oracle).mean() / best) if best > 0 else float("nan")
    return Sparsification(removed, by_confidence, by_oracle, ause)


def _remaining(ordered: NDArray[np.float64], removed: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of what stays when these shares have left from the front."""
    totals = np.concatenate([np.cumsum(ordered[::-1])[::-1], [0.0]])
    first = np.floor(removed * ordered.size).astype(np.int64)
    return totals[first] / (ordered.size - first)


class Reliability(NamedTuple):
    """What a confidence says and what is true, in equal steps of the confidence.

    Attributes:
        claimed: (BINS,) mean confidence of the pixels in each step, NaN where there is none.
        observed: (BINS,) share of them that is right.
        pixels: (BINS,) how many.
    """

    claimed: NDArray[np.float64]
    observed: NDArray[np.float64]
    pixels: NDArray[np.int64]

    @property
    def error(self) -> float:
        """Expected calibration error: mean difference of claimed and observed, each pixel counting the same."""
        known = self.pixels > 0
        return float(np.average(np.abs(self.claimed - self.observed)[known], weights=self.pixels[known]))


def reliability(right: NDArray[np.bool_], confidence: NDArray[Any], bins: int = BINS) -> Reliability:
    """The reliability diagram of pixels (N,); diagrams of several images are joined with `joined`."""
    step = np.minimum((np.asarray(confidence, np.float64) * bins).astype(np.int64), bins - 1)
    pixels = np.bincount(step, minlength=bins)
    with np.errstate(invalid="ignore"):
        claimed = np.bincount(step, weights=confidence, minlength=bins) / pixels
        observed = np.bincount(step, weights=right, minlength=bins) / pixels
    return Reliability(claimed, observed, pixels)


def joined(parts: list[Reliability]) -> Reliability:
    """One diagram of several images, each pixel counting the same."""
    pixels = np.sum([part.pixels for part in parts], axis=0)
    with np.errstate(invalid="ignore"):
        claimed, observed = (
            np.sum([np.nan_to_num(values) * part.pixels for values, part in zip(column, parts)], axis=0) / pixels
            for column in ([part.claimed for part in parts], [part.observed for part in parts])
        )
    return Reliability(claimed, observed, pixels)


def coverage(error: NDArray[Any], sigma: NDArray[Any]) -> dict[str, float]:
    """Per cent of pixels whose error lies within one, two and three of their sigmas."""
    if not error.size:
        return {f"{count:g}": float("nan") for count in SIGMAS}
    return {f"{count:g}": 100 * float(np.mean(error <= count * sigma)) for count in SIGMAS}
