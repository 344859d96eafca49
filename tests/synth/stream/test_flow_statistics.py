"""Numbers of a pair whose motion is known."""

import pytest
import torch

from matchattention.synth.stream.flow_statistics import MEASURES, FlowPair, measure, summarise


def pair(u: float = 10.0) -> FlowPair:
    """A texture that goes to the right by u px and grows brighter by 5 grey levels; the left half is known."""
    canvas = torch.rand(3, 40, 140, generator=torch.Generator().manual_seed(0)) * 200
    first, second = canvas[..., 20:120], canvas[..., 20 - int(u) : 120 - int(u)] + 5
    flow = torch.tensor([u, 0.0]).expand(40, 100, 2)
    valid = torch.zeros(40, 100, dtype=torch.bool)
    valid[:, :50] = True
    occluded = torch.zeros_like(valid)
    occluded[:10] = True
    return FlowPair(first, second, flow, valid, occluded)


def test_measures_of_a_shift():
    values = measure(pair())
    assert values["motion"].shape == (40 * 50,)
    for name in ("motion", "median", "fastest"):
        torch.testing.assert_close(values[name].max(), torch.tensor(10.0))  # % of 100 px
    assert values["spread"] == 0
    assert values["edges"] == 0
    assert values["gone"] == 0
    assert values["hidden"] == 0.25
    assert (values["direction"] == 0).all()
    assert values["mismatch"] == pytest.approx(5.0, abs=1e-3)
    assert values["brightening"] == pytest.approx(5.0, abs=1e-3)


def test_what_leaves_the_frame_counts_and_is_not_compared():
    moved = pair(10.0)
    away = moved._replace(flow=torch.tensor([-20.0, 0.0]).expand(40, 100, 2), occluded=None)
    values = measure(away)
    assert values["gone"] == pytest.approx(0.4)  # 20 of the 50 known columns
    assert "hidden" not in values
    assert (values["direction"].abs() == 180).all()


def test_a_summary_is_a_distribution():
    summary = summarise("two", [pair(10.0), pair(4.0)])
    assert summary.pairs == 2
    assert summary.quantiles["motion"][0] == pytest.approx(4.0)
    assert summary.quantiles["motion"][2] == pytest.approx(10.0)
    assert set(summary.histograms) == set(MEASURES)
    for name, shares in summary.histograms.items():
        assert sum(shares) == pytest.approx(1.0)
        assert len(shares) == len(MEASURES[name].edges) - 1
