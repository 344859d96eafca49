"""The training loop: stages, schedule, validation, saving, and an end that leaves everything usable."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from matchattention.models import checkpoint
from matchattention.models.config import NetworkConfig
from matchattention.training import compilation
from matchattention.training.batch_norms import BATCHES, BatchNorms
from matchattention.training.clock import RunClock
from matchattention.training.distributed import Replicas
from matchattention.training.eval_pairs import read_pairs
from matchattention.training.feed import Feed
from matchattention.training.log import TrainingLog, duration, progress_line
from matchattention.training.optimizer import Updater
from matchattention.training.parts import write_parts
from matchattention.training.recipe import Preset, Stage
from matchattention.training.schedule import learning_rate
from matchattention.training.sources import Source
from matchattention.training.state import STATE_FILE, Counters, export_compact, resume, save_state
from matchattention.training.step import Mode, TrainingStep
from matchattention.training.validation import METRICS, Validator, untuned_convolutions

CHECKPOINT_FILE = "model.safetensors"
BEFORE_COOLDOWN = "before-cooldown"
MINUTES_PER_STAGE = 10.0


@dataclass(frozen=True)
class RunOptions:
    """How one run of a preset is carried out; the preset says what is trained, and for how long.

    Attributes:
        folder: State, log and checkpoint of the run.
        resume: Folder of a run or an export to continue; None to begin.
        export: Folder for the files that travel: checkpoint and compact state in parts, caches, log.
        part_bytes: Largest size of a file there.
        cache: Folder of the compile caches.
        cache_bytes: Largest size of the exported caches.
        fastest: Fastest mode to try on a GPU.
        eval_pairs: Packed real pairs to validate on.
        log_seconds: Time between progress lines.
        save_seconds: Time between saved states.
        validate_seconds: Time between validations; None for the end only.
        reserve_seconds: Time kept for the end of a limited run.
    """

    folder: Path
    resume: Path | None = None
    export: Path | None = None
    part_bytes: int = 63 << 18
    cache: Path = Path("runs/cache")
    cache_bytes: int = 30 << 20
    fastest: Mode = "graph"
    eval_pairs: Path | None = None
    log_seconds: float = 10.0
    save_seconds: float = 180.0
    validate_seconds: float | None = 180.0
    reserve_seconds: float = 25.0


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


class Trainer:
    """Carries out one run of a preset.

    Args:
        preset: What is trained.
        options: How.
        model: The network, on its device, with the weights to begin with.
        config: The network's config, for its checkpoint.
        source: Training pairs.
        held_out: Pairs of another seed, for validation; None for none.
        replicas: This process among others.
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
    ) -> None:
        self.preset, self.options = preset, options
        self.model, self.config = model, config
        self.replicas = replicas or Replicas()
        self.stopping = False
        self.device = next(model.parameters()).device
        self.log = TrainingLog(options.folder, self.replicas.is_first)
        self.clock = RunClock(preset.minutes, preset.steps, self._reserve())
        self.validator = self._make_validator(held_out)
        self.norms = self._put_norms_in(source) if preset.batch_norm else None
        self.replicas.share((*model.parameters(), *model.buffers()))
        self.updater = Updater(model, preset.optimizer)
        self.counters = Counters()
        if options.resume is not None:
            self.counters = resume(options.resume, model, self.updater)
            self.log.say(f"continuing {options.resume} at step {self.counters.steps}")
        on_gpu = self.device.type == "cuda"
        masked = config is None or config.occlusion_loss
        self.step = TrainingStep(
            model,
            self.updater,
            preset.loss if masked else replace(preset.loss, mask_occlusions=False),
            mixed_precision=preset.mixed_precision and on_gpu,
            replicas=self.replicas,
        )
        self.feed = Feed(source, self.step)
        self.latest_validation: dict[str, float] = {}
        self._stage: Stage | None = None
        self._cooling = False
        self._cache_writer: threading.Thread | None = None

    def _reserve(self) -> float:
        """Short runs keep a tenth of their time rather than all of it."""
        limit = self.preset.minutes
        return self.options.reserve_seconds if limit is None else min(self.options.reserve_seconds, limit * 6)

    def _make_validator(self, held_out: Source | None) -> Validator | None:
        if not self.replicas.is_first:
            return None
        rendered = []
        if held_out is not None and self.preset.validation_pairs:
            height, width = self.preset.validation_size
            rendered = [
                held_out.batch(first, min(4, self.preset.validation_pairs - first), height, width)
                for first in range(0, self.preset.validation_pairs, 4)
            ]
        real = read_pairs(self.options.eval_pairs) if self.options.eval_pairs is not None else []
        if not rendered and not real:
            return None
        mixed_precision = self.preset.mixed_precision and self.device.type == "cuda"
        first = self.preset.stages[0]
        return Validator(self.model, rendered, real, mixed_precision, (first.height, first.width))

    def _put_norms_in(self, source: Source) -> BatchNorms:
        """Before the optimizer is made, which trains their scales and shifts."""
        first = self.preset.stages[0]
        batches = [
            source.batch(number * first.batch, first.batch, first.height, first.width) for number in range(BATCHES)
        ]
        mixed_precision = self.preset.mixed_precision and self.device.type == "cuda"
        if self.device.type == "cuda":
            torch.cuda.synchronize()  # training draws its batches on another stream
        return BatchNorms(self.model, batches, mixed_precision, trained=self.preset.start is not None)

    def _weights_to_keep(self) -> dict[str, torch.Tensor]:
        """The averaged weights of the plain network."""
        self.feed.wait()
        weights = {**self.model.state_dict(), **self.updater.averaged()}
        return weights if self.norms is None else self.norms.folded(weights)

    def run(self) -> Counters:
        """Train until the limit or a signal, then validate, save and export; returns how far it came."""
        with _termination(self), self._log_warnings():
            try:
                self._train()
            except BaseException:
                # Whatever happened, minutes of training are worth an attempt to keep them.
                if self.counters.steps:
                    with suppress(Exception):
                        self._save(self.options.folder / STATE_FILE)
                raise
            finally:
                self.log.record("end", self.counters.steps, {"seconds": self.counters.seconds})
        self.log.close()
        return self.counters

    def _train(self) -> None:
        began = time.monotonic()
        self._enter_stage()
        self.clock.begin()
        now = time.monotonic()
        self.log.say(f"ready after {duration(now - began)}, mode {self.step.mode}")
        logged_at, logged_samples, saved_at, validated_at, counted_at = now, self.counters.samples, now, now, now
        while not self._over():
            self._one_step()
            now = time.monotonic()
            self.counters.seconds += now - counted_at
            counted_at = now
            if now - logged_at >= self.options.log_seconds:
                self._report(now - logged_at, self.counters.samples - logged_samples)
                logged_at, logged_samples = time.monotonic(), self.counters.samples
            if now - saved_at >= self.options.save_seconds and self.replicas.is_first:
                self._save(self.options.folder / STATE_FILE)
                self._write_checkpoint()  # what travels must be there before the machine may be gone
                saved_at = time.monotonic()
            interval = self.options.validate_seconds
            if interval is not None and now - validated_at >= interval:
                self._validate()
                validated_at = time.monotonic()
        self.feed.wait()
        if self.counters.samples > logged_samples:
            self._report(time.monotonic() - logged_at, self.counters.samples - logged_samples)
        self._finish()

    def _over(self) -> bool:
        over = self.stopping or self.clock.is_over(self.counters.steps)
        if self.replicas.count == 1:
            return over
        if self.preset.steps is not None and self.counters.steps >= self.preset.steps:
            return True
        # Clocks and signals differ between processes; agreeing costs a synchronisation, so not every step.
        return self.counters.steps % 10 == 0 and self.replicas.any(over, self.device)

    def _progress(self) -> float:
        return self.clock.progress(self.counters.steps)

    def _current_stage(self) -> Stage:
        """The stage the present progress falls into; short runs stay at the first.

        Each size is compiled and captured anew, which a run of minutes cannot afford twice.
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
        batch = self.feed.example(*self._request(stage))
        mode = self.step.prepare(batch, self.options.fastest)
        seconds = time.monotonic() - began
        self.log.say(f"{stage.height}x{stage.width}, batch {stage.batch}: {mode} ready in {seconds:.0f} s")
        entry = {"height": stage.height, "width": stage.width, "mode": mode, "seconds": seconds}
        self.log.record("stage", self.counters.steps, entry)
        if mode != "eager" and self.options.export is not None and self.replicas.is_first:
            self._export_caches(self.options.export)

    def _request(self, stage: Stage) -> tuple[int, int, int, int]:
        """This process's samples of the next batch."""
        count = max(stage.batch // self.replicas.count, 1)
        # A multiple of the count per process keeps mixed sources from repeating samples.
        batches = -(-self.counters.samples // count)
        return (batches + self.replicas.rank) * count, count, stage.height, stage.width

    def _one_step(self) -> None:
        self._enter_stage()
        assert self._stage is not None
        request = self._request(self._stage)
        progress = self._progress()
        schedule = self.preset.schedule
        if schedule.cooldown and progress > 1 - schedule.cooldown_fraction and not self._cooling:
            self._begin_cooldown()
        rate = learning_rate(schedule, self.counters.steps, progress, self.counters.restarted_at)
        upcoming = request[0] + request[1] * self.replicas.count
        self.feed.train(request, upcoming, rate, self.counters.average_steps)
        self._rate = rate
        self.counters.steps += 1
        self.counters.average_steps += 1
        self.counters.samples = upcoming - self.replicas.rank * request[1]

    def _begin_cooldown(self) -> None:
        """Keep the state at the peak rate: it is the one to continue from."""
        self._cooling = True
        if self.replicas.is_first and self.counters.steps:
            self.feed.wait()
            self._save(self.options.folder / BEFORE_COOLDOWN / STATE_FILE)
            self._export_state()

    def _report(self, seconds: float, samples: int) -> None:
        self.feed.wait()
        values = {**self.step.read_totals(), **self.updater.read_statistics(), "rate": self._rate}
        self.feed.wait()  # the sums were cleared on another stream than the one that adds to them
        self.counters.silenced += int(values["silenced"])
        self.counters.skipped += int(values["skipped"])
        values["samples_per_second"] = samples / max(seconds, 1e-9)
        if self.device.type == "cuda":
            values["memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
        self.log.record("train", self.counters.steps, {**values, "samples": self.counters.samples})
        self.log.say(progress_line(self.counters.steps, self.clock.time_left(), values))

    def _validate(self) -> None:
        if self.validator is None:
            return
        self.feed.wait()
        began = time.monotonic()
        try:
            with untuned_convolutions():
                self.latest_validation = self.validator.measure(self._weights_to_keep())
        except Exception as error:  # a training must not end because measuring it failed
            self.log.warn(f"validation failed and is left out from now on: {error}")
            self.validator = None
            return
        self.clock.reserve = self._reserve() + time.monotonic() - began
        self.log.record("validation", self.counters.steps, self.latest_validation)
        groups = sorted({name.split("/")[0] for name in self.latest_validation})
        for group in groups:
            found = {name: self.latest_validation.get(f"{group}/{name}") for name in METRICS}
            self.log.say(f"  {group}: " + "  ".join(f"{n} {v:.2f}" for n, v in found.items() if v is not None))

    def _save(self, path: Path) -> None:
        self.feed.wait()
        save_state(path, self.model, self.updater, self.counters, self.preset.to_dict())

    def _finish(self) -> None:
        """State first: it is the one thing that cannot be made again."""
        if not self.replicas.is_first:
            return
        folder = self.options.folder
        self._save(folder / STATE_FILE)
        self._write_checkpoint()
        if not self._cooling:
            self._export_state()
        self._validate()
        self._write_checkpoint()
        if self.options.export is not None:
            (self.options.export / "log.jsonl").write_bytes((folder / "log.jsonl").read_bytes())
        if self._cache_writer is not None:
            self._cache_writer.join(timeout=max(self.clock.time_left() or 0.0, 0.0) + self._reserve())
        self.log.say(f"{self.counters.steps} steps, {self.counters.samples} pairs; saved in {folder}")

    def _write_checkpoint(self) -> None:
        """The averaged weights as a checkpoint, with what is known about them."""
        if self.config is None:
            return
        metadata = {
            "license": "Apache-2.0",
            "recipe": self.preset.to_dict(),
            "steps": self.counters.steps,
            "pairs": self.counters.samples,
            "training_seconds": round(self.counters.seconds),
            "validation": self.latest_validation,
        }
        path = self.options.folder / CHECKPOINT_FILE
        checkpoint.save(self._weights_to_keep(), path, self.config, metadata, torch.float16)
        if self.options.export is not None:
            write_parts(path.read_bytes(), self.options.export / CHECKPOINT_FILE, self.options.part_bytes)

    def _export_state(self) -> None:
        if self.options.export is not None:
            export_compact(
                self.options.export, self.model, self.updater, replace(self.counters), self.options.part_bytes
            )

    def _export_caches(self, folder: Path) -> None:
        """Compressing takes seconds of a core, not of the GPU."""

        def write() -> None:
            with suppress(Exception):  # the caches can be made again, the training cannot
                compilation.save_caches(self.options.cache, folder, self.options.part_bytes, self.options.cache_bytes)

        self._cache_writer = threading.Thread(target=write, daemon=True)
        self._cache_writer.start()

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
