"""A closed page leaves nothing behind, and takes nothing away from work that is under way."""

from __future__ import annotations

import asyncio
import threading

import pytest

import matchattention as ma
from matchattention.app.session import Sessions
from matchattention.app.uploads import Limits, Photo
from matchattention.app.worker import Progress, Worker
from matchattention.inference.predictor import Predictor
from tests.inference.oracle import TINY

pytest.importorskip("nicegui", reason="the page needs the extra 'app'")

from matchattention.app.page import Page


@pytest.fixture
def worker():
    worker = Worker()
    yield worker
    worker.stop()


def test_files_go_when_the_work_on_them_has_ended(worker: Worker) -> None:
    sessions = Sessions()
    page = Page(Predictor(ma.create_model(TINY), "cpu"), "tiny", sessions, worker, Limits())
    session = page._session
    photo = session.new_path("left", "mine.png")
    photo.write_bytes(b"pixels")
    gate = threading.Event()

    def slow(progress: Progress) -> bytes:
        gate.wait(10)
        return photo.read_bytes()

    running, waiting = worker.start(slow), worker.start(slow)
    page._job = waiting  # type: ignore[assignment]
    page._leave()
    assert sessions.get(session.token) is None
    assert waiting.future.cancelled()
    gate.set()
    assert running.future.result(10) == b"pixels"
    worker.start(lambda progress: None).future.result(10)
    assert not session.folder.exists()


def test_an_example_replaces_an_uploaded_photo_on_disk_too(worker: Worker, monkeypatch) -> None:
    page = Page(Predictor(ma.create_model(TINY), "cpu"), "tiny", Sessions(), worker, Limits())
    path = page._session.new_path("left", "mine.png")
    path.write_bytes(b"pixels")
    page._session.put("left", Photo(path, "mine.png", 64, 48, ""))

    async def nothing() -> None:
        pass

    monkeypatch.setattr(page, "_run", nothing)
    asyncio.run(page._run_example("donkey"))
    worker.start(lambda progress: None).future.result(10)
    assert not path.exists()
    asyncio.run(page._run_example("workbench"))  # whose files are not ours to delete
    worker.start(lambda progress: None).future.result(10)
    asyncio.run(page._run_example("donkey"))
