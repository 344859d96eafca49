"""Compile a network's repeated blocks once, and keep what the compiler made.

A cold compile of every block takes minutes, a warm one seconds. The caches live in one folder, which serves another
machine of the same kind too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import torch
import torch._dynamo
from torch import nn


def use_cache_folder(folder: Path) -> None:
    """Make inductor and Triton keep their results under ``folder``; call before anything compiles."""
    folder = folder.resolve()
    for variable, name in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        os.environ[variable] = str(folder / name)


def repeated_blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The modules worth compiling: the largest ones that are no chain of further modules themselves.

    A chain (`ModuleList`, `Sequential`) compiled as a whole would be unrolled; its members compiled one
    by one share their code. Single layers gain nothing.
    """
    chains = (nn.ModuleList, nn.Sequential)
    if any(isinstance(inner, chains) for inner in model.modules()):
        for child in model.children():
            yield from repeated_blocks(child)
    elif any(True for _ in model.children()):
        yield model


def compile_blocks(model: nn.Module, backend: str = "inductor") -> int:
    """Compile each repeated block in place for fixed shapes; returns how many there are.

    Blocks of one class and shape share their compiled code.
    """
    # Every block class at every scale and crop size is one entry of the same code object's cache.
    for limit in ("recompile_limit", "accumulated_recompile_limit", "cache_size_limit"):
        if hasattr(torch._dynamo.config, limit):
            setattr(torch._dynamo.config, limit, 1024)
    count = 0
    for block in repeated_blocks(model):
        stands_in = block.__dict__.get("forward")  # recomputation goes around the compiled code
        if stands_in is None:
            block.compile(backend=backend, fullgraph=True, dynamic=False)
        else:
            stands_in.inner = torch.compile(stands_in.plain, backend=backend, fullgraph=True, dynamic=False)
        count += 1
    return count


def undo_compilation(model: nn.Module) -> None:
    """Run the plain modules again."""
    for module in model.modules():
        module._compiled_call_impl = None
        if "forward" in module.__dict__:
            module.forward.inner = module.forward.plain  # type: ignore[attr-defined]
    torch._dynamo.reset()
