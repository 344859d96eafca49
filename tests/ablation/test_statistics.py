import math

import pytest

from matchattention.ablation.rows import CLAIMS, Claim
from matchattention.ablation.statistics import Difference, difference, summary, verdict


def run(row, seed, value, by_pair=(), **real):
    return {
        "row": row,
        "seed": seed,
        "measures": {"rendered/all/bad1": value},
        "by_pair": {"all/bad1": list(by_pair)},
        "real": real,
    }


RUNS = [
    run("rt", 1, 10.0, (8.0, 12.0, None)),
    run("rt", 2, 12.0, (10.0, 14.0, None)),
    run("rt-dot", 1, 11.0, (10.0, 12.0, 5.0)),
    run("rt-dot", 2, 15.0, (12.0, 18.0, 5.0)),
    run("rt-dot", 3, 99.0),
]


def test_mean_and_spread():
    found = summary(RUNS, "rt", "rendered/all/bad1")
    assert found == (11.0, pytest.approx(math.sqrt(2)), 2)
    assert summary(RUNS, "rt-1x8", "rendered/all/bad1") is None
    assert summary(RUNS[:1], "rt", "rendered/all/bad1").spread is None


def test_differences_are_taken_seed_by_seed():
    found = difference(RUNS, "rt-dot", "rendered/all/bad1")
    assert found.mean == 2.0  # 1 and 3; the third seed has no baseline
    assert found.error == pytest.approx(1.0)
    assert found.seeds == 2
    assert found.pair_error == pytest.approx(0.0)  # both pairs are worse by 2 on average; the third is unknown
    assert found.uncertainty == pytest.approx(1.0)


def test_pairs_alone_do_not_make_one_seed_sure():
    found = difference(RUNS[:1] + RUNS[2:3], "rt-dot", "rendered/all/bad1")
    assert found.error is None
    assert found.pair_error == pytest.approx(1.0)
    assert found.uncertainty is None


def test_real_figures_have_no_pairs():
    runs = [run("rt", 1, 0.0, **{"kitti2015-all/d1": 5.0}), run("rt-dot", 1, 0.0, **{"kitti2015-all/d1": 7.0})]
    assert difference(runs, "rt-dot", "kitti2015-all/d1") == (2.0, None, None, 1)


@pytest.mark.parametrize(
    ("expected", "mean", "error", "words"),
    [
        ("worse", 3.0, 1.0, "yes"),
        ("worse", 1.0, 1.0, "cannot tell"),
        ("worse", -3.0, 1.0, "no, the opposite"),
        ("not better", 1.0, 1.0, "yes, no difference to be seen"),
        ("not better", -1.0, 1.0, "yes, no difference to be seen"),
        ("not better", -3.0, 1.0, "no, the opposite"),
        ("worse", 3.0, None, "one seed: cannot tell"),
    ],
)
def test_verdict(expected, mean, error, words):
    claim = Claim("", "rt-dot", "rendered/all/bad1", expected)
    assert verdict(claim, Difference(mean, error, None, 2)) == words


def test_nothing_measured_is_no_verdict():
    assert verdict(CLAIMS[0], None) == "not measured"
