"""Time and memory of a function, on a GPU by its own events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from matchattention.runtime.graph import capture

# Above this the launches from Python no longer show.
_LONG_MS = 20.0


class Timing(NamedTuple):
    """A function's time.

    Attributes:
        median_ms: of one run.
        p90_ms: 90th percentile.
        runs: how often it ran.
        peak_bytes: the most memory it held; None on a CPU.
        replayed: whether a CUDA graph was timed, without the launches from Python.
    """

    median_ms: float
    p90_ms: float
    runs: int
    peak_bytes: int | None
    replayed: bool = False

    def to_dict(self) -> dict[str, Any]:
        return self._asdict()


def measure(function: Callable[[], Any], device: torch.device, seconds: float = 0.5, least: int = 5) -> Timing:
    """Run a function for about `seconds` after a warm-up and take the median.

    Args:
        function: what to time; its result is dropped.
        device: where it runs. On a GPU each run is timed by events, in one queue without waiting in between; the peak
            counts everything allocated there meanwhile, inputs included.
        seconds: how long to go on.
        least: runs at least, also when they take longer.
    """
    function()
    _wait(device)
    begin = time.perf_counter()
    function()
    _wait(device)
    once = max(time.perf_counter() - begin, 1e-6)
    runs = max(least, min(200, int(seconds / once)))
    for _ in range(min(3, runs)):
        function()
    _wait(device)
    forget_peak(device)
    ordered = sorted(_events(function, runs) if device.type == "cuda" else _clock(function, runs))
    last = len(ordered) - 1
    return Timing(ordered[len(ordered) // 2], ordered[min(last, int(0.9 * len(ordered)))], runs, peak_bytes(device))


def measure_kernels(function: Callable[[], Any], device: torch.device, seconds: float = 0.5) -> Timing:
    """`measure` without the launches from Python: all but long functions are replayed from one CUDA graph.

    A function that cannot be captured is timed with its launches; `replayed` of the result says which it was.
    """
    once = measure(function, device, 0.0)
    if device.type != "cuda" or once.median_ms > _LONG_MS:
        return measure(function, device, seconds)
    repeats = max(1, min(20, int(_LONG_MS / once.median_ms)))
    try:
        graph, _ = capture(function, repeats)
    except Exception:  # what cannot be captured is timed with its launches, and the result says so
        torch.cuda.synchronize(device)
        return measure(function, device, seconds)
    replayed = measure(graph.replay, device, seconds)
    return Timing(replayed.median_ms / repeats, replayed.p90_ms / repeats, replayed.runs, once.peak_bytes, True)


def forget_peak(device: torch.device) -> None:
    """Reset the peak of allocated memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int | None:
    """The most memory that was held since `forget_peak`; None on a CPU.

    What a CUDA graph works in counts while it is captured: a replay allocates nothing.
    """
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _events(function: Callable[[], Any], runs: int) -> list[float]:
    pairs = []
    for _ in range(runs):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in pairs]


def _clock(function: Callable[[], Any], runs: int) -> list[float]:
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        function()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def copy_bandwidth(device: torch.device) -> float:
    """Bytes a second that a plain copy moves, reads and writes counted: what memory-bound work can reach here."""
    count = 2**28 if device.type == "cuda" else 2**24
    source = torch.empty(count, dtype=torch.float32, device=device).zero_()
    target = torch.empty_like(source)
    timing = measure(lambda: target.copy_(source), device, seconds=0.2)
    return 2 * 4 * count / (timing.median_ms * 1e-3)


def launch_ms(device: torch.device) -> float:
    """What the device takes for a kernel that changes one number, in a row of others: no kernel is faster."""
    one = torch.zeros(1, device=device)
    return measure_kernels(lambda: one.add_(1), device, seconds=0.1).median_ms


def growth_exponent(sizes: list[float], times: list[float]) -> float:
    """Slope of log time over log size, by least squares: 1 is linear."""
    x = torch.tensor(sizes, dtype=torch.float64).log()
    y = torch.tensor(times, dtype=torch.float64).log()
    x = x - x.mean()
    return float((x * (y - y.mean())).sum() / (x * x).sum())
