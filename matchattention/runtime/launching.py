"""Launch Triton kernels; or compile all that a function launches, side by side, before it runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import triton

_compiling_only: ContextVar[bool] = ContextVar("compiling_only", default=False)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **named: Any) -> None:
    """`kernel[grid](…)`; inside `compiling_only` the kernel is compiled and nothing runs."""
    if _compiling_only.get():
        kernel.warmup(*arguments, grid=grid, **named)
    else:
        kernel[grid](*arguments, **named)


@contextlib.contextmanager
def compiling_only() -> Iterator[None]:
    """What `launch` is given is compiled; what is computed meanwhile is worthless."""
    token = _compiling_only.set(True)
    try:
        yield
    finally:
        _compiling_only.reset(token)


def compile_together(run: Callable[[], object]) -> None:
    """Compile what `run` launches by `launch`, in threads; what it computes meanwhile is worthless.

    A kernel that fails here is left to its launch, which says why. Older Tritons compile one kernel after the other as
    they are launched, and the interpreter none.
    """
    mode = getattr(triton, "AsyncCompileMode", None)
    if mode is None or triton.knobs.runtime.interpret:
        return
    with compiling_only(), ThreadPoolExecutor(os.cpu_count()) as threads, mode(threads, ignore_errors=True):
        run()
