"""Compile a network's repeated blocks once, and keep what the compiler made.

A cold compile of every block takes minutes, a warm one seconds. The caches live in one folder that can
be packed into files small enough to travel to another machine of the same kind.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch._dynamo
from torch import nn

from matchattention.data.atomic import replacing
from matchattention.training.parts import join_parts, write_parts

_ARTIFACTS = "compile-artifacts.bin"


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
    """Pack what compiling left behind into ``folder/cache.tar.xz.part*``; empty when even the least is too large.

    Args:
        cache: The folder given to `use_cache_folder`.
        folder: Where the parts go.
        part_bytes: Largest size of one part.
        most_bytes: Largest size altogether. Triton's own files are left out first: inductor's artifacts
            hold its kernels once more.
    """
    artifacts = torch.compiler.save_cache_artifacts()
    for with_triton in (True, False):
        data = _archive(artifacts[0] if artifacts is not None else None, cache / "triton" if with_triton else None)
        if len(data) <= most_bytes:
            return write_parts(data, folder / "cache.tar.xz", part_bytes)
    return []


def _archive(artifacts: bytes | None, triton: Path | None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=1) as archive:
        if artifacts is not None:
            entry = tarfile.TarInfo(_ARTIFACTS)
            entry.size = len(artifacts)
            archive.addfile(entry, io.BytesIO(artifacts))
        for path in sorted(triton.rglob("*")) if triton is not None else []:
            # Of a kernel's intermediate forms only the binary and its description are read back.
            if path.is_file() and path.suffix in (".cubin", ".json", ".so"):
                assert triton is not None
                archive.add(path, arcname=str(Path("triton") / path.relative_to(triton)))
    return buffer.getvalue()


def load_caches(folder: Path, cache: Path) -> bool:
    """Unpack parts made by `save_caches` into the cache folder; returns whether there were any."""
    data = join_parts(folder / "cache.tar.xz")
    if data is None:
        return False
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as archive:
        for entry in archive.getmembers():
            stream = archive.extractfile(entry)
            if stream is None:
                continue
            content = stream.read()
            if entry.name == _ARTIFACTS:
                torch.compiler.load_cache_artifacts(content)
                continue
            target = (cache / entry.name).resolve()
            if cache.resolve() not in target.parents:
                continue  # an archive must not write outside its folder
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as temporary:
                temporary.write_bytes(content)
    return True
