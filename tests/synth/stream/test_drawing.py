"""Scenes drawn in other processes: the same ones, in order, and nothing left behind."""

import gc
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from matchattention.errors import InputError
from matchattention.synth.stream import drawing, scene_stream
from matchattention.synth.stream.blocks import Block, DrawRequest, draw_block, pack
from matchattention.synth.stream.drawing import DrawingPool, default_workers
from matchattention.synth.stream.scene_stream import SceneStream
from matchattention.synth.world.config import PRESETS
from matchattention.synth.world.scene import draw_scenes

SMALL = replace(PRESETS["small"], photos=0.0)
SIZE = (8, 12)
ROOT = Path(__file__).resolve().parents[3]
LINUX = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks for processes in /proc")


def leaves(scene):
    if isinstance(scene, torch.Tensor):
        yield scene
    elif hasattr(scene, "_fields"):
        for field in scene:
            yield from leaves(field)


def request(first, last, **changes):
    return DrawRequest(replace(SMALL, **changes), 4, first, last, SIZE, 0)


def drawing_processes(parent):
    """Processes that draw for ``parent``; a parent that is gone has passed them on, so command lines decide."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if b"draw_worker" in command and f"DRAWS_FOR={parent}".encode() in environment:
            found.append(int(folder.name))
    return found


def wait_until_gone(parent, seconds=60):
    end = time.monotonic() + seconds
    while drawing_processes(parent) and time.monotonic() < end:
        time.sleep(0.1)
    return drawing_processes(parent)


@pytest.fixture(scope="module")
def pool():
    pool = DrawingPool(2)
    yield pool
    pool.close()


@pytest.mark.parametrize("preset", ["small", "flow"])
def test_packing_keeps_every_tensor(preset):
    scenes = draw_scenes(replace(PRESETS[preset], photos=0.0), 1, range(3), SIZE)
    block = pack(scenes)
    again = block.scenes()
    assert again.primitives.slots == scenes.primitives.slots
    assert (again.second is None) == (preset == "small")
    compared = list(zip(leaves(scenes), leaves(again), strict=True))
    for a, b in compared:
        assert a.dtype == b.dtype
        assert torch.equal(a.nan_to_num(7), b.nan_to_num(7))
        assert b.data_ptr() % 4 == 0
    assert len(compared) > 20
    assert block.upload(torch.device("cpu")).data.data_ptr() == block.data.data_ptr()


def test_processes_draw_the_same_scenes(pool):
    asked = [request(first, first + 4) for first in (0, 4, 8)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for future, one in zip([pool.submit(one) for one in asked], asked):
            here = draw_block(one)
            there = future.result(timeout=120)
            assert isinstance(there, Block)
            for a, b in zip(leaves(there.scenes()), leaves(here.scenes()), strict=True):
                assert torch.equal(a.nan_to_num(7), b.nan_to_num(7))
    finally:
        torch.set_num_threads(threads)


def test_what_goes_wrong_in_a_process_is_told(pool):
    with pytest.raises(InputError, match="choose among"):
        pool.submit(request(0, 2, layouts={"moon": 1.0})).result(timeout=120)
    with pytest.raises(RuntimeError, match="samples 6 to 7 could not be drawn: KeyError: 'card'"):
        pool.submit(request(6, 8, capacity={})).result(timeout=120)
    assert pool.submit(request(0, 2)).result(timeout=120).scenes().lens.shape == (2, 3)


@pytest.fixture
def only_scenes(monkeypatch):
    """Streams hand out the scenes they would render: a CPU takes seconds for a picture."""
    monkeypatch.setattr(scene_stream, "render", lambda scenes, *others: scenes)
    monkeypatch.setattr(SceneStream, "_photograph", lambda self, scenes, first: (scenes.lens, scenes.material))


def test_stream_with_workers_gives_the_same_and_resumes(pool, monkeypatch, only_scenes):
    monkeypatch.setattr(scene_stream, "shared_pool", lambda workers: pool)
    monkeypatch.setattr(scene_stream, "Batch", lambda *columns: columns)
    monkeypatch.setattr(scene_stream, "DRAW_AT_ONCE", 4)
    monkeypatch.setattr(scene_stream, "RENDER_AT_ONCE", 2)
    ahead = SceneStream(SMALL, SIZE, 3, 4, "cpu", workers=2)
    batches = [ahead.next() for _ in range(4)]
    assert ahead.state == 12
    direct = SceneStream(SMALL, SIZE, 3, 4, "cpu")
    for batch in batches:
        for a, b in zip(batch, direct.next(), strict=True):
            assert a.shape[0] == 3
            assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)
    resumed = SceneStream(SMALL, SIZE, 3, 4, "cpu", index=6, workers=2).next()
    ahead.state = 0
    for expected, got in ((batches[2], resumed), (batches[0], ahead.next())):
        for a, b in zip(expected, got, strict=True):
            assert torch.equal(a, b)


def test_a_missing_process_is_replaced_by_a_thread(monkeypatch, caplog):
    monkeypatch.setattr(drawing.sys, "executable", str(ROOT / "no-such-python"))
    pool = DrawingPool(1)
    try:
        assert "slower thread" in caplog.text
        assert pool.submit(request(0, 2)).result(timeout=60).scenes().lens.shape == (2, 3)
    finally:
        pool.close()


@LINUX
def test_a_killed_process_is_replaced_and_none_is_left(monkeypatch, caplog):
    monkeypatch.setenv("DRAWS_FOR", f"test-{os.getpid()}")
    pool = DrawingPool(1)
    assert pool.submit(request(0, 1)).result(timeout=120)
    (process,) = drawing_processes(f"test-{os.getpid()}")
    os.kill(process, signal.SIGKILL)
    assert pool.submit(request(0, 2)).result(timeout=60).scenes().lens.shape == (2, 3)
    assert "slower thread" in caplog.text
    del pool
    gc.collect()
    assert drawing_processes(f"test-{os.getpid()}") == []


@LINUX
def test_pool_ends_with_its_last_stream(monkeypatch, only_scenes):
    monkeypatch.setenv("DRAWS_FOR", f"shared-{os.getpid()}")
    monkeypatch.setattr(scene_stream, "DRAW_AT_ONCE", 32)
    streams = [SceneStream(SMALL, size, 1, 4, "cpu", workers=1) for size in (SIZE, (16, 8))]
    for one in streams:
        one.next()
    assert len(drawing_processes(f"shared-{os.getpid()}")) == 1
    del streams, one
    gc.collect()
    assert drawing_processes(f"shared-{os.getpid()}") == []


SCRIPT = """
import sys, time
from matchattention.synth.stream import scene_stream
from matchattention.synth.world.config import PRESETS
scene_stream.DRAW_AT_ONCE = 32
made = scene_stream.SceneStream(PRESETS["small"], (8, 12), 1, 4, "cpu", workers=2)
made._scenes(range(1))
print("ready", flush=True)
{end}
"""


@LINUX
@pytest.mark.parametrize(
    ("end", "code"),
    [("raise SystemExit(3)", 3), ("raise ValueError('as meant')", 1), ("time.sleep(600)", -signal.SIGTERM)],
    ids=["exit", "exception", "SIGTERM"],
)
def test_no_process_outlives_a_script(end, code):
    """The script has no main guard: processes that import it again would start others without end."""
    name = f"script-{os.getpid()}-{code}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DRAWS_FOR": name, "OMP_NUM_THREADS": "1"}
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(end=end)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )
    assert script.stdout is not None
    assert script.stdout.readline() == "ready\n"
    if code < 0:
        assert len(drawing_processes(name)) == 2
        script.terminate()
    _, errors = script.communicate(timeout=120)
    assert script.returncode == code
    assert "draw_worker" not in errors
    assert wait_until_gone(name) == []


def test_as_many_workers_as_the_machine_can_spare(monkeypatch):
    monkeypatch.setattr(drawing.os, "sched_getaffinity", lambda process: range(16), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert default_workers(torch.device("cuda")) == drawing.MOST_WORKERS
    assert default_workers(torch.device("cpu")) == 0
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert default_workers(torch.device("cuda")) == 1
