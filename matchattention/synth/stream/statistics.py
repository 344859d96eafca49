"""What a set of stereo pairs is like, in numbers: disparity, edges, texture, noise and how the views differ.

The same measures on rendered and on real pairs show where rendered ones are unlike the world. Only distributions
leave this module, never pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from matchattention.synth.stream import distributions
from matchattention.synth.stream.distributions import Measure, Summary, luma

WINDOW = 7  # px: the neighbourhood whose deviation is called texture
FLAT = 2.0  # grey levels: below this deviation a matcher has nothing to hold on to
DEPTH_EDGE = 1.0  # px of disparity between neighbours
SPECTRUM_BANDS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)  # cycles per px
QUANTILES = (0.1, 0.5, 0.9)

MEASURES = {
    "disparity": Measure("disparity", "share of the width", 1e-3, 0.5, True),
    "largest": Measure("largest disparity of a pair (99 %)", "share of the width", 1e-2, 0.5, True),
    "slope": Measure("change of disparity between neighbours", "px", 1e-4, 30.0, True),
    "edges": Measure("depth edges", "share of pixels", 1e-3, 0.3, True),
    "hidden": Measure("occluded or out of view", "share of pixels", 1e-3, 0.6, True),
    "gradient": Measure("gradient of brightness", "grey levels per px", 0.1, 100.0, True),
    "texture": Measure(f"deviation in {WINDOW}x{WINDOW} px", "grey levels", 0.1, 100.0, True),
    "flat": Measure(f"pixels with a deviation below {FLAT:g}", "share of pixels", 1e-3, 1.0, True),
    "brightness": Measure("brightness", "grey levels", 0.0, 255.0),
    "contrast": Measure("deviation of brightness over an image", "grey levels", 0.0, 100.0),
    "saturation": Measure("colourfulness, (max - min) / max", "", 0.0, 1.0),
    "clipped": Measure("pixels at 0 or 255", "share of pixels", 1e-4, 0.5, True),
    "noise": Measure("noise (median Laplacian)", "grey levels", 0.05, 20.0, True),
    "decay": Measure("slope of the power spectrum, log-log", "", -5.0, 0.0),
    "mismatch": Measure("difference of matched pixels (median)", "grey levels", 0.1, 60.0, True),
}


class Pair(NamedTuple):
    """One pair to be measured; truth is optional.

    Attributes:
        image0: (3, H, W) float in [0, 255].
        image1: (3, H, W) float in [0, 255].
        disparity: (H, W) float px, left view, or None.
        valid: (H, W) bool, or None.
        occluded: (H, W) bool, or None where nobody knows.
    """

    image0: Tensor
    image1: Tensor
    disparity: Tensor | None = None
    valid: Tensor | None = None
    occluded: Tensor | None = None


def local_deviation(grey: Tensor) -> Tensor:
    """(H, W) standard deviation in the window around each pixel (less at the border)."""
    stack = torch.stack([grey, grey**2])[None]
    mean, square = F.avg_pool2d(stack, WINDOW, 1, WINDOW // 2, count_include_pad=False)[0]
    return (square - mean**2).clamp_min(0).sqrt()


def spectrum_decay(grey: Tensor) -> float:
    """Slope of log power over log frequency between 1/64 and 1/2 cycles per px; about -2 to -3 in photographs."""
    side = min(grey.shape)
    top, left = (grey.shape[0] - side) // 2, (grey.shape[1] - side) // 2
    square = grey[top : top + side, left : left + side]
    window = torch.hann_window(side, periodic=False)
    power = torch.fft.rfft2((square - square.mean()) * window[:, None] * window).abs() ** 2
    frequency = torch.hypot(torch.fft.fftfreq(side)[:, None], torch.fft.rfftfreq(side)[None])
    points = []
    for low, high in zip(SPECTRUM_BANDS, SPECTRUM_BANDS[1:]):
        band = (frequency >= low) & (frequency < high)
        if band.any():
            points.append((math.log(math.sqrt(low * high)), math.log(float(power[band].mean()) + 1e-6)))
    x, y = torch.tensor(points, dtype=torch.float64).T
    x = x - x.mean()
    return float((x * y).sum() / (x**2).sum())


def noise_level(grey: Tensor) -> float:
    """Deviation of the grain: Immerkær's Laplacian, by its median so that edges do not count."""
    kernel = torch.tensor([[1.0, -2.0, 1.0], [-2.0, 4.0, -2.0], [1.0, -2.0, 1.0]])
    response = F.conv2d(grey[None, None], kernel[None, None])
    return float(response.abs().median()) / (0.6745 * 6)


def measure(pair: Pair) -> dict[str, Tensor]:
    """Values of every measure that the pair allows: many per pixel-wise measure, one for the others."""
    grey = luma(pair.image0)
    across, down = grey.diff(dim=1)[:-1], grey.diff(dim=0)[:, :-1]
    texture = local_deviation(grey)
    largest, smallest = pair.image0.amax(0), pair.image0.amin(0)
    values: dict[str, Tensor] = {
        "gradient": torch.hypot(across, down),
        "texture": texture,
        "flat": (texture < FLAT).float().mean(),
        "brightness": grey,
        "contrast": grey.std(),
        "saturation": (largest - smallest) / largest.clamp_min(1),
        "clipped": ((grey <= 0.5) | (grey >= 254.5)).float().mean(),
        "noise": torch.tensor(noise_level(grey)),
        "decay": torch.tensor(spectrum_decay(grey)),
    }
    if pair.disparity is None or pair.valid is None:
        return values
    width = grey.shape[1]
    known = pair.disparity[pair.valid]
    both = pair.valid[:, 1:] & pair.valid[:, :-1]
    slope = pair.disparity.diff(dim=1).abs()[both]
    values["disparity"] = known / width
    values["largest"] = known.quantile(0.99) / width if known.numel() < 1 << 24 else known.max() / width
    values["slope"] = slope
    values["edges"] = (slope > DEPTH_EDGE).float().mean()
    visible = pair.valid
    if pair.occluded is not None:
        values["hidden"] = pair.occluded[pair.valid].float().mean()
        visible = pair.valid & ~pair.occluded
    match = torch.arange(width) - pair.disparity
    visible = visible & (match >= 0)
    column = torch.where(visible, match, 0).clamp(0, width - 1)
    low = column.floor().clamp(max=width - 2)
    other = luma(pair.image1)
    before, after = (torch.gather(other, 1, (low + step).long()) for step in (0, 1))
    warped = torch.lerp(before, after, column - low)
    values["mismatch"] = (warped - grey)[visible].abs().median()
    return values


def summarise(name: str, pairs: Iterable[Pair]) -> Summary:
    """Measure every pair; the quantiles are `QUANTILES`."""
    return distributions.summarise(name, (measure(pair) for pair in pairs), MEASURES, QUANTILES)
