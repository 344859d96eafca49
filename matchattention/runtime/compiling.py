"""The first call on a new machine: a fused network's kernels, compiled side by side in processes.

Triton keeps what it compiles in a folder (TRITON_CACHE_DIR, by default ~/.triton/cache) where the next process finds
it. A worker has the whole network without its numbers (on PyTorch's "meta" device), goes through one pass, and compiles
its share of the kernels that it would launch: it needs no GPU.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from matchattention.models.config import NetworkConfig

MOST_WORKERS = 16
PATIENCE_S = 600.0
# This very package, before another that is installed but behind Python's own modules; and no file of the folder that
# somebody works in is taken for one of those (-P).
_WORKER = """
import sys
sys.path.insert(sum("-packages" not in path for path in sys.path), sys.argv[1])
from matchattention.runtime.compiling import main
main()
"""


def compile_network(config: NetworkConfig, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device) -> None:
    """Compile what a pass of a `FusedNetwork` launches, unless an earlier process did.

    A failure is left to the launch itself, which compiles what is missing and says why it cannot.

    Args:
        config: the network's.
        dtype: of its features.
        shape: (B, 3, H, W) of an image; other sizes need few kernels more.
        device: the GPU.
    """
    major, minor = torch.cuda.get_device_capability(device)
    job = {
        "config": config.to_dict(),
        "dtype": str(dtype).removeprefix("torch."),
        "shape": list(shape),
        "capability": 10 * major + minor,
    }
    compile_job(job, min(MOST_WORKERS, os.cpu_count() or 1), Progress())


def compile_job(job: dict[str, Any], workers: int, say: Callable[[int, int], object]) -> int:
    """Run the workers of one job and wait for them; how many kernels there are, 0 where a marker says all is done."""
    marker = _marker(job)
    if marker.exists():
        return 0
    commands = [worker_command({**job, "workers": workers, "worker": index}) for index in range(workers)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "0"}
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
        for command in commands
    ]
    total = 0
    try:
        total = _follow(started, say)
    finally:
        for process in started:
            process.kill()
            process.wait()
    if total and all(process.returncode == 0 for process in started):
        with contextlib.suppress(OSError):
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.write_text(json.dumps(job))
    return total


def worker_command(job: dict[str, Any]) -> list[str]:
    """What starts a worker."""
    package = Path(__file__).resolve().parents[1]
    return [sys.executable, "-P", "-c", _WORKER, str(package.parent), json.dumps(job)]


def _follow(processes: list[subprocess.Popen[str]], say: Callable[[int, int], object]) -> int:
    """Count the lines that workers print, one for each kernel, after a first one with the number of all."""
    import selectors

    total, done, open_pipes = 0, 0, len(processes)
    begin = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for process in processes:
            assert process.stdout is not None
            selector.register(process.stdout, selectors.EVENT_READ)
        while open_pipes and time.monotonic() - begin < PATIENCE_S:
            for key, _ in selector.select(1.0):
                line = key.fileobj.readline()  # type: ignore[union-attr]
                if not line:
                    selector.unregister(key.fileobj)
                    open_pipes -= 1
                elif line.startswith("kernels "):
                    total = int(line.split()[1])
                else:
                    done += 1
                if total:
                    say(done, total)
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
    return total


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


def _marker(job: dict[str, Any]) -> Path:
    """A file in Triton's cache that stands for "all kernels of this job are here"; it goes when the cache goes."""
    import triton

    from matchattention import __version__

    same = {**job, "shape": None, "triton": triton.__version__, "version": __version__, "sources": _sources()}
    digest = hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:32]
    return Path(triton.knobs.cache.dir) / f"matchattention-{digest}.json"


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


def kernels_of(run: Callable[[], object]) -> dict[str, Callable[[], Any]]:
    """What a function on "meta" tensors would launch: every kernel's signature, and a function that compiles it."""
    from triton.runtime.jit import JITFunction

    found: dict[str, Callable[[], Any]] = {}
    launch = JITFunction.run

    def note(self: Any, *arguments: Any, grid: Any, warmup: bool, **named: Any) -> None:
        found.setdefault(
            _signature(self, arguments, named), lambda: launch(self, *arguments, grid=grid, warmup=True, **named)
        )

    JITFunction.run = note  # type: ignore[method-assign]
    try:
        run()
    finally:
        JITFunction.run = launch  # type: ignore[method-assign]
    return found


def _signature(kernel: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
    """What Triton tells kernels apart by: types, sizes that are 1 or divisible by 16, and constants."""
    given = {parameter.name: value for parameter, value in zip(kernel.params, arguments)} | named
    parameters = {parameter.name: parameter for parameter in kernel.params}
    parts = []
    for name, value in sorted(given.items()):
        parameter = parameters.get(name)
        if parameter is None or parameter.is_constexpr:  # options such as num_warps are no parameters
            parts.append(f"{name}={value}")
        elif isinstance(value, torch.Tensor):
            parts.append(str(value.dtype))
        elif isinstance(value, bool) or not isinstance(value, int) or parameter.do_not_specialize:
            parts.append(type(value).__name__)
        else:
            parts.append("1" if value == 1 else f"int{value % 16 == 0}")
    return f"{kernel.__name__} {' '.join(parts)}"


def kernels_of_network(config: NetworkConfig, dtype: torch.dtype, shape: tuple[int, ...]) -> dict[str, Any]:
    """`kernels_of` one pass of a fused network on images of (B, 3, H, W)."""
    from matchattention.models.network import MatchNetwork
    from matchattention.runtime.fused.network import FusedNetwork

    with torch.device("meta"):
        network = FusedNetwork(MatchNetwork(config), dtype)
        image = torch.empty(shape, dtype=torch.uint8)
        # The estimate of flow has no kernels of ours, and cannot run without numbers.
        start = torch.empty(2 * shape[0], *shape[2:], 2) if config.task == "flow" else None
    with torch.inference_mode():
        return kernels_of(lambda: network(image, image, start))


def work(job: dict[str, Any]) -> None:
    """A worker: compile its share and print a line for each kernel."""
    config = NetworkConfig.from_dict(job["config"])
    found = kernels_of_network(config, getattr(torch, job["dtype"]), tuple(job["shape"]))
    print(f"kernels {len(found)}", flush=True)
    with standing_in_for(job["capability"]):
        for index, (name, compile_kernel) in enumerate(found.items()):
            if index % job["workers"] == job["worker"]:
                compile_kernel()
                print(name.split()[0], flush=True)


def main() -> None:
    """A worker's process; see `worker_command`."""
    work(json.loads(sys.argv[2]))
