"""How much of a run is used up, against a clock that the test turns."""

from __future__ import annotations

import pytest

from matchattention.training import clock


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in s, ten seconds after the process began."""
    time = [1000.0]
    monkeypatch.setattr(clock.time, "monotonic", lambda: time[0])
    monkeypatch.setattr(clock, "process_age", lambda: 10.0)
    return time


def test_minutes_count_from_the_process_start_and_keep_a_reserve(now: list[float]) -> None:
    run = clock.RunClock(minutes=2.0, steps=None, reserve=20.0)
    assert run.time_left() == pytest.approx(120 - 10 - 20)
    assert run.progress(0) == 0
    now[0] += 30  # compiling, before the first step
    run.begin()
    now[0] += 15
    assert run.time_left() == pytest.approx(45)
    assert run.progress(0) == pytest.approx(15 / (15 + 45))
    assert not run.is_over(10**6)
    now[0] += 45
    assert run.progress(0) == 1
    assert run.is_over(1)


def test_steps_end_a_run_without_a_clock() -> None:
    run = clock.RunClock(minutes=None, steps=8, reserve=20.0)
    assert run.time_left() is None
    assert [run.progress(step) for step in (0, 2, 8, 9)] == [0, 0.25, 1, 1]
    assert [run.is_over(step) for step in (7, 8)] == [False, True]
