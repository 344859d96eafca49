"""The first call on a new machine: the kernels that a pass launches, compiled side by side in processes.

Triton keeps what it compiles in a folder (TRITON_CACHE_DIR, by default ~/.triton/cache) where the next process finds
it. A pass is gone through once without launching anything of ours, to see which kernels it needs. Forks of this process
compile them: nothing has to be imported again, and none of them touches the GPU.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch

MOST_WORKERS = 16
PATIENCE_S = 60.0  # without a kernel that is done: what is missing is left to its launch

_met: set[tuple[int, str]] = set()  # by this process: a GPU's capability, and a kernel's signature
_one_looks = threading.Lock()  # at what is launched, at a time


def compile_ahead(run: Callable[[], object], capability: int) -> int:
    """Compile what a function launches, unless this process or an earlier one did.

    A failure is left to the launch itself, which compiles what is missing and says why it cannot.

    Args:
        run: its kernels are not launched here: what it computes with their results is thrown away.
        capability: of the GPU: 80, 86, 89, 90, 100, 120, …

    Returns:
        how many kernels were compiled.
    """
    try:
        found = kernels_of(run)
    except Exception:
        return 0
    new = {name: kernel for name, kernel in found.items() if (capability, name) not in _met}
    _met.update((capability, name) for name in new)
    if not new:
        return 0
    marker = _marker(sorted(new), capability)
    if marker.exists():
        return 0
    compiled = _compile_in_forks(list(new.values()), capability, Progress())
    if compiled == len(new):
        with contextlib.suppress(OSError):
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
    return compiled


def _compile_in_forks(kernels: list[Callable[[], Any]], capability: int, say: Callable[[int, int], object]) -> int:
    """How many of the kernels could be compiled: each worker takes the next one, and tells with a byte."""
    todo, more = os.pipe()
    told, tell = os.pipe()
    os.write(more, b"".join(index.to_bytes(2) for index in range(len(kernels))))
    os.close(more)
    workers: list[int] = []
    compiled = 0
    try:
        with warnings.catch_warnings():
            # About other threads, whose locks a fork may find taken: it only compiles, and nobody waits for it forever.
            warnings.simplefilter("ignore", DeprecationWarning)
            with contextlib.suppress(OSError):  # as many as the machine lets us have
                for _ in range(min(len(kernels), MOST_WORKERS, len(os.sched_getaffinity(0)))):
                    workers.append(os.fork())
                    if not workers[-1]:
                        _work(kernels, capability, todo, tell)
        os.close(tell)
        say(0, len(kernels))
        news = select.poll()
        news.register(told, select.POLLIN)
        while compiled < len(kernels) and news.poll(1e3 * PATIENCE_S):
            done = os.read(told, len(kernels))
            if not done:
                break  # every worker has ended
            compiled += len(done)
            say(compiled, len(kernels))
    finally:
        for worker in workers:
            with contextlib.suppress(OSError):
                os.kill(worker, signal.SIGKILL)
                os.waitpid(worker, 0)
        os.close(todo)
        os.close(told)
    return compiled


def _work(kernels: list[Callable[[], Any]], capability: int, todo: int, tell: int) -> NoReturn:
    """A worker: compile what nobody has taken yet. It leaves nothing to Python's end, which would reach for the GPU."""
    try:
        gc.disable()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with standing_in_for(capability):
            while index := os.read(todo, 2):
                with contextlib.suppress(Exception):
                    made = kernels[int.from_bytes(index)]()
                    _build_launcher(made)
                    os.write(tell, b".")
    finally:
        os._exit(0)


def _build_launcher(made: Any) -> None:
    """The C function that launches a kernel; without a GPU's driver there is nothing to link it with."""
    from triton.backends.nvidia.driver import CudaLauncher

    with contextlib.suppress(Exception):
        CudaLauncher(made.src, made.metadata)


class Progress:
    """One line on the standard error: redrawn on a terminal, else written at the beginning and at the end."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._last = -1

    def __call__(self, done: int, total: int) -> None:
        if done == self._last:
            return
        first, self._last = self._last < 0, done
        text = f"compiling GPU kernels, once on this machine: {done} of {total}"
        if sys.stderr.isatty():
            end = f", {time.monotonic() - self._begin:.0f} s\n" if done == total else ""
            sys.stderr.write(f"\r{text}{end}")
        elif first or done == total:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _marker(names: list[str], capability: int) -> Path:
    """A file in Triton's cache that stands for "all of these kernels are here"; it goes when the cache goes."""
    import triton
    from triton.runtime.cache import triton_key

    # Triton's own key takes a while: workers find it here.
    same = [names, capability, triton_key(), _sources()]
    digest = hashlib.sha256(json.dumps(same).encode()).hexdigest()[:32]
    return Path(triton.knobs.cache.dir) / f"matchattention-{digest}"


def _sources() -> str:
    """A digest of every kernel's source."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted([*(package / "runtime").rglob("*.py"), *(package / "ops").rglob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@contextlib.contextmanager
def standing_in_for(capability: int) -> Iterator[None]:
    """Triton compiles for a GPU of this capability (80, 86, 89, 90, 100, 120, …), which need not be here."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    class Absent:
        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", capability, 32)

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int | None = None) -> int:
            return 0

    before = driver._active  # its own reset looks for a GPU
    driver.set_active(Absent())  # type: ignore[arg-type]
    try:
        yield
    finally:
        driver._active = before


class _Like:
    """Stands for a tensor, whose memory is not kept."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype, self._apart = tensor.dtype, tensor.data_ptr() % 16

    def data_ptr(self) -> int:
        """As far from a multiple of 16 as the tensor's, which is all that Triton asks for."""
        return self._apart


def kernels_of(run: Callable[[], object]) -> dict[str, Callable[[], Any]]:
    """What a function would launch, on "meta" tensors or real ones: every signature, and what compiles it."""
    from triton.runtime.jit import JITFunction

    found: dict[str, Callable[[], Any]] = {}
    thread = threading.get_ident()

    def note(self: Any, *arguments: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        if threading.get_ident() != thread:
            return launch(self, *arguments, grid=grid, warmup=warmup, **named)
        like = [_Like(value) if isinstance(value, torch.Tensor) else value for value in arguments]
        found.setdefault(_signature(self, like, named), lambda: launch(self, *like, grid=grid, warmup=True, **named))
        return None

    with _one_looks:
        launch = JITFunction.run
        JITFunction.run = note  # type: ignore[method-assign]
        try:
            run()
        finally:
            JITFunction.run = launch  # type: ignore[method-assign]
    return found


def _signature(kernel: Any, arguments: list[Any], named: dict[str, Any]) -> str:
    """What Triton tells kernels apart by: types, what is 1 or divisible by 16, and constants."""
    given = {parameter.name: value for parameter, value in zip(kernel.params, arguments)} | named
    parameters = {parameter.name: parameter for parameter in kernel.params}
    parts = []
    for name, value in sorted(given.items()):
        parameter = parameters.get(name)
        if parameter is None or parameter.is_constexpr:  # options such as num_warps are no parameters
            parts.append(f"{name}={value}")
        elif isinstance(value, _Like):
            parts.append(f"{value.dtype}{value.data_ptr() == 0}")
        elif isinstance(value, bool) or not isinstance(value, int) or parameter.do_not_specialize:
            parts.append(type(value).__name__)
        else:
            parts.append("1" if value == 1 else f"int{value % 16 == 0}")
    return f"{kernel.__name__} {' '.join(parts)}"
