"""Measures of pairs on images whose answer is known."""

from __future__ import annotations

import math

import pytest
import torch

from matchattention.synth.stream import distributions
from matchattention.synth.stream.statistics import (
    MEASURES,
    Pair,
    local_deviation,
    measure,
    noise_level,
    spectrum_decay,
    summarise,
)


def noise(deviation: float, size: tuple[int, int] = (96, 128), seed: int = 0) -> torch.Tensor:
    return 128 + deviation * torch.randn(size, generator=torch.Generator().manual_seed(seed))


def shifted_pair(disparity: float = 6.0) -> Pair:
    generator = torch.Generator().manual_seed(1)
    wide = 60 + 140 * torch.rand((3, 40, 80), generator=generator)
    left, right = wide[..., :64], wide[..., 6:70]
    flat = torch.full((40, 64), disparity)
    match = torch.arange(64) - 6 < 0
    return Pair(left, right, flat, torch.ones(40, 64, dtype=torch.bool), match.expand(40, 64))


def test_noise_level_of_white_noise():
    for deviation in (1.0, 5.0):
        assert noise_level(noise(deviation)) == pytest.approx(deviation, rel=0.1)


def test_noise_level_ignores_edges():
    image = noise(1.0)
    image[:, 64:] += 80
    assert noise_level(image) == pytest.approx(1.0, rel=0.15)


def test_local_deviation():
    assert local_deviation(torch.full((20, 20), 7.0)).max() < 0.1
    assert local_deviation(noise(8.0)).mean().item() == pytest.approx(8.0, rel=0.1)


def test_spectrum_of_white_and_of_smooth_images():
    white = noise(10.0, (128, 128))
    assert spectrum_decay(white) == pytest.approx(0.0, abs=0.15)
    frequency = torch.hypot(torch.fft.fftfreq(128)[:, None], torch.fft.rfftfreq(128)[None]).clamp_min(1 / 128)
    pink = torch.fft.irfft2(torch.fft.rfft2(white - 128) / frequency, s=(128, 128))
    assert spectrum_decay(pink) == pytest.approx(-2.0, abs=0.3)


def test_disparity_measures():
    values = measure(shifted_pair())
    assert values["disparity"].unique().tolist() == pytest.approx([6 / 64])
    assert values["largest"].item() == pytest.approx(6 / 64)
    assert values["edges"] == 0
    assert values["hidden"].item() == pytest.approx(6 / 64)
    assert values["mismatch"] == 0
    assert set(values) == set(MEASURES)


def test_mismatch_grows_with_wrong_truth_and_with_unequal_views():
    pair = shifted_pair()
    assert measure(shifted_pair(8.0))["mismatch"] > 5
    assert measure(pair._replace(image1=pair.image1 + 10))["mismatch"].item() == pytest.approx(10, abs=0.01)


def test_pairs_without_truth_are_measured_in_part():
    pair = shifted_pair()
    assert set(measure(Pair(pair.image0, pair.image1))) == set(MEASURES) - {
        "disparity", "largest", "slope", "edges", "hidden", "mismatch"
    }  # fmt: skip


def test_summary_weighs_pairs_alike_and_sums_to_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(distributions, "PER_PAIR", 256)
    small = Pair(torch.full((3, 16, 16), 50.0), torch.full((3, 16, 16), 50.0))
    large = Pair(torch.full((3, 128, 128), 200.0), torch.full((3, 128, 128), 200.0))
    summary = summarise("two", [small, large])
    assert summary.pairs == 2
    low, _, high = summary.quantiles["brightness"]
    assert (round(low), round(high)) == (50, 200)
    for name, shares in summary.histograms.items():
        assert sum(shares) == pytest.approx(1.0, abs=1e-4), name
    assert sum(summary.histograms["brightness"][:24]) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("name", MEASURES)
def test_histograms_cover_their_range(name: str):
    edges = MEASURES[name].edges
    assert math.isclose(float(edges[0]), MEASURES[name].low, rel_tol=1e-4)
    assert math.isclose(float(edges[-1]), MEASURES[name].high, rel_tol=1e-4, abs_tol=1e-6)
    assert (edges.diff() > 0).all()


def test_the_largest_disparity_leaves_out_one_pixel_in_a_hundred():
    disparity = torch.linspace(0, 20, 40 * 64).view(40, 64)
    values = measure(shifted_pair()._replace(disparity=disparity, occluded=None))
    assert values["largest"].item() == pytest.approx(0.99 * 20 / 64, rel=1e-3)
