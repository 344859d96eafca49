"""Kernels that begin while the one before them ends ("programmatic dependent launch", from Hopper on).

A kernel launched with `overlapping()` may start as soon as the previous one's programs all run. It gets ready (indices,
weights that no kernel writes) and then waits until the previous one is done, and all that it wrote is visible, before
it touches anything that another kernel reads or writes.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language.extra import cuda
from triton.runtime.driver import driver

# Not yet measured: `benchmarks/tune_kernels.py` says whether it pays.
OVERLAP = False
LEAST_CAPABILITY = 90


@triton.jit
def wait_for_previous(OVERLAP: tl.constexpr):
    """First thing after what only depends on weights; the next kernel may then get ready."""
    if OVERLAP:
        cuda.gdc_wait()
        cuda.gdc_launch_dependents()


def overlapping() -> dict[str, Any]:
    """What a launch passes to a kernel that calls `wait_for_previous`, for the GPU that is current."""
    if OVERLAP and not triton.knobs.runtime.interpret and _capability() >= LEAST_CAPABILITY:
        return {"OVERLAP": True, "launch_pdl": True}
    return {"OVERLAP": False}


def _capability() -> int:
    """Of the current GPU, or of the one that Triton compiles for; 0 where there is none."""
    try:
        target = driver.active.get_current_target()
    except RuntimeError:
        return 0
    return int(target.arch) if target.backend == "cuda" else 0
