"""Runs end where they should, continue exactly, and leave usable files."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from matchattention.errors import InputError
from matchattention.models import checkpoint, create_model
from matchattention.training.loop import BEFORE_COOLDOWN, RunOptions, Trainer
from matchattention.training.optimizer import OptimizerConfig
from matchattention.training.presets import PRESETS, TINY, Preset, SourceConfig, Stage
from matchattention.training.schedule import ScheduleConfig
from matchattention.training.sources import ShiftedCards
from matchattention.training.state import STATE_FILE

PRESET = Preset(
    "for tests",
    model=TINY,
    stages=(Stage(32, 64, 2),),
    sources=(SourceConfig("cards"),),
    schedule=ScheduleConfig(kind="one-cycle", peak=1e-3, warmup_steps=2),
    optimizer=OptimizerConfig(average_decay=0.9),
    mixed_precision=False,
    validation_pairs=2,
    validation_size=(32, 64),
)


def _trainer(folder: Path, preset: Preset = PRESET, steps=None, minutes=None, **options) -> Trainer:
    torch.manual_seed(0)
    preset = replace(preset, steps=steps, minutes=minutes)
    model = create_model(preset.model).train()
    run = RunOptions(folder, log_seconds=0.0, **options)
    return Trainer(preset, run, model, model.config, ShiftedCards(1), ShiftedCards(2))


def _weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {**{f"raw {n}": p for n, p in trainer.model.state_dict().items()}, **trainer.updater.averaged()}


def _entries(folder: Path, kind: str) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def test_two_and_two_steps_equal_four(tmp_path, monkeypatch):
    whole = _trainer(tmp_path / "whole", steps=4)
    whole.run()
    first = _trainer(tmp_path / "parts", steps=4)
    one_step = first._one_step

    def stop_after_two() -> None:
        one_step()
        first.stopping = first.counters.steps == 2

    monkeypatch.setattr(first, "_one_step", stop_after_two)
    first.run()
    assert first.counters.steps == 2
    second = _trainer(tmp_path / "parts", steps=4, resume=tmp_path / "parts")
    second.run()
    assert second.counters.steps == whole.counters.steps == 4
    assert second.counters.samples == whole.counters.samples == 8
    expected = _weights(whole)
    assert all(torch.equal(value, expected[name]) for name, value in _weights(second).items())
    assert not torch.equal(next(iter(_weights(first).values())), next(iter(expected.values())))


def test_a_run_leaves_state_checkpoint_and_log(tmp_path):
    trainer = _trainer(tmp_path / "run", steps=3)
    trainer.run()
    network = checkpoint.load(tmp_path / "run" / "model.safetensors")
    for name, weight in trainer._weights_to_keep().items():
        assert torch.equal(network.state_dict()[name], weight.half().float())
    _, metadata = checkpoint.read_header(tmp_path / "run" / "model.safetensors")
    assert metadata["steps"] == 3
    assert metadata["validation"]["rendered/epe"] > 0
    entries = _entries(tmp_path / "run", "train")
    assert [entry["step"] for entry in entries] == [1, 2, 3]
    assert {"loss", "final", "gradient", "samples_per_second", "silenced", "skipped"} <= entries[0].keys()
    assert _entries(tmp_path / "run", "validation")


def test_a_run_whose_machine_is_taken_away_leaves_what_it_saved_last(tmp_path, monkeypatch):
    trainer = _trainer(tmp_path / "run", steps=6, save_seconds=0.0)
    one_step = trainer._one_step

    def vanish_in_the_third() -> None:
        if trainer.counters.steps == 2:
            raise RuntimeError("the machine is gone")
        one_step()

    monkeypatch.setattr(trainer, "_one_step", vanish_in_the_third)
    with pytest.raises(RuntimeError, match="gone"):
        trainer.run()
    assert checkpoint.read_header(tmp_path / "run" / "model.safetensors")[1]["steps"] == 2


def test_a_run_without_time_for_a_step_says_so_and_writes_no_model(tmp_path, monkeypatch):
    from matchattention.training import clock

    monkeypatch.setattr(clock, "process_age", lambda: 100.0)
    with pytest.raises(InputError, match="nothing was trained"):
        _trainer(tmp_path / "run", minutes=0.5).run()
    assert [path.name for path in (tmp_path / "run").glob("*.*")] == ["log.jsonl"]


def test_accumulated_micro_batches_make_the_step_of_a_whole_batch(tmp_path):
    def after(accumulate: int) -> dict[str, torch.Tensor]:
        preset = replace(PRESET, stages=(Stage(32, 64, 4),), batch_norm=False, accumulate=accumulate)
        trainer = _trainer(tmp_path / str(accumulate), preset, steps=1)
        trainer._one_step()
        assert trainer.counters.samples == 4
        return dict(zip(trainer.updater.names, [p.grad for p in trainer.updater.parameters]))

    whole, parts = (torch.cat([g.flatten() for g in after(number).values()]) for number in (1, 4))
    # Means over masked pixels differ a little between one batch and four: pairs count the same, pixels do not.
    assert torch.nn.functional.cosine_similarity(whole, parts, 0) > 0.98
    assert 0.9 < (parts.norm() / whole.norm()).item() < 1.1


def test_recomputed_activations_give_the_same_weights_with_batch_norms(tmp_path):
    kept = _trainer(tmp_path / "kept", steps=3)
    kept.run()
    recomputed = _trainer(tmp_path / "recomputed", replace(PRESET, recompute=True), steps=3)
    recomputed.run()
    expected = _weights(kept)
    assert all(torch.equal(value, expected[name]) for name, value in _weights(recomputed).items())


def test_cooldown_keeps_the_state_before_it(tmp_path):
    schedule = ScheduleConfig(peak=1e-3, warmup_steps=1, cooldown=True, cooldown_fraction=0.5)
    trainer = _trainer(tmp_path / "run", replace(PRESET, schedule=schedule), steps=4)
    trainer.run()
    rates = [entry["rate"] for entry in _entries(tmp_path / "run", "train")]
    assert rates[0] == rates[2] == pytest.approx(1e-3)
    assert rates[3] == pytest.approx(1e-3 * (1 - 0.99 * 0.5))
    before = _trainer(tmp_path / "a", steps=4, resume=tmp_path / "run" / BEFORE_COOLDOWN)
    assert before.counters.steps == 3


def test_stages_follow_one_another(tmp_path):
    stages = (Stage(32, 64, 2, 0.5), Stage(64, 64, 2, 0.5))
    _trainer(tmp_path / "run", replace(PRESET, stages=stages), steps=4).run()
    found = [(entry["step"], entry["height"]) for entry in _entries(tmp_path / "run", "stage")]
    assert found == [(0, 32), (2, 64)]


def test_a_time_limit_ends_a_run_with_its_state_saved(tmp_path, monkeypatch):
    from matchattention.training import clock

    monkeypatch.setattr(clock, "process_age", lambda: 0.0)
    trainer = _trainer(tmp_path / "run", minutes=0.03)
    trainer.run()
    assert trainer.counters.steps > 0
    assert trainer.clock.is_over(trainer.counters.steps)
    assert (tmp_path / "run" / STATE_FILE).is_file()


def test_a_signal_ends_a_run_with_its_state_saved(tmp_path, monkeypatch):
    trainer = _trainer(tmp_path / "run", steps=1000)
    one_step = trainer._one_step

    def interrupted() -> None:
        one_step()
        if trainer.counters.steps == 2:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(trainer, "_one_step", interrupted)
    trainer.run()
    assert trainer.counters.steps == 2
    assert _trainer(tmp_path / "x", resume=tmp_path / "run").counters.steps == 2


def test_a_failure_keeps_what_was_trained(tmp_path, monkeypatch):
    trainer = _trainer(tmp_path / "run", steps=10)
    train = trainer.feed.train

    def failing(*arguments, **options) -> None:
        if trainer.counters.steps == 3:
            raise RuntimeError("the renderer broke")
        train(*arguments, **options)

    monkeypatch.setattr(trainer.feed, "train", failing)
    with pytest.raises(RuntimeError, match="renderer broke"):
        trainer.run()
    assert _trainer(tmp_path / "x", resume=tmp_path / "run").counters.steps == 3


def test_resuming_nothing_or_another_network_is_explained(tmp_path):
    with pytest.raises(InputError, match="no training state"):
        _trainer(tmp_path / "run", resume=tmp_path)
    _trainer(tmp_path / "run", steps=1).run()
    wider = replace(PRESET, model=replace(TINY, channels=(32, 32, 32, 32)))
    with pytest.raises(InputError, match="another network"):
        _trainer(tmp_path / "x", wider, resume=tmp_path / "run")


def test_presets_are_sound():
    for name, preset in PRESETS.items():
        assert preset.summary, name
        json.dumps(preset.to_dict())
        assert preset.minutes or preset.steps, name
        with torch.device("meta"):
            create_model(preset.model)
    with pytest.raises(InputError, match="multiples of 32"):
        Stage(100, 640, 8)
