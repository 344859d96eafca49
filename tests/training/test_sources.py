"""Where batches come from: shifted cards, mixtures, pools, and a source that fails."""

from __future__ import annotations

import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from matchattention.data.batch import Batch
from matchattention.errors import InputError
from matchattention.training.feed import FAR_AWAY, SUBSTITUTES, Feed
from matchattention.training.lanes import Lane
from matchattention.training.losses import LossConfig
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.sources import FinitePool, MixedSource, ShiftedCards, TakingTurns, concatenate, shares
from matchattention.training.step import TrainingStep
from tests.training.networks import TinyNetwork


class TestSources:
    def test_cards_match_exactly(self):
        batch = ShiftedCards(5).batch(0, 4, 40, 80)
        for sample in range(4):
            x = torch.arange(80).expand(40, 80)
            match = (x + batch.field0[sample, ..., 0].long()).clamp(0, 79)
            warped = batch.image1[sample].gather(2, match.expand(3, -1, -1))
            seen = ~batch.occluded0[sample]
            assert torch.equal(warped[:, seen], batch.image0[sample][:, seen])
            assert 0.3 < seen.float().mean() < 1

    def test_samples_depend_on_their_index_alone(self):
        source = ShiftedCards(5)
        together, alone = source.batch(4, 3, 32, 64), source.batch(6, 1, 32, 64)
        assert all(torch.equal(a[2], b[0]) for a, b in zip(together, alone))
        assert not torch.equal(together.image0[0], together.image0[1])

    @pytest.mark.parametrize(
        ("weights", "count", "expected"),
        [([1.0], 8, [8]), ([3.0, 1.0], 8, [6, 2]), ([0.98, 0.02], 8, [7, 1]), ([1.0, 1.0, 1.0], 32, None)],
    )
    def test_shares(self, weights, count, expected):
        found = shares(weights, count)
        assert sum(found) == count
        assert min(found) >= 1
        assert expected is None or found == expected

    def test_impossible_shares_are_explained(self):
        with pytest.raises(InputError, match="enlarge the batch"):
            shares([1.0, 1.0], 1)
        with pytest.raises(InputError, match="above zero"):
            shares([1.0, 0.0], 4)

    def test_mixtures_never_repeat_a_sample(self):
        mixed = MixedSource([ShiftedCards(1), ShiftedCards(2)], [3, 1])
        first, second = mixed.batch(0, 4, 32, 32), mixed.batch(4, 4, 32, 32)
        images = torch.cat((first.image0, second.image0)).flatten(1)
        assert len({tuple(image.tolist()) for image in images}) == 8
        assert torch.equal(second.image0[3], ShiftedCards(2).batch(1, 1, 32, 32).image0[0])

    def test_occlusion_survives_only_where_all_know_it(self):
        batch = ShiftedCards(1).batch(0, 1, 32, 32)
        assert concatenate([batch, batch._replace(occluded0=None)]).occluded0 is None

    def test_pool_repeats(self):
        pool = FinitePool(ShiftedCards(1), 3)
        batch = pool.batch(2, 3, 32, 32)
        assert torch.equal(batch.image0, ShiftedCards(1).batch(0, 3, 32, 32).image0[[2, 0, 1]])


def test_a_batch_that_cannot_be_made_is_replaced_and_reported(caplog):
    class Fragile(ShiftedCards):
        def batch(self, first: int, count: int, height: int, width: int) -> Batch:
            if first == 2:
                raise ValueError("a scene without a floor")
            return super().batch(first, count, height, width)

    model = TinyNetwork()
    step = TrainingStep(model, Updater(model, OptimizerConfig()), LossConfig(), mixed_precision=False)
    feed = Feed(Fragile(0), step)
    with caplog.at_level("WARNING"):
        batch = feed.draw(2, 2, 32, 32)
    assert batch.image0.shape == (2, 3, 32, 32)
    assert "samples 2 to 3 could not be made: a scene without a floor" in caplog.text


def test_the_host_s_idle_time_is_what_it_waits_for_the_gpu(monkeypatch):
    """A GPU that is always done leaves none; steps of 20 ms are waited for from the third on."""

    class Steps:
        device, consumed = torch.device("cpu"), None

        def __init__(self, seconds):
            self.finished = SimpleNamespace(synchronize=lambda: time.sleep(seconds))
            self.consumed = self.finished

        def __call__(self, *args, **kwargs):
            pass

    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    idle = []
    for seconds in (0.0, 0.02):
        feed = Feed(ShiftedCards(0), Steps(seconds))
        feed._stream = SimpleNamespace(wait_event=lambda event: None)
        for number in range(5):
            feed.train((2 * number, 2, 32, 32), 2 * number + 2, 0.0, 0)
        idle.append(feed.idle)
    assert idle[0] < idle[1]
    assert idle[1] >= 3 * 0.02


def test_turns_come_by_weight():
    turns = TakingTurns([5, 2, 1])
    assert [turns.before(128, which) for which in range(3)] == [80, 32, 16]
    for which in range(3):
        steps = [turns.before(index + 1, which) - turns.before(index, which) for index in range(128)]
        assert set(steps) == {0, 1}
    with pytest.raises(InputError, match="above zero"):
        MixedSource([ShiftedCards(0), ShiftedCards(1)], [1, 0])


class Recorded(ShiftedCards):
    """Keeps what it is asked for, and refuses what is another process's."""

    def __init__(self, lane: Lane) -> None:
        super().__init__(0)
        self.lane, self.asked = lane, []

    def batch(self, first: int, count: int, height: int, width: int) -> Batch:
        assert first % count == 0
        assert self.lane.slot(self.lane.own(first // count)) == first // count
        self.asked += range(first, first + count)
        return super().batch(0, count, height, width)


@pytest.mark.parametrize(("processes", "parts"), [(1, 1), (2, 1), (2, 2), (4, 1), (8, 1), (16, 1)])
def test_a_mixture_keeps_its_weights_however_many_processes_make_it(processes, parts):
    """Seven datasets as the paper mixes them, in a batch of 32: no sample twice, and none of another process."""
    weights = [10, 6, 5, 4, 4, 2, 1]
    count, steps = 32 // (processes * parts), 6
    asked: list[list[int]] = [[] for _ in weights]
    for rank in range(processes):
        lane = Lane(rank, processes, parts)
        sources = [Recorded(lane) for _ in weights]
        mixed = MixedSource(sources, weights, lane, renders=False)
        for own in range(steps * parts):
            assert len(mixed.batch(lane.slot(own) * count, count, 32, 32).image0) == count
        for all_of, source in zip(asked, sources):
            all_of += source.asked
    assert all(len(set(numbers)) == len(numbers) for numbers in asked)
    # Within a step or so, what a process has not reached yet of its round.
    assert all(abs(len(numbers) - weight * steps) <= max(2, weight // 2) for numbers, weight in zip(asked, weights)), [
        len(n) for n in asked
    ]


def test_the_last_substitute_is_as_far_away_as_the_others():
    asked = []

    class Broken(ShiftedCards):
        def batch(self, first: int, count: int, height: int, width: int) -> Batch:
            asked.append(first)
            if len(asked) <= SUBSTITUTES:
                raise ValueError("no scene")
            return super().batch(0, count, height, width)

    model = TinyNetwork()
    step = TrainingStep(model, Updater(model, OptimizerConfig()), LossConfig(), mixed_precision=False)
    Feed(Broken(0), step).draw(6, 2, 32, 32)
    assert asked == [6 + 2 * FAR_AWAY * attempt for attempt in range(SUBSTITUTES + 1)]
