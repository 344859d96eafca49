"""The queue: one task at a time, progress by blocks, clean-ups after the work."""

from __future__ import annotations

import threading

import pytest
import torch

import matchattention as ma
from matchattention.app.worker import Cancelled, Progress, Worker
from matchattention.inference.block_progress import watching_blocks
from tests.inference.oracle import TINY


@pytest.fixture
def worker():
    worker = Worker()
    yield worker
    worker.stop()


def test_tasks_run_one_after_another_and_clean_ups_last(worker: Worker) -> None:
    gate = threading.Event()
    order: list[str] = []

    def first(progress: Progress) -> str:
        gate.wait(10)
        order.append("first")
        return "one"

    def second(progress: Progress) -> str:
        order.append("second")
        progress.at("working", 0.5)
        return "two"

    jobs = [worker.start(first), worker.start(second)]
    worker.afterwards(lambda: order.append("clean"))
    assert not jobs[1].future.running()
    assert "Waiting" in jobs[1].progress.stage
    gate.set()
    assert [job.future.result(10) for job in jobs] == ["one", "two"]
    assert (jobs[1].progress.stage, jobs[1].progress.fraction) == ("working", 0.5)
    worker.start(lambda progress: None).future.result(10)
    assert order == ["first", "second", "clean"]


def test_a_failure_reaches_the_page_and_leaves_the_worker_alive(worker: Worker) -> None:
    def fail(progress: Progress) -> None:
        raise ma.InputError("swapped")

    with pytest.raises(ma.InputError, match="swapped"):
        worker.start(fail).future.result(10)
    assert worker.start(lambda progress: 7).future.result(10) == 7


def test_a_job_stops_where_it_is_asked_to(worker: Worker) -> None:
    gate, reached = threading.Event(), []

    def long(progress: Progress) -> None:
        for step in range(100):
            gate.wait(10)
            progress.at(f"step {step}", step / 100)
            reached.append(step)

    running, waiting = worker.start(long), worker.start(long)
    running.cancel()
    waiting.cancel()
    gate.set()
    with pytest.raises(Cancelled):
        running.future.result(10)
    assert reached == []
    assert waiting.future.cancelled()
    assert "Stopping" in running.progress.stage
    assert worker.start(lambda progress: 7).future.result(10) == 7


def test_cancelling_ends_the_networks_forward_pass() -> None:
    network = ma.create_model(TINY).eval()
    progress, seen = Progress(), []
    image = torch.rand(1, 3, 64, 64) * 255
    watched = watching_blocks(network, lambda block, blocks: seen.append(block))
    with torch.inference_mode(), watched, progress.of_blocks(network, 0.0, 1.0):
        progress.cancel()
        with pytest.raises(Cancelled):
            network(image, image)
    assert seen == [1]


def test_progress_follows_the_networks_blocks_and_leaves_no_hooks() -> None:
    network = ma.create_model(TINY).eval()
    progress = Progress()
    seen: list[float] = []
    at = progress.at

    def record(stage: str, fraction: float) -> None:
        at(stage, fraction)
        seen.append(fraction)

    progress.at = record  # type: ignore[method-assign]
    image = torch.rand(1, 3, 64, 64) * 255
    with torch.inference_mode(), progress.of_blocks(network, 0.2, 0.8):
        network(image, image)
    assert seen == pytest.approx([0.35, 0.5, 0.65, 0.8])  # the tiny network has four blocks
    assert progress.stage == "Matching: block 4 of 4"
    with torch.inference_mode():
        network(image, image)
    assert len(seen) == 4
