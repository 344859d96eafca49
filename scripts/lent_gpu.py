"""What a training on a GPU that is lent for minutes needs beside `matchattention train`: small files, soon.

    python3 scripts/lent_gpu.py unpack cache runs/cache               compile caches of an earlier session
    python3 scripts/lent_gpu.py export runs/main-7 OUT --watch PID     again and again until that process ends
    python3 scripts/lent_gpu.py join OUT/model.safetensors rt.safetensors
    python3 scripts/lent_gpu.py restore OUT runs/main-7                a run that `train` continues

An export holds what can travel in files of less than 16 MiB, each in parts with a checksum over all: the checkpoint, a
compact state (fp16 weights, 8-bit second moments; momentum and the weights' average are left out, they forget within
tens and thousands of steps), the compile caches and the log. Needs torch, numpy and safetensors only.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import sys
import tarfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a bare machine has the tree, not the package

from matchattention.data.atomic import replacing
from matchattention.errors import InputError
from matchattention.training.state import read_state, write_state

PART_BYTES = 11 << 20  # two hold RT's checkpoint, its state or the caches; one goes there beside the tree
MOST_CACHE_BYTES = 20 << 20  # beside RT's checkpoint and state: 64 MiB in all, in no more than eight files
CHECKPOINT, STATE, CACHE, LOG = "model.safetensors", "state.safetensors", "cache.tar.xz", "log.jsonl"
BEFORE_COOLDOWN = "before-cooldown"
_DIGEST = 32
_OCTAVES = 40.0  # second moments this far below a tensor's largest one act like it: the epsilon rules there
_NEVER_READ_BACK = {".ttir", ".ttgir", ".llir", ".ptx", ".source", ".lock"}  # of a kernel the binary is enough


def write_parts(data: bytes, path: Path, part_bytes: int = PART_BYTES) -> list[Path]:
    """Write ``data`` as ``path.part0``, ``path.part1``, … of at most ``part_bytes`` each.

    The first part begins with a SHA-256 digest of the whole, so that mixed-up parts are noticed.
    Parts of an earlier, longer file are removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = hashlib.sha256(data).digest() + data
    written = []
    for number, begin in enumerate(range(0, len(whole), part_bytes)):
        part = path.with_name(f"{path.name}.part{number}")
        with replacing(part) as temporary:
            temporary.write_bytes(whole[begin : begin + part_bytes])
        written.append(part)
    for stale in path.parent.glob(f"{path.name}.part*"):
        if stale not in written:
            stale.unlink()
    return written


def join_parts(path: Path) -> bytes:
    """The bytes `write_parts` was given.

    Raises:
        InputError: A part is missing, damaged or from another file.
    """
    pieces: list[bytes] = []
    while (part := path.with_name(f"{path.name}.part{len(pieces)}")).exists():
        pieces.append(part.read_bytes())
    if not pieces:
        raise InputError(f"there is no {path}.part0")
    whole = b"".join(pieces)
    if hashlib.sha256(whole[_DIGEST:]).digest() != whole[:_DIGEST]:
        raise InputError(
            f"the {len(pieces)} parts of {path} do not fit together: copy all of them again from one export"
        )
    return whole[_DIGEST:]


def quantise_squares(values: Tensor) -> tuple[Tensor, Tensor]:
    """Positive values on a logarithmic grid of 255 steps: uint8 codes and the largest exponent.

    The grid spans 40 octaves, so a value is off by at most 5.6 %, its square root by 2.8 %.
    """
    largest = values.amax().log2().clamp(min=-120.0).float()
    octaves = (values.float().log2() - largest).clamp(min=-_OCTAVES)  # log2(0) = -inf becomes the smallest
    return (255 + octaves * (255 / _OCTAVES)).round().to(torch.uint8), largest


def restore_squares(codes: Tensor, largest: Tensor) -> Tensor:
    """Back from `quantise_squares`; the smallest code stands for zero."""
    values = torch.exp2(largest + (codes.float() - 255) * (_OCTAVES / 255))
    return torch.where(codes > 0, values, torch.zeros(()))


def compact(content: dict[str, Any]) -> bytes:
    """A training state small enough to travel."""
    tensors = {f"weight.{name}": value.half().contiguous() for name, value in content["model"].items()}
    for name, moments in content["moments"].items():
        if "exp_avg_sq" in moments:
            codes, largest = quantise_squares(moments["exp_avg_sq"])
            tensors[f"square.{name}"] = codes.contiguous()
            tensors[f"largest.{name}"] = largest
    header = {"counters": json.dumps(content["counters"]), "recipe": content["recipe"]}
    return save_tensors(tensors, header)


def expand(data: bytes) -> dict[str, Any]:
    """A state that `train` continues, from `compact`: momentum and average begin again."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    tensors = load_tensors(data)
    weights = {n.removeprefix("weight."): v.float() for n, v in tensors.items() if n.startswith("weight.")}
    counters = {**json.loads(header["counters"]), "average_steps": 0}
    moments = {}
    for name in weights:
        if f"square.{name}" in tensors:
            square = restore_squares(tensors[f"square.{name}"], tensors[f"largest.{name}"])
            step = torch.tensor(float(counters["steps"]))
            moments[name] = {"step": step, "exp_avg": torch.zeros_like(square), "exp_avg_sq": square}
    return {
        "counters": counters,
        "recipe": header["recipe"],
        "model": weights,
        "average": weights,
        "moments": moments,
        "random": {"cpu": torch.get_rng_state()},
    }


def pack_cache(cache: Path, most_bytes: int = MOST_CACHE_BYTES) -> bytes | None:
    """What compiling left behind, as an archive; the newest of it where all is too much, None when there is nothing."""
    files = [path for path in cache.rglob("*") if path.is_file() and path.suffix not in _NEVER_READ_BACK]
    folders: dict[Path, list[Path]] = {}  # the files of one kernel serve together only
    for path in sorted(files):
        folders.setdefault(path.parent, []).append(path)
    kept = sorted(folders.values(), key=lambda group: max(path.stat().st_mtime for path in group), reverse=True)
    while kept:
        data = _pack(cache, [path for group in kept for path in group])
        if len(data) <= most_bytes:
            return data
        room = sum(path.stat().st_size for group in kept for path in group) * 0.95 * most_bytes / len(data)
        sizes = accumulate(sum(path.stat().st_size for path in group) for group in kept)
        kept = kept[: sum(size <= room for size in sizes)]
    return None


def _pack(cache: Path, files: list[Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=9) as archive:
        for path in files:
            archive.add(path, arcname=str(path.relative_to(cache)))
    return buffer.getvalue()


def unpack_cache(data: bytes, cache: Path) -> None:
    """Put an archive of `pack_cache` where ``train --cache`` looks."""
    cache.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as archive:
        archive.extractall(cache, filter="data")
    # Triton lists the files of a kernel with their whole paths and compiles again when these do not exist.
    for listing in (cache / "triton").rglob("__grp__*.json"):
        names = json.loads(listing.read_text())["child_paths"]
        here = {name: str((listing.parent / name).resolve()) for name in names}
        listing.write_text(json.dumps({"child_paths": here}))


class Exporter:
    """Writes what has changed in a run's folder since it last looked."""

    def __init__(self, run: Path, folder: Path, cache: Path, part_bytes: int = PART_BYTES) -> None:
        self.run, self.folder, self.cache, self.part_bytes = run, folder, cache, part_bytes
        self._seen: dict[str, float] = {}
        self._cache_files = 0
        self._packer = ThreadPoolExecutor(1)  # a minute's work, in which weights must not wait
        self._packing: Future[bytes | None] | None = None

    def look(self, last: bool = False) -> list[str]:
        """Export what is new; returns the names."""
        written = []
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._changed(self.run / CHECKPOINT):
            write_parts((self.run / CHECKPOINT).read_bytes(), self.folder / CHECKPOINT, self.part_bytes)
            written.append(CHECKPOINT)
        cooled = self.run / BEFORE_COOLDOWN
        source = cooled if (cooled / "state.pt").is_file() else self.run  # the state to continue from
        if self._changed(source / "state.pt"):
            content = read_state(source, lambda text: print(text, file=sys.stderr))
            write_parts(compact(content), self.folder / STATE, self.part_bytes)
            written.append(STATE)
        if self._changed(self.run / LOG):
            (self.folder / LOG).write_bytes((self.run / LOG).read_bytes())
            written.append(LOG)
        written += self._packed(last)
        files = sum(1 for path in self.cache.rglob("*") if path.is_file())
        # Compiling is over when steps are logged; packing takes a core a minute, so not with every new file.
        if files > self._cache_files and (last or not self._cache_files) and self._has_steps():
            self._cache_files = files
            self._packing = self._packer.submit(pack_cache, self.cache)
            written += self._packed(last)
        return written

    def _packed(self, wait: bool) -> list[str]:
        """Write the archive of the caches if it is ready, or as soon as it is."""
        if self._packing is None or not (wait or self._packing.done()):
            return []
        data, self._packing = self._packing.result(), None
        if data is None:
            return []
        write_parts(data, self.folder / CACHE, self.part_bytes)
        return [CACHE]

    def _has_steps(self) -> bool:
        log = self.run / LOG
        return log.is_file() and '"kind": "train"' in log.read_text()

    def keep_looking(self, process: int, seconds: float) -> None:
        """Export until a process has ended; what goes wrong once (a state renamed while it is read) is tried again."""
        while _is_running(process):
            try:
                self.look()
            except (InputError, OSError) as error:
                print(f"{error}: trying again", file=sys.stderr, flush=True)
                self._seen.clear()
            time.sleep(seconds)

    def _changed(self, path: Path) -> bool:
        if not path.is_file():
            return False
        stamp = path.stat().st_mtime
        changed = self._seen.get(str(path)) != stamp
        self._seen[str(path)] = stamp
        return changed


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export")
    export.add_argument("run", type=Path)
    export.add_argument("folder", type=Path)
    export.add_argument("--cache", type=Path, default=Path("runs/cache"))
    export.add_argument("--watch", type=int, metavar="PID", help="until this process ends")
    export.add_argument("--seconds", type=float, default=20.0, help="between two looks")
    for name, first, second in (
        ("unpack", "folder", "cache"),
        ("join", "source", "target"),
        ("restore", "folder", "run"),
    ):
        command = commands.add_parser(name)
        command.add_argument(first, type=Path)
        command.add_argument(second, type=Path)
    arguments = parser.parse_args()
    try:
        if arguments.command == "unpack":
            unpack_cache(join_parts(arguments.folder / CACHE), arguments.cache)
        elif arguments.command == "join":
            arguments.target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(arguments.target) as temporary:
                temporary.write_bytes(join_parts(arguments.source))
        elif arguments.command == "restore":
            write_state(arguments.run, expand(join_parts(arguments.folder / STATE)))
        else:
            exporter = Exporter(arguments.run, arguments.folder, arguments.cache)
            if arguments.watch is not None:
                exporter.keep_looking(arguments.watch, arguments.seconds)
            exporter.look(last=True)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
