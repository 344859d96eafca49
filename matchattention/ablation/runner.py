"""Carries out an ablation: which trainings are missing, a few at a time, each result written when it is there."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch

from matchattention.ablation.budget import Budget
from matchattention.ablation.held_out import HeldOut
from matchattention.ablation.pool import PairPool, ShuffledPool, render_pool
from matchattention.ablation.results import Results
from matchattention.ablation.rows import Row, Say
from matchattention.ablation.training import ShortTraining
from matchattention.data.provenance import describe_environment
from matchattention.errors import InputError, first_line
from matchattention.models.registry import create_model
from matchattention.training.clock import process_age
from matchattention.training.real_pairs import RealPair
from matchattention.training.step import Mode
from matchattention.training.validation import Validator, untuned_convolutions

POOL_SEED = 1
MOST_FAILURES = 2  # of one training
_DIGITS = 6


class Job(NamedTuple):
    """One training."""

    row: Row
    seed: int


Turns = list[tuple[Job, ShortTraining]]


@dataclass(frozen=True)
class Options:
    """How an ablation is carried out; its budget says what is done.

    Attributes:
        output: The results file.
        at_once: Trainings that take turns on one GPU.
        mode: Fastest way of running a step to try on a GPU.
        time_limit: Seconds after which the process must have ended; None for none.
        pool_folder: Keeps rendered pairs for later processes; None for memory alone.
    """

    output: Path
    at_once: int = 1
    mode: Mode = "capture"
    time_limit: float | None = None
    pool_folder: Path | None = None


def missing_jobs(rows: Sequence[Row], seeds: Sequence[int], results: Results) -> list[Job]:
    """Trainings to do, in the order that leaves most to compare whenever it ends.

    Rows of the same scenes go seed by seed, all of them from one pool. Rows with scenes of their own come after those,
    row by row, because each needs a pool of its own. What has failed twice is not tried a third time.
    """
    failures = Counter((entry["row"], entry["seed"]) for entry in results.data["failures"])
    done = results.done() | {job for job, times in failures.items() if times >= MOST_FAILURES}
    shared = [row for row in rows if not row.scenes]
    own = [row for row in rows if row.scenes]
    jobs = [Job(row, seed) for seed in seeds for row in shared]
    jobs += [Job(row, seed) for row in own for seed in seeds]
    return [job for job in jobs if (job.row.name, job.seed) not in done]


class Runner:
    """Trains and measures job after job.

    Args:
        budget: Of every training.
        options: How.
        results: Taken from earlier runs, added to here.
        real: Real pairs to measure on, too.
        device: Where.
        say: Takes lines of progress.
    """

    def __init__(
        self,
        budget: Budget,
        options: Options,
        results: Results,
        real: Sequence[RealPair],
        device: torch.device,
        say: Say = print,
    ) -> None:
        if options.at_once < 1:
            raise InputError("--at-once is at least 1.")
        if options.at_once > 1 and budget.minutes is not None:
            raise InputError(
                "Trainings side by side share the time: give --pairs instead of --minutes, or --at-once 1."
            )
        self.budget, self.options, self.results = budget, options, results
        self.real, self.device, self.say = list(real), device, say
        self._held_out: HeldOut | None = None
        self._pool: tuple[Any, PairPool] | None = None
        self._slowest = 0.0  # seconds of a group of trainings so far

    def run(self, jobs: Sequence[Job]) -> bool:
        """Do the jobs as far as the time goes; returns whether it sufficed, also where one failed."""
        for _, same_scenes in groupby(jobs, key=lambda job: job.row.scenes):
            waiting = list(same_scenes)
            while waiting:
                group, waiting = waiting[: self.options.at_once], waiting[self.options.at_once :]
                if self._left() < self._slowest:
                    self.say(f"{self._left():.0f} s are left, too few for another training; run it again to go on")
                    return False
                began = time.monotonic()
                in_time = self._train(group)
                gc.collect()
                if self.device.type == "cuda":
                    torch.cuda.empty_cache()  # the captured graphs of this group had memory of their own
                if not in_time:
                    return False
                self._slowest = max(self._slowest, time.monotonic() - began)
        return True

    def _left(self) -> float:
        limit = self.options.time_limit
        return float("inf") if limit is None else limit - process_age()

    def _train(self, group: list[Job]) -> bool:
        """Train a group taking turns, measure each and write it down; returns whether the time sufficed."""
        pool = self._pool_of(group[0].row)
        held_out = self._measure_on()
        trainings: list[tuple[Job, ShortTraining]] = []
        for job in group:
            try:
                config = job.row.network_config(self.budget.network())
                source = ShuffledPool(pool, job.seed)
                training = ShortTraining(config, source, self.budget, job.seed, self.device, self.options.mode)
                trainings.append((job, training))
            except Exception as error:  # the other rows are still worth their minutes
                self._failed(job, error)
        finished = self._take_turns(trainings)
        if finished is None:
            return False
        for job, training in finished:
            try:
                self._record(job, training, held_out)
            except Exception as error:
                self._failed(job, error)
        return True

    def _take_turns(self, trainings: Turns) -> Turns | None:
        """A step of each until all are over; those that did not fail, or None when the time ran out."""
        unfinished = trainings
        finished: Turns = []
        while unfinished:
            if self._left() < 0:
                self.say(f"time is up: {', '.join(job.row.name for job, _ in unfinished)} not finished")
                return None
            going_on: Turns = []
            for job, training in unfinished:
                try:
                    training.one_step()
                except Exception as error:
                    self._failed(job, error)
                    continue
                (finished if training.over else going_on).append((job, training))
            unfinished = going_on
        return finished

    def _pool_of(self, row: Row) -> PairPool:
        if self._pool is None or self._pool[0] != row.scenes:
            self._pool = None  # before the next one needs the memory
            began = time.monotonic()
            scenes = row.scene_config(self.budget.scene_config())
            pool = render_pool(
                scenes, self.budget.size, self.budget.pool, POOL_SEED, self.device, self.options.pool_folder
            )
            self._pool = (row.scenes, pool)
            words = f" ({row.words})" if row.scenes else ""
            self.say(f"{pool.pairs} pairs to train on{words} after {time.monotonic() - began:.0f} s")
        return self._pool[1]

    def _measure_on(self) -> HeldOut:
        if self._held_out is None:
            began = time.monotonic()
            scenes, budget = self.budget.scene_config(), self.budget
            self._held_out = HeldOut(scenes, budget.size, budget.held_out, self.device, self.options.pool_folder)
            count = sum(pool.pairs for pool in self._held_out.kinds.values())
            self.say(f"{count} pairs to measure on after {time.monotonic() - began:.0f} s")
        return self._held_out

    def _record(self, job: Job, training: ShortTraining, held_out: HeldOut) -> None:
        seconds = training.seconds()
        weights = training.weights()
        plain = create_model(training.config).to(self.device).eval()
        plain.load_state_dict(weights)
        on_gpu = self.device.type == "cuda"
        with untuned_convolutions():
            measured = held_out.measure(plain, on_gpu)
            real = Validator(plain, [], self.real, on_gpu, self.budget.size).measure(weights) if self.real else {}
        run = {
            "row": job.row.name,
            "seed": job.seed,
            "pairs": training.pairs,
            "steps": training.steps,
            "seconds": round(seconds, 2),
            "ready_seconds": round(training.ready_seconds, 2),
            "at_once": self.options.at_once,
            "mode": training.mode,
            "measures": _rounded(measured.means),
            "real": _rounded(real),
            "by_pair": measured.by_pair,
            "curve": [[pairs, round(loss, 4)] for pairs, loss in training.curve],
            "environment": describe_environment(str(self.device)),
        }
        self.results.data["runs"].append(run)
        self.results.write(self.options.output)
        shown = {mask: measured.means[f"rendered/{mask}/bad1"] for mask in ("all", "visible", "occluded")}
        figures = ", ".join(f"{mask} {value:.2f}" for mask, value in shown.items())
        self.say(f"{job.row.name} seed {job.seed}: {training.pairs} pairs in {seconds:.0f} s; bad 1 {figures}")

    def _failed(self, job: Job, error: Exception) -> None:
        self.say(f"{job.row.name} seed {job.seed} failed: {first_line(error)}")
        self.results.data["failures"].append(
            {
                "row": job.row.name,
                "seed": job.seed,
                "failed": first_line(error),
                "environment": describe_environment(str(self.device)),
            }
        )
        self.results.write(self.options.output)


def _rounded(values: dict[str, float]) -> dict[str, float]:
    """Six digits; what could not be measured is left out."""
    return {name: float(f"{value:.{_DIGITS}g}") for name, value in values.items() if value == value}
