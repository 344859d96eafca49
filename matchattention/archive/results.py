"""Results in Parquet shards: each appears whole and once, and is found again by the run that resumes."""

from __future__ import annotations

import io
import json
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from matchattention.errors import InputError

FieldFormat = Literal["png16", "pfm"]
SETTINGS = "archive.json"
SUMMARY = "summary.json"
BAD_PAIRS = "bad_pairs.csv"
_SHARD = re.compile(r"part-\d{6,}\.parquet")


class Store:
    """The output folder, on a disk or behind an address that fsspec knows."""

    def __init__(self, base: str) -> None:
        self.base = base.rstrip("/")
        self.remote = "://" in base

    def path(self, name: str) -> str:
        """Of a file in it."""
        return f"{self.base}/{name}"

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole; writing the same one again replaces it."""
        if self.remote:
            import fsspec

            with fsspec.open(self.path(name), "wb") as file:  # object stores show an object when it is closed
                file.write(content)
            return
        Path(self.base).mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=self.base)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, self.path(name))

    def open(self, name: str) -> BinaryIO | None:
        """A file to read from; None when it is not there."""
        try:
            if self.remote:
                import fsspec

                return fsspec.open(self.path(name), "rb").open()
            return Path(self.path(name)).open("rb")
        except FileNotFoundError:
            return None

    def read(self, name: str) -> bytes | None:
        """A file's content; None when it is not there."""
        file = self.open(name)
        if file is None:
            return None
        with file:
            return file.read()

    def remove(self, name: str) -> None:
        """Delete a file."""
        if self.remote:
            import fsspec

            system, path = fsspec.core.url_to_fs(self.path(name))
            system.rm_file(path)
        else:
            os.unlink(self.path(name))

    def names(self) -> set[str]:
        """Of all files in it."""
        if self.remote:
            import fsspec

            system, folder = fsspec.core.url_to_fs(self.base)
            return (
                {name.rpartition("/")[2] for name in system.ls(folder, detail=False)}
                if system.exists(folder)
                else set()
            )
        folder = Path(self.base)
        return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def shard_name(number: int) -> str:
    """Of the file with the results of one group of pairs."""
    return f"part-{number:06d}.parquet"


def begin(store: Store, settings: dict[str, Any], overwrite: bool = False) -> None:
    """Claim a folder for these settings, or continue it if it was begun with the same.

    Raises:
        InputError: It holds results of other pairs, another model or other options, or files of somebody else.
    """
    found = store.read(SETTINGS)
    if found is not None and not overwrite:
        try:
            same = json.loads(found)["fingerprint"] == settings["fingerprint"]
        except (ValueError, KeyError, TypeError):
            same = False
        if not same:
            raise InputError(
                f"{store.base} holds results of other pairs, another model or other options: "
                "choose another --output, or --overwrite"
            )
        return
    in_the_way = sorted(name for name in store.names() if _SHARD.fullmatch(name) or name in (SUMMARY, BAD_PAIRS))
    if in_the_way and found is None and not overwrite:
        raise InputError(
            f"{store.base} holds {in_the_way[0]} and no {SETTINGS}, so that somebody else may need it: "
            "choose another --output, or --overwrite"
        )
    for name in in_the_way:
        store.remove(name)
    store.write(SETTINGS, (json.dumps(settings, indent=1) + "\n").encode())


def encode_field(field: np.ndarray, task: str, kind: FieldFormat) -> bytes:
    """Disparity as a 16-bit PNG (1/256 px, as KITTI has it) or PFM; flow as KITTI's PNG or .flo."""
    from matchattention.data import formats

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("field.png" if kind == "png16" else "field.pfm")
        if task == "flow":
            if kind == "png16":
                formats.write_kitti_flow_png16(path, field)
            else:
                path = path.with_suffix(".flo")
                formats.write_flo(path, field)
        elif kind == "png16":
            formats.write_kitti_disparity_png16(path, field)
        else:
            formats.write_pfm(path, field)
        return path.read_bytes()


def encode_confidence(confidence: np.ndarray) -> bytes:
    """An 8-bit PNG, 255 is certain."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.rint(confidence * 255).astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def write_shard(store: Store, number: int, rows: list[dict[str, Any]]) -> None:
    """Write one shard's rows."""
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema(
        [
            ("name", pyarrow.string()),
            ("left", pyarrow.string()),
            ("right", pyarrow.string()),
            ("height", pyarrow.int32()),
            ("width", pyarrow.int32()),
            ("format", pyarrow.string()),
            ("field", pyarrow.binary()),
            ("confidence", pyarrow.binary()),
            ("mean_confidence", pyarrow.float32()),
            ("error", pyarrow.string()),
        ]
    )
    buffer = io.BytesIO()
    # Images are compressed already.
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), buffer, compression="none")
    store.write(shard_name(number), buffer.getvalue())


def read_rows(store: Store, numbers: Iterable[int], columns: list[str]) -> list[dict[str, Any]]:
    """Some columns of some shards; of a shard's fields, nearly all of its bytes, nothing is read."""
    import pyarrow.parquet

    rows: list[dict[str, Any]] = []
    for number in numbers:
        file = store.open(shard_name(number))
        if file is not None:
            # Not `read_table`: its threads go on after the last row and now and then abort the process at its end.
            with file:
                rows += pyarrow.parquet.ParquetFile(file).read(columns=columns).to_pylist()
    return rows
