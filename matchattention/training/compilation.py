"""Compile a network's repeated blocks once, and keep what the compiler made.

A cold compile of every block takes minutes, a warm one seconds. The caches live in one folder that can
be packed into files small enough to travel to another machine of the same kind.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch._dynamo
from torch import nn

from matchattention.training.parts import join_parts, write_parts

_NEVER_READ_BACK = {".ttir", ".ttgir", ".llir", ".ptx", ".source", ".lock"}  # of a kernel the binary is enough


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
        block.compile(backend=backend, fullgraph=True, dynamic=False)
        count += 1
    return count


def undo_compilation(model: nn.Module) -> None:
    """Run the plain modules again."""
    for module in model.modules():
        module._compiled_call_impl = None
    torch._dynamo.reset()


def save_caches(cache: Path, folder: Path, part_bytes: int, most_bytes: int) -> list[Path]:
    """Pack what compiling left behind into ``folder/cache.tar.xz.part*``; empty when it is too large.

    Args:
        cache: The folder given to `use_cache_folder`.
        folder: Where the parts go.
        part_bytes: Largest size of one part.
        most_bytes: Largest size altogether.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=9) as archive:
        for path in sorted(cache.rglob("*")):
            if path.is_file() and path.suffix not in _NEVER_READ_BACK:
                archive.add(path, arcname=str(path.relative_to(cache)))
    data = buffer.getvalue()
    return write_parts(data, folder / "cache.tar.xz", part_bytes) if len(data) <= most_bytes else []


def load_caches(folder: Path, cache: Path) -> bool:
    """Unpack parts made by `save_caches` into the cache folder; returns whether there were any."""
    data = join_parts(folder / "cache.tar.xz")
    if data is None:
        return False
    cache.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as archive:
        archive.extractall(cache, filter="data")
    _name_files_where_they_lie(cache / "triton")
    return True


def _name_files_where_they_lie(folder: Path) -> None:
    """Triton lists the files of a kernel with their whole paths and compiles anew when these do not exist."""
    for listing in folder.rglob("__grp__*.json"):
        names = json.loads(listing.read_text())["child_paths"]
        here = {name: str((listing.parent / name).resolve()) for name in names}
        listing.write_text(json.dumps({"child_paths": here}))
