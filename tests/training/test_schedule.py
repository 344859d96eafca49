"""Learning rate and run length."""

from __future__ import annotations

import pytest

from matchattention.errors import InputError
from matchattention.training.clock import RunClock, process_age
from matchattention.training.schedule import ScheduleConfig, learning_rate


class TestSchedule:
    def test_constant_warms_up_and_stays(self):
        config = ScheduleConfig(peak=1.0, warmup_steps=10)
        assert learning_rate(config, 0, 0.0) == pytest.approx(0.04 + 0.96 * 0.1)
        assert learning_rate(config, 9, 0.0) == 1.0
        assert learning_rate(config, 5000, 1.0) == 1.0

    def test_warm_up_begins_again_where_moments_were_lost(self):
        config = ScheduleConfig(peak=1.0, warmup_steps=10)
        assert learning_rate(config, 1000, 0.0, restarted_at=1000) < 0.2

    def test_cooldown_falls_over_the_last_part(self):
        config = ScheduleConfig(peak=1.0, warmup_steps=1, cooldown=True, cooldown_fraction=0.4)
        rates = [learning_rate(config, 100, p) for p in (0.0, 0.59, 0.6, 0.8, 1.0)]
        assert rates[:3] == [1.0, 1.0, 1.0]
        assert rates[3] == pytest.approx(1 - 0.99 / 2)
        assert rates[4] == pytest.approx(0.01)

    def test_one_cycle_falls_over_all(self):
        config = ScheduleConfig(kind="one-cycle", peak=1.0, warmup_steps=1)
        rates = [learning_rate(config, 10, p / 10) for p in range(11)]
        assert rates == sorted(rates, reverse=True)
        assert rates[0] == 1.0

    def test_unknown_kinds_are_refused(self):
        with pytest.raises(InputError, match="one-cycle"):
            ScheduleConfig(kind="step")  # type: ignore[arg-type]


class TestClock:
    def test_steps(self):
        clock = RunClock(None, 10, 0.0)
        assert clock.progress(5) == 0.5
        assert not clock.is_over(9)
        assert clock.is_over(10)

    def test_time_counts_from_the_process_start(self):
        assert process_age() > 0
        clock = RunClock((process_age() + 60) / 60, None, reserve=20)
        assert clock.time_left() == pytest.approx(40, abs=2)
        clock.begin()
        assert clock.progress(0) < 0.1
        assert RunClock(process_age() / 60 / 2, None, 0.0).is_over(0)
