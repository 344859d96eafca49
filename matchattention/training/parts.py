"""A large file as several small ones, for transfers that limit the size of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from matchattention.data.atomic import replacing
from matchattention.errors import InputError

_DIGEST = 32


def write_parts(data: bytes, path: Path, part_bytes: int) -> list[Path]:
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


def join_parts(path: Path) -> bytes | None:
    """The bytes `write_parts` was given, None when there are no parts.

    Raises:
        InputError: A part is missing, damaged or from another file.
    """
    pieces: list[bytes] = []
    while (part := path.with_name(f"{path.name}.part{len(pieces)}")).exists():
        pieces.append(part.read_bytes())
    if not pieces:
        return None
    whole = b"".join(pieces)
    if hashlib.sha256(whole[_DIGEST:]).digest() != whole[:_DIGEST]:
        raise InputError(
            f"the {len(pieces)} parts of {path} do not fit together: copy all of them again from one export"
        )
    return whole[_DIGEST:]
