"""Schedule, update, validity, state codecs, parts, sources, packed pairs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from matchattention.data.batch import Batch
from matchattention.errors import InputError
from matchattention.training.clock import RunClock, process_age
from matchattention.training.eval_pairs import RealPair, read_pairs, write_pairs
from matchattention.training.feed import Feed
from matchattention.training.losses import LossConfig
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.parts import join_parts, write_parts
from matchattention.training.presets import Preset, SourceConfig
from matchattention.training.schedule import ScheduleConfig, learning_rate
from matchattention.training.sources import FinitePool, MixedSource, ShiftedCards, concatenate, shares
from matchattention.training.state import quantise_squares, restore_squares
from matchattention.training.step import TrainingStep
from matchattention.training.validation import errors
from matchattention.training.validity import silence_bad_samples
from tests.training.networks import TinyNetwork


class TestSchedule:
    def test_constant_warms_up_and_stays(self):
        config = ScheduleConfig(peak=1.0, warmup_steps=10)
        assert learning_rate(config, 0, 0.0) == pytest.approx(0.04 + 0.96 * 0.1)
        assert learning_rate(config, 9, 0.0) == 1.0
        assert learning_rate(config, 5000, 1.0) == 1.0

    def test_warm_up_begins_again_where_moments_were_lost(self):
        config = ScheduleConfig(peak=1.0, warmup_steps=10)
        assert learning_rate(config, 1000, 0.0, restarted_at=1000) < 0.2

    @pytest.mark.parametrize("shape", ["linear", "cosine"])
    def test_cooldown_falls_over_the_last_part(self, shape):
        config = ScheduleConfig(peak=1.0, warmup_steps=1, cooldown=True, cooldown_fraction=0.4, shape=shape)
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


class TestUpdater:
    def _with_gradients(self, factor: float):
        torch.manual_seed(0)
        model = TinyNetwork()
        updater = Updater(model, OptimizerConfig(average_decay=0.5))
        for parameter in updater.parameters:
            parameter.grad = factor * torch.randn_like(parameter)
        return model, updater

    @pytest.mark.parametrize("factor", [1e-4, 10.0])
    def test_equals_pytorchs_clipping_and_adamw(self, factor):
        model, updater = self._with_gradients(factor)
        expected = TinyNetwork()
        expected.load_state_dict(model.state_dict())
        for ours, theirs in zip(updater.parameters, expected.parameters()):
            theirs.grad = ours.grad.clone()
        groups = [
            {"params": [p for p in expected.parameters() if p.dim() >= 2], "weight_decay": 0.05},
            {"params": [p for p in expected.parameters() if p.dim() < 2], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
        norm = torch.nn.utils.clip_grad_norm_(expected.parameters(), 1.0)
        optimizer.step()
        updater.set_rates(1e-3, 0)
        updater.update()
        for ours, theirs in zip(updater.parameters, expected.parameters()):
            assert torch.allclose(ours, theirs, atol=1e-7)
        assert updater.read_statistics()["gradient"] == pytest.approx(norm.item(), rel=1e-5)

    def test_gradient_that_is_not_finite_changes_nothing_and_is_counted(self):
        model, updater = self._with_gradients(1.0)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        updater.parameters[1].grad[0] = float("inf")
        updater.set_rates(1e-2, 0)
        updater.update()
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert all(state["step"].item() == 0 for state in updater.optimizer.state.values())
        assert updater.read_statistics()["skipped"] == 1

    def test_rehearsal_changes_nothing(self):
        model, updater = self._with_gradients(1.0)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        updater.rehearse()
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert all(torch.equal(a, before[n]) for n, a in updater.averaged().items())
        assert updater.statistics.tolist() == [0, 0, 0, 0]

    def test_average_warms_up_to_its_decay(self):
        _, updater = self._with_gradients(1.0)
        start = updater.average[0].clone()
        updater.set_rates(1e-2, 0)
        updater.update()
        expected = start + 0.9 * (updater.parameters[0] - start)  # decay (1 + 0) / (10 + 0)
        assert torch.allclose(updater.average[0], expected, atol=1e-7)
        updater.set_rates(0.0, 1000)
        assert updater._average_weight.item() == pytest.approx(0.5)

    def test_second_step_has_no_decay_on_vectors(self):
        _, updater = self._with_gradients(0.0)
        vectors = [p.detach().clone() for p in updater.parameters if p.dim() < 2]
        matrices = [p.detach().clone() for p in updater.parameters if p.dim() >= 2]
        updater.set_rates(0.1, 0)
        updater.update()
        after = [p for p in updater.parameters if p.dim() < 2]
        assert all(torch.equal(a, b) for a, b in zip(vectors, after))
        shrunk = [p for p in updater.parameters if p.dim() >= 2]
        assert all(torch.allclose(a * (1 - 0.1 * 0.05), b) for a, b in zip(matrices, shrunk))


class TestValidity:
    def _batch(self) -> Batch:
        return ShiftedCards(0).batch(0, 3, 32, 64)

    def test_sound_batches_pass_unchanged(self):
        batch = self._batch()
        cleaned, silenced = silence_bad_samples(batch)
        assert silenced.item() == 0
        assert all(torch.equal(a, b) for a, b in zip(batch, cleaned))

    def test_bad_images_and_mostly_absurd_truth_silence_a_sample(self):
        batch = self._batch()
        image0, field1 = batch.image0.clone(), batch.field1.clone()
        image0[1, 0, 3, 3] = float("nan")
        field1[2, :10] = 1e6
        cleaned, silenced = silence_bad_samples(batch._replace(image0=image0, field1=field1))
        assert silenced.item() == 2
        assert torch.isfinite(cleaned.image0).all()
        assert cleaned.valid0[0].all()
        assert not cleaned.valid0[1:].any()
        assert not cleaned.valid1[1:].any()

    def test_a_few_absurd_pixels_are_masked_one_by_one(self):
        batch = self._batch()
        field0 = batch.field0.clone()
        field0[0, 0, :4] = float("inf")
        cleaned, silenced = silence_bad_samples(batch._replace(field0=field0))
        assert silenced.item() == 0
        assert cleaned.valid0[0].sum().item() == 32 * 64 - 4
        assert torch.isfinite(cleaned.field0).all()


def test_squares_survive_eight_bits():
    torch.manual_seed(0)
    values = torch.randn(1000).exp() ** 3 * 1e-9
    values[:3] = 0
    codes, largest = quantise_squares(values)
    restored = restore_squares(codes, largest)
    assert codes.dtype == torch.uint8
    assert (restored[:3] == 0).all()
    assert ((restored[3:] / values[3:]).log2().abs() <= 0.5 * 40 / 255 + 1e-3).all()
    assert restore_squares(*quantise_squares(torch.zeros(4))).tolist() == [0, 0, 0, 0]


class TestParts:
    def test_round_trip_and_stale_parts(self, tmp_path):
        path = tmp_path / "file"
        data = np.random.default_rng(0).bytes(1000)
        assert len(write_parts(data, path, 300)) == 4
        assert join_parts(path) == data
        assert len(write_parts(data[:100], path, 300)) == 1
        assert join_parts(path) == data[:100]

    def test_missing_or_mixed_parts_are_noticed(self, tmp_path):
        path = tmp_path / "file"
        assert join_parts(path) is None
        parts = write_parts(b"a" * 1000, path, 300)
        parts[-1].unlink()
        with pytest.raises(InputError, match="do not fit together"):
            join_parts(path)


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


def test_packed_pairs_survive(tmp_path):
    random = np.random.default_rng(0)
    pairs = []
    for index in range(3):
        disparity = random.uniform(0, 200, (20, 30)).astype(np.float32)
        disparity[:2] = np.inf
        left, right = random.integers(0, 256, (2, 20, 30, 3), dtype=np.uint8)
        pairs.append(RealPair("set", f"scene{index}", left, right, disparity, random.random((20, 30)) > 0.5))
    path = tmp_path / "pairs.bin"
    assert write_pairs(path, pairs, 1 << 20) == ["set/scene0", "set/scene1", "set/scene2"]
    for before, after in zip(pairs, read_pairs(path)):
        assert np.array_equal(before.left, after.left)
        assert np.array_equal(before.right, after.right)
        assert np.array_equal(before.visible, after.visible)
        assert np.array_equal(np.isinf(before.disparity), np.isinf(after.disparity))
        assert np.nanmax(np.abs(before.disparity[2:] - after.disparity[2:])) <= 1 / 256
    assert len(write_pairs(path, pairs, 12_000)) < 3
    assert path.stat().st_size <= 12_000
    with pytest.raises(InputError, match="does not exist"):
        read_pairs(tmp_path / "missing")


def test_error_measures_by_hand():
    truth = torch.tensor([[-10.0, 0.0], [-100.0, 0.0], [-10.0, 0.0], [-10.0, 0.0]])
    field = torch.tensor([[-11.5, 0.0], [-104.0, 0.0], [-14.0, 0.0], [99.0, 0.0]])
    found = errors(field, truth, torch.tensor([True, True, True, False]))
    expected = {"epe": 9.5 / 3, "bad1": 100.0, "bad2": 200 / 3, "bad3": 200 / 3, "d1": 100 / 3}
    assert {name: value.item() for name, value in found.items()} == pytest.approx(expected)


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
    feed = Feed(MixedSource([ShiftedCards(0), ShiftedCards(1)], [1, 1]), step)
    with pytest.raises(InputError, match="enlarge the batch"):
        feed.draw(0, 1, 32, 32)


def test_a_recipe_names_files_but_not_where_they_lie():
    sources = (SourceConfig("scenes", preset="mixed"), SourceConfig("data", preset="kitti2015/training:/home/me/kitti"))
    recipe = Preset("", start="/home/me/rt.safetensors", sources=sources).to_dict()
    assert recipe["start"] == "rt.safetensors"
    assert [source["preset"] for source in recipe["sources"]] == ["mixed", "kitti2015/training:kitti"]
    assert Preset("", start="rt").to_dict()["start"] == "rt"


def test_a_step_silences_bad_samples():
    model = TinyNetwork()
    step = TrainingStep(model, Updater(model, OptimizerConfig()), LossConfig(), mixed_precision=False)
    batch = ShiftedCards(0).batch(0, 2, 32, 64)
    batch.image0[1, 0, 3, 3] = float("nan")
    step.gradients(batch)
    assert step.totals[len(step.names)] == 1
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
