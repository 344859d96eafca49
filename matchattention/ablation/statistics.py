"""What the runs say: means and spread over seeds, and differences from the baseline with their standard errors."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matchattention.ablation.rows import BASELINE, Claim

Runs = Sequence[Mapping[str, Any]]
# Standard errors that a difference must exceed to count; with few seeds even that is a weak statement.
SURE = 2.0


class Summary(NamedTuple):
    """A figure of one row.

    Attributes:
        mean: Over seeds.
        spread: Standard deviation over seeds; None for one seed.
        seeds: How many.
    """

    mean: float
    spread: float | None
    seeds: int


class Difference(NamedTuple):
    """A row minus the baseline, seed by seed: positive is worse.

    Attributes:
        mean: Over the seeds that both have.
        error: Standard error over those seeds: how far another set of trainings would be off; None for one seed.
        pair_error: Standard error over the held-out pairs: how far another set of pairs would be off; None where
            pairs were not kept.
        seeds: How many.
    """

    mean: float
    error: float | None
    pair_error: float | None
    seeds: int

    @property
    def uncertainty(self) -> float | None:
        """Both errors together; None where one seed leaves the first unknown."""
        return None if self.error is None else math.hypot(self.error, self.pair_error or 0.0)


def figure(run: Mapping[str, Any], measure: str) -> float | None:
    """One figure of a run, rendered or real; None where it was not measured."""
    found = run["measures"].get(measure)
    return run["real"].get(measure) if found is None else found


def summary(runs: Runs, row: str, measure: str) -> Summary | None:
    """A row's figure; None where nobody has measured it."""
    values = [value for run in runs if run["row"] == row and (value := figure(run, measure)) is not None]
    if not values:
        return None
    spread = statistics.stdev(values) if len(values) > 1 else None
    return Summary(statistics.fmean(values), spread, len(values))


def difference(runs: Runs, row: str, measure: str, baseline: str = BASELINE) -> Difference | None:
    """A row beside the baseline; None where no seed has both."""
    of_row, of_baseline = ({run["seed"]: run for run in runs if run["row"] == name} for name in (row, baseline))
    both = [(of_row[seed], of_baseline[seed]) for seed in sorted(of_row.keys() & of_baseline.keys())]
    values = [
        mine - theirs
        for run, base in both
        if (mine := figure(run, measure)) is not None and (theirs := figure(base, measure)) is not None
    ]
    if not values:
        return None
    return Difference(statistics.fmean(values), _standard_error(values), _pair_error(both, measure), len(values))


def _standard_error(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def _pair_error(both: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], measure: str) -> float | None:
    """Of the mean over all pairs: each pair's difference is averaged over the seeds first."""
    kind, _, name = measure.partition("/")
    lists = [(run["by_pair"].get(name), base["by_pair"].get(name)) for run, base in both]
    if kind != "rendered" or not lists or any(mine is None or theirs is None for mine, theirs in lists):
        return None
    by_pair = []
    for pair in zip(*(zip(mine, theirs) for mine, theirs in lists)):
        known = [mine - theirs for mine, theirs in pair if mine is not None and theirs is not None]
        if known:
            by_pair.append(statistics.fmean(known))
    return _standard_error(by_pair)


def verdict(claim: Claim, found: Difference | None) -> str:
    """Whether a claim of the paper is borne out here, in words."""
    if found is None:
        return "not measured"
    if found.uncertainty is None:
        return "one seed: cannot tell"
    margin = SURE * found.uncertainty
    if found.mean > margin:
        return "yes"
    if found.mean < -margin:
        return "no, the opposite"
    return "yes, no difference to be seen" if claim.expected == "not better" else "cannot tell"
