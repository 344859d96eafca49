"""Scenes drawn ahead in processes of their own.

Drawing is thousands of small operations under Python's lock: in threads it would take turns with the launches of
the renderer and the training. Workers are plain subprocesses with pipes rather than `multiprocessing`: the user's
script is not imported again, nothing is left in shared memory, and a closed pipe ends them however this process ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import queue
import subprocess
import sys
import threading
import weakref
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

import torch

from matchattention.errors import InputError
from matchattention.synth.stream.blocks import Block, DrawRequest, draw_block
from matchattention.synth.stream.draw_worker import Failed, receive, send

MOST_WORKERS = 5  # each draws about 400 scenes a second
PIPE_BYTES = 1 << 20  # fewer, longer reads; a reader takes Python's lock once for each
_COMMAND = "from matchattention.synth.stream.draw_worker import main; main()"  # -m would give its classes another name
_SOURCE_ROOT = Path(__file__).resolve().parents[3]

logger = logging.getLogger(__name__)


def default_workers(device: torch.device) -> int:
    """As many as a GPU may need and the machine has to spare; none where the CPU renders, which is slower anyway."""
    if device.type != "cuda":
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    trainings = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(min(MOST_WORKERS, (cores - 2) // trainings), 1)


class _Worker:
    """A drawing process, used by one thread at a time; without a process it draws in that thread."""

    def __init__(self) -> None:
        self._ended = False
        self._process: subprocess.Popen[bytes] | None = None
        paths = [str(_SOURCE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **own},
                start_new_session=True,  # signals meant for the training do not reach its helpers
            )
        except (OSError, ValueError, TypeError) as error:  # no processes left, or Python does not know its own file
            _warn(error)
        else:
            _widen(self._process.stdout)

    def draw(self, request: DrawRequest) -> Block:
        """The block asked for.

        Raises:
            InputError: the request cannot be drawn.
            RuntimeError: drawing failed.
        """
        answer: Block | Failed | None = None
        if self._process is not None and not self._ended:
            try:
                answer = self._ask(self._process, request)
            except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
                if not self._ended:
                    _warn(error)
                    self._stop()
        if self._ended:
            raise CancelledError
        if isinstance(answer, Failed):
            if answer.of_input:
                raise InputError(answer.text)
            raise RuntimeError(
                f"samples {request.first} to {request.last - 1} could not be drawn: {answer.text}\n{answer.details}"
            )
        return draw_block(request) if answer is None else answer

    @staticmethod
    def _ask(process: subprocess.Popen[bytes], request: DrawRequest) -> Block | Failed:
        assert process.stdin is not None
        assert process.stdout is not None
        send(process.stdin, request)
        answer = receive(process.stdout)
        if isinstance(answer, Failed):
            return answer
        data = torch.empty(answer.size, dtype=torch.uint8)
        if process.stdout.readinto(data.numpy().data) != answer.size:  # type: ignore[attr-defined]
            raise EOFError("it ended in the middle of a block")
        return Block(answer.plan, data)

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError, ValueError):
                    pipe.close()  # type: ignore[union-attr]

    def end(self) -> None:
        """End the process now; it holds nothing worth keeping."""
        self._ended = True
        self._stop()


def _widen(pipe: IO[bytes] | None) -> None:
    """Let the pipe hold more where the system allows it."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)  # type: ignore[arg-type]


def _warn(error: Exception) -> None:
    logger.warning("a process that draws scenes is missing (%s): a slower thread takes its place", error)


def _draw_with_any(idle: queue.SimpleQueue[_Worker], request: DrawRequest) -> Block:
    worker = idle.get()
    try:
        return worker.draw(request)
    finally:
        idle.put(worker)


def _end_all(threads: ThreadPoolExecutor, workers: list[_Worker]) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.end()


class DrawingPool:
    """Worker processes, each with a thread here that waits for its answers.

    The processes end with the pool: when nobody uses it any more, or when Python ends.

    Args:
        workers: processes.
    """

    def __init__(self, workers: int) -> None:
        crew = [_Worker() for _ in range(workers)]
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in crew:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(workers, "scenes")
        self._end = weakref.finalize(self, _end_all, self._threads, crew)

    def submit(self, request: DrawRequest) -> Future[Block]:
        """Begin drawing; requests are taken in the order they come."""
        # No reference to the pool: a thread must not be the one that lets go of it last.
        return self._threads.submit(_draw_with_any, self._idle, request)

    def close(self) -> None:
        """End the processes now."""
        self._end()


_pools: weakref.WeakValueDictionary[int, DrawingPool] = weakref.WeakValueDictionary()
_pools_lock = threading.Lock()


def shared_pool(workers: int) -> DrawingPool:
    """The pool of that many processes: streams of other sizes, stages or seeds use the same ones."""
    with _pools_lock:
        pool = _pools.get(workers)
        if pool is None:
            pool = _pools[workers] = DrawingPool(workers)
        return pool
