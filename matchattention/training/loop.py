"""The training loop: stages, schedule, validation, saving, and an end that leaves everything usable."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from matchattention.errors import InputError
from matchattention.models import checkpoint
from matchattention.models.config import NetworkConfig
from matchattention.training import clock, sharding
from matchattention.training.batch_norms import BATCHES, BatchNorms
from matchattention.training.card import make_card
from matchattention.training.distillation import Distillation
from matchattention.training.distributed import Replicas
from matchattention.training.feed import Feed
from matchattention.training.log import TrainingLog, duration, progress_line
from matchattention.training.optimizer import Updater
from matchattention.training.real_pairs import RealPair
from matchattention.training.recipe import Preset, Stage
from matchattention.training.recomputation import recompute_blocks
from matchattention.training.schedule import learning_rate
from matchattention.training.sources import Source
from matchattention.training.state import Counters, load_state, state_content, write_state
from matchattention.training.step import Mode, TrainingStep
from matchattention.training.validation import METRICS, Validator, untuned_convolutions

CHECKPOINT_FILE = "model.safetensors"
BEFORE_COOLDOWN = "before-cooldown"
MINUTES_PER_STAGE = 10.0
BATCHES_ON_CPU = 2  # that norms are measured on, where a forward pass takes seconds


@dataclass(frozen=True)
class RunOptions:
    """How one run of a preset is carried out; the preset says what is trained, and for how long.

    Attributes:
        folder: State, log and checkpoint of the run.
        resume: Folder of a run to continue; None to begin.
        fastest: Fastest mode to try on a GPU.
        shard: Spread the weights over the processes instead of repeating them.
        log_seconds: Time between progress lines.
        save_seconds: Time between saved states.
        validate_seconds: Time between validations; None for the end only.
        reserve_seconds: Time kept for the end of a limited run.
        agree_every: Steps between the looks of several processes at the clock: agreeing costs a synchronisation.
        data_license: Of the pairs from files, for the checkpoint's card; None where nobody said.
    """

    folder: Path
    resume: Path | None = None
    fastest: Mode = "graph"
    shard: bool = False
    log_seconds: float = 10.0
    save_seconds: float = 60.0
    validate_seconds: float | None = 180.0
    reserve_seconds: float = 25.0
    agree_every: int = 10
    data_license: str | None = None


@contextmanager
def _termination(trainer: Trainer) -> Iterator[None]:
    """SIGTERM and Ctrl-C end the run after the present step, with everything saved."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def stop(number: int, frame: object) -> None:
        trainer.stopping = True
        signal.signal(number, kept[signal.Signals(number)])  # a second signal acts at once

    for number in kept:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


class _Due:
    """What the clocks ask for now; several processes ask at the same steps and all do the same."""

    def __init__(self, options: RunOptions) -> None:
        now = time.monotonic()
        self.intervals = {
            "report": options.log_seconds,
            "save": options.save_seconds,
            "validate": options.validate_seconds,
        }
        self._last = dict.fromkeys(self.intervals, now)

    def names(self) -> list[str]:
        now = time.monotonic()
        return [n for n, seconds in self.intervals.items() if seconds is not None and now - self._last[n] >= seconds]

    def done(self, name: str) -> None:
        self._last[name] = time.monotonic()


class Trainer:
    """Carries out one run of a preset.

    Args:
        preset: What is trained.
        options: How.
        model: The network, on its device, with the weights to begin with.
        config: The network's config, for its checkpoint.
        source: Training pairs.
        held_out: Rendered pairs of another seed, for validation; None for none.
        replicas: This process among others.
        real: Pairs of datasets to measure with, before and after.
    """

    def __init__(
        self,
        preset: Preset,
        options: RunOptions,
        model: nn.Module,
        config: NetworkConfig | None,
        source: Source,
        held_out: Source | None = None,
        replicas: Replicas | None = None,
        real: Sequence[RealPair] = (),
    ) -> None:
        self.preset, self.options = preset, options
        self.model, self.config = model, config
        self.replicas = replicas or Replicas()
        self.lane = self.replicas.lane(preset.accumulate)
        self._check_batches()
        self.stopping = False
        self.device = next(model.parameters()).device
        self.log = TrainingLog(options.folder, self.replicas.is_first)
        self.clock = clock.RunClock(preset.minutes, preset.steps, self._reserve())
        self.replicas.share((*model.parameters(), *model.buffers()))
        self.validator = self._make_validator(held_out, real)
        self.norms = self._put_norms_in(source) if preset.batch_norm else None
        self.replicas.share((*model.parameters(), *model.buffers()))
        if preset.recompute:
            recompute_blocks(model)
        if options.shard:
            sharding.shard(model, self.replicas)
        self.updater = Updater(model, preset.optimizer)
        self.counters = Counters()
        if options.resume is not None:
            self.counters = load_state(options.resume, model, self.updater, self.log.warn)
            self.log.say(f"continuing {options.resume} at step {self.counters.steps}")
        elif preset.start is not None:
            self.log.say(f"starting from the weights of {preset.start}")
        self._begun_at = self.counters.steps
        on_gpu = self.device.type == "cuda"
        masked = config is None or config.occlusion_loss
        self.step = TrainingStep(
            model,
            self.updater,
            preset.loss if masked else replace(preset.loss, mask_occlusions=False),
            mixed_precision=preset.mixed_precision and on_gpu,
            replicas=self.replicas,
            accumulate=preset.accumulate,
            distillation=None if preset.distillation is None else Distillation(preset.distillation, self.device),
        )
        self.feed = Feed(source, self.step)
        self.before: dict[str, float] = {}
        self.latest_validation: dict[str, float] = {}
        self._agreed_progress = 0.0
        self._stage: Stage | None = None
        self._cooling = False
        self._kept_weights: tuple[int, dict[str, torch.Tensor]] | None = None

    def _check_batches(self) -> None:
        parts = self.replicas.count * self.preset.accumulate
        for stage in self.preset.stages:
            if stage.batch % parts:
                raise InputError(
                    f"A batch of {stage.batch} does not divide into {self.replicas.count} processes x "
                    f"{self.preset.accumulate} micro-batches: choose --batch or --accumulate so that it does"
                )

    def _reserve(self) -> float:
        """Short runs keep a tenth of their time rather than all of it."""
        limit = self.preset.minutes
        return self.options.reserve_seconds if limit is None else min(self.options.reserve_seconds, limit * 6)

    def _make_validator(self, held_out: Source | None, real: Sequence[RealPair]) -> Validator | None:
        if not self.replicas.is_first:
            return None
        rendered = []
        if held_out is not None and self.preset.validation_pairs:
            height, width = self.preset.validation_size
            rendered = [
                held_out.batch(first, min(4, self.preset.validation_pairs - first), height, width)
                for first in range(0, self.preset.validation_pairs, 4)
            ]
        if not rendered and not real:
            return None
        mixed_precision = self.preset.mixed_precision and self.device.type == "cuda"
        first = self.preset.stages[0]
        return Validator(self.model, rendered, real, mixed_precision, (first.height, first.width))

    def _put_norms_in(self, source: Source) -> BatchNorms:
        """Before the optimizer is made, which trains their scales and shifts."""
        first = self.preset.stages[0]
        on_gpu = self.device.type == "cuda"
        # Of one process's and micro-batch's size: what fits into memory there.
        count = first.batch // (self.replicas.count * self.preset.accumulate)
        numbers = range(max(BATCHES if on_gpu else BATCHES_ON_CPU, 1))
        slots = [self.lane.slot(number) for number in numbers]
        batches = [source.batch(slot * count, count, first.height, first.width) for slot in slots]
        if on_gpu:
            torch.cuda.synchronize()  # training draws its batches on another stream
        trained = self.preset.start is not None and self.options.resume is None
        return BatchNorms(
            self.model, batches, self.preset.mixed_precision and on_gpu, trained, writes=self.replicas.is_first
        )

    def _weights_to_keep(self) -> dict[str, torch.Tensor]:
        """The averaged weights of the plain network, on the process that writes; the others help gathering them."""
        if self._kept_weights is not None and self._kept_weights[0] == self.counters.steps:
            return self._kept_weights[1]
        self.feed.wait()
        spread = dict(zip(self.updater.names, self.updater.originals))
        weights = {name: sharding.whole(value, value) for name, value in self.model.state_dict().items()}
        weights |= {name: sharding.whole(value, spread[name]) for name, value in self.updater.averaged().items()}
        if self.norms is not None and self.replicas.is_first:
            weights = self.norms.folded(weights)
        self._kept_weights = (self.counters.steps, {name: value.clone() for name, value in weights.items()})
        return self._kept_weights[1]

    def run(self) -> Counters:
        """Train until the limit or a signal, then validate and save; returns how far it came.

        Raises:
            InputError: The time was over before the first step.
        """
        with _termination(self), self._log_warnings():
            try:
                self._train()
            except BaseException:
                # Whatever happened, minutes of training are worth an attempt to keep them.
                if self.counters.steps > self._begun_at and self.replicas.is_first and not self.updater.sharded:
                    with suppress(Exception):
                        self._save(self.options.folder)
                raise
            finally:
                self.log.record("end", self.counters.steps, {"seconds": self.counters.seconds})
        self.log.close()
        return self.counters

    def _train(self) -> None:
        began = time.monotonic()
        if self.validator is not None and self.validator.has_real and self.options.resume is None:
            self._validate("before training")
            self.before = self.latest_validation
        self._enter_stage()
        if not self.stopping and self.clock.is_over(self.counters.steps) and not self._has_all_steps():
            raise clock.too_short(self.preset.minutes)
        self.clock.begin()
        self.log.say(f"ready after {duration(time.monotonic() - began)}, mode {self.step.mode}")
        due = _Due(self.options)
        counted_at, logged_at, logged_samples = time.monotonic(), time.monotonic(), self.counters.samples
        wanted, over = self._agree(due)
        while not over:
            self._one_step()
            now = time.monotonic()
            self.counters.seconds += now - counted_at
            if self.counters.steps == self._begun_at + 1:
                clock.disarm()
                self._plan_the_end(now - counted_at)
            counted_at = now
            wanted, over = self._agree(due)
            if "report" in wanted:
                self._report(time.monotonic() - logged_at, self.counters.samples - logged_samples)
                logged_at, logged_samples = time.monotonic(), self.counters.samples
            if "save" in wanted:
                self._save(self.options.folder)
                self._write_checkpoint()
            if "validate" in wanted:
                self._validate()
            for name in wanted:
                due.done(name)
        self.feed.wait()
        if self.counters.samples > logged_samples:
            self._report(time.monotonic() - logged_at, self.counters.samples - logged_samples)
        self._finish()

    def _has_all_steps(self) -> bool:
        return self.preset.steps is not None and self.counters.steps >= self.preset.steps

    def _plan_the_end(self, step_seconds: float) -> None:
        """On a CPU the end takes as long as a few steps: norms are measured, and pairs validated, forwards only."""
        if self.device.type == "cuda" or self.preset.minutes is None:
            return
        pixels = self.preset.stages[0].batch * self.preset.stages[0].height * self.preset.stages[0].width
        measured = BATCHES_ON_CPU * pixels if self.norms is not None else 0
        validated = self.validator.pixels if self.validator is not None else 0
        self.clock.reserve = max(self.clock.reserve, 2 + 0.5 * step_seconds * (measured + validated) / pixels)

    def _agree(self, due: _Due) -> tuple[list[str], bool]:
        """What is due, and whether the run is over; the same for every process."""
        over = self.stopping or self.clock.is_over(self.counters.steps)
        wanted = due.names()
        if self.replicas.count == 1:
            return wanted, over
        if self._has_all_steps():
            return [], True
        if self.counters.steps % self.options.agree_every:
            return [], False
        names = list(due.intervals)
        flags = [float(over), self.clock.progress(self.counters.steps), *(float(name in wanted) for name in names)]
        over_anywhere, self._agreed_progress, *asked = self.replicas.agree(flags, self.device)
        return [name for name, flag in zip(names, asked) if flag], bool(over_anywhere)

    def _progress(self) -> float:
        """Share of the run used up; by the clock what the processes last agreed on, or their rates would differ."""
        if self.replicas.count > 1 and not self.preset.steps:
            return self._agreed_progress
        return self.clock.progress(self.counters.steps)

    def _current_stage(self) -> Stage:
        """The stage the present progress falls into; short runs stay at the first.

        Each size is compiled and captured again, which a run of minutes cannot afford twice.
        """
        stages = self.preset.stages
        if self.preset.steps is None and (self.preset.minutes or 0) < MINUTES_PER_STAGE * len(stages):
            return stages[0]
        total, reached = sum(stage.share for stage in stages), 0.0
        for stage in stages:
            reached += stage.share / total
            if self._progress() < reached:
                return stage
        return stages[-1]

    def _enter_stage(self) -> None:
        stage = self._current_stage()
        if stage == self._stage:
            return
        self._stage = stage
        self.feed.wait()
        began = time.monotonic()
        batch = self.feed.example(*self._requests(stage)[0])
        mode = self.step.prepare(batch, self.options.fastest)
        seconds = time.monotonic() - began
        self.log.say(f"{stage.height}x{stage.width}, batch {stage.batch}: {mode} ready in {seconds:.0f} s")
        entry = {"height": stage.height, "width": stage.width, "mode": mode, "seconds": seconds}
        self.log.record("stage", self.counters.steps, entry)

    def _requests(self, stage: Stage) -> list[tuple[int, int, int, int]]:
        """This process's samples of the next step, one entry a micro-batch.

        The processes' and micro-batches' samples are neighbours: together a step sees the same ones however many do it.
        """
        parts = self.preset.accumulate
        count = stage.batch // (self.replicas.count * parts)
        # Whole steps of this batch, so that no sample repeats after another batch size.
        step = -(-self.counters.samples // stage.batch)
        own = range(step * parts, (step + 1) * parts)
        return [(self.lane.slot(number) * count, count, stage.height, stage.width) for number in own]

    def _one_step(self) -> None:
        self._enter_stage()
        assert self._stage is not None
        requests = self._requests(self._stage)
        progress = self._progress()
        schedule = self.preset.schedule
        if schedule.cooldown and progress > 1 - schedule.cooldown_fraction and not self._cooling:
            self._begin_cooldown()
        rate = learning_rate(schedule, self.counters.steps, progress, self.counters.restarted_at)
        count = requests[0][1]
        step_samples = count * len(requests) * self.replicas.count
        begin = requests[0][0] - self.replicas.rank * count * len(requests)
        upcoming = [request[0] for request in requests[1:]] + [requests[0][0] + step_samples]
        for number, (request, following) in enumerate(zip(requests, upcoming)):
            self.feed.train(
                request,
                following,
                rate,
                self.counters.average_steps,
                first=number == 0,
                last=number == len(requests) - 1,
            )
        self._rate = rate
        self.counters.steps += 1
        self.counters.average_steps += 1
        self.counters.samples = begin + step_samples

    def _begin_cooldown(self) -> None:
        """Keep the state at the peak rate: it is the one to continue from."""
        self._cooling = True
        if self.counters.steps:
            self._save(self.options.folder / BEFORE_COOLDOWN)

    def _report(self, seconds: float, samples: int) -> None:
        self.feed.wait()
        self.step.totals.copy_(self.replicas.mean(self.step.totals))
        values = {**self.step.read_totals(), **self.updater.read_statistics(), "rate": self._rate}
        values["silenced"] *= self.replicas.count
        self.feed.wait()  # the sums were cleared on another stream than the one that adds to them
        self.counters.silenced += int(values["silenced"])
        self.counters.skipped += int(values["skipped"])
        values["samples_per_second"] = samples / max(seconds, 1e-9)
        if self.device.type == "cuda":
            values["memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
            values["host_idle"], self.feed.idle = self.feed.idle / max(seconds, 1e-9), 0.0
        self.log.record("train", self.counters.steps, {**values, "samples": self.counters.samples})
        self.log.say(progress_line(self.counters.steps, self.clock.time_left(), values))

    def _validate(self, when: str = "") -> None:
        weights = self._weights_to_keep()
        if self.validator is None:
            return
        began = time.monotonic()
        try:
            with untuned_convolutions():
                self.latest_validation = self.validator.measure(weights)
        except InputError:
            raise
        except Exception as error:  # a training must not end because measuring it failed
            self.log.warn(f"validation failed and is left out from now on: {error}")
            self.validator = None
            return
        self.clock.reserve = max(self.clock.reserve, self._reserve() + time.monotonic() - began)
        self.log.record("validation", self.counters.steps, self.latest_validation)
        for group in sorted({name.rsplit("/", 1)[0] for name in self.latest_validation}):
            found = {name: self.latest_validation.get(f"{group}/{name}") for name in METRICS}
            figures = "  ".join(f"{n} {v:.2f}" for n, v in found.items() if v is not None)
            self.log.say(f"  {when + ', ' if when else ''}{group}: {figures}")

    def _save(self, folder: Path) -> None:
        self.feed.wait()
        if not self.replicas.is_first and not self.updater.sharded:
            return
        content = state_content(self.model, self.updater, self.counters, self.preset.to_dict())
        if self.replicas.is_first:
            write_state(folder, content)

    def _finish(self) -> None:
        """State first: it is the one thing that cannot be made again."""
        if not self.counters.steps:
            self.log.say("stopped before the first step: nothing was written")
            return
        folder = self.options.folder
        self._save(folder)
        self._write_checkpoint()
        self._validate("after training" if self.before else "")
        self._write_checkpoint()
        for name in sorted(self.before.keys() & self.latest_validation.keys()):
            if name.endswith(("all/epe", "all/bad2")):
                self.log.say(f"  {name}: {self.before[name]:.2f} before, {self.latest_validation[name]:.2f} after")
        self.log.say(f"{self.counters.steps} steps, {self.counters.samples} pairs; saved in {folder}")

    def _write_checkpoint(self) -> None:
        """The averaged weights as a checkpoint, with what is known about them."""
        weights = self._weights_to_keep()
        if self.config is None or not self.replicas.is_first:
            return
        card = make_card(self.preset, self.counters, self.before, self.latest_validation, self.options.data_license)
        checkpoint.save(weights, self.options.folder / CHECKPOINT_FILE, self.config, card, torch.float16)

    @contextmanager
    def _log_warnings(self) -> Iterator[None]:
        """Show what the step had to give up on."""
        log = self.log

        class Forward(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                log.warn(record.getMessage())

        handler = Forward(logging.WARNING)
        package = logging.getLogger("matchattention.training")
        package.addHandler(handler)
        try:
            yield
        finally:
            package.removeHandler(handler)
