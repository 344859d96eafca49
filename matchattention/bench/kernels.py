"""The kernels of one pass on a GPU: which, how often, how long, and how much of it is MatchAttention."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

# The kernels that gather keys and attend. The fused network has none that does nothing else.
ATTENTION_KERNELS = {
    "match_attention": "the operator alone",
    "block_attention": "the operator with its output projection, residuals, LayerNorm and the next projection",
}


def profile_pass(run: Callable[[], object]) -> dict[str, Any]:
    """Run once warm, once recorded.

    Returns:
        `kernels`: rows of name, grid, launches, total microseconds, threads, registers and shared bytes, longest first;
        `launches` and `busy_us`: their sums; `span_us`: from the first kernel's begin to the last one's end, so that
        what it has beyond `busy_us` is the gaps, those around copies to a graph's buffers too; `attention_us`: of those
        of ATTENTION_KERNELS that were found; `attention_share`: their part of `busy_us`.
    """
    from torch.profiler import ProfilerActivity, profile

    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        run()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        record.export_chrome_trace(str(path))
        return summarize(json.loads(path.read_text())["traceEvents"])


def summarize(events: list[dict[str, Any]]) -> dict[str, Any]:
    """`profile_pass`'s result from the events of a Chrome trace."""
    ran = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and "dur" in e]
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for event in ran:
        found = event.get("args", {})
        grid = found.get("grid")
        row = rows.setdefault(
            (event["name"], str(grid)),
            {
                "name": event["name"][:160],
                "grid": grid,
                "launches": 0,
                "total_us": 0.0,
                "block": found.get("block"),
                "registers": found.get("registers per thread"),
                "shared_bytes": found.get("shared memory"),
            },
        )
        row["launches"] += 1
        row["total_us"] += event["dur"]
    kernels = sorted(rows.values(), key=lambda row: -row["total_us"])
    busy = sum(row["total_us"] for row in kernels)
    inside = {word: sum(row["total_us"] for row in kernels if word in row["name"]) for word in ATTENTION_KERNELS}
    span = max(e["ts"] + e["dur"] for e in ran) - min(e["ts"] for e in ran) if ran else 0.0
    return {
        "kernels": kernels,
        "launches": len(ran),
        "busy_us": busy,
        "span_us": span,
        "attention_us": {word: time for word, time in inside.items() if time > 0},
        "attention_share": sum(inside.values()) / max(busy, 1e-9),
    }


def idle_share(busy_us: float, median_ms: float) -> float:
    """The part of a pass, timed without a profiler, in which no kernel runs: the gaps between one and the next."""
    return max(0.0, 1 - busy_us / (1e3 * median_ms))


def by_name(kernels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`summarize`'s kernels without their grids: launches and total microseconds of each name, longest first."""
    rows: dict[str, dict[str, Any]] = {}
    for kernel in kernels:
        row = rows.setdefault(kernel["name"], {"name": kernel["name"], "launches": 0, "total_us": 0.0})
        row["launches"] += kernel["launches"]
        row["total_us"] += kernel["total_us"]
    return sorted(rows.values(), key=lambda row: -row["total_us"])
