"""Which pairs an archive holds: folders, globs, lists, CSV and Parquet manifests, WebDataset shards."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from matchattention.errors import InputError
from matchattention.inference.sources import find_pairs


@dataclass(frozen=True)
class Entry:
    """A pair by its address.

    Attributes:
        name: Unique in the archive.
        left: Path or address of the left view, of the shard for a pair in one, or of both views side by side.
        right: Of the right view; empty where ``left`` holds both.
        number: Of the sample in its shard; -1 for image files.
    """

    name: str
    left: str
    right: str = ""
    number: int = -1


def read_manifest(inputs: Sequence[str], side_by_side: bool = False) -> list[Entry]:
    """All pairs that the arguments stand for.

    Args:
        inputs: ``shards:URL``, a .parquet or .csv file with the columns left, right and perhaps name (paths, relative
            to the manifest, or addresses), or whatever `find_pairs` takes.
        side_by_side: Whether each image holds both views.
    """
    first = inputs[0]
    if first.startswith("shards:"):
        entries = list(_of_shards(first.removeprefix("shards:")))
    elif first.endswith(".parquet"):
        entries = _of_rows(first, _parquet_rows(first))
    elif first.endswith(".csv"):
        entries = _of_rows(first, _csv_rows(first))
    else:
        pairs = find_pairs(first, inputs[1] if len(inputs) > 1 else None, side_by_side=side_by_side)
        entries = [Entry(pair.name, str(pair.left), "" if pair.right is None else str(pair.right)) for pair in pairs]
    if not entries:
        raise InputError(f"{first} lists no pairs: give rows with a left and a right image")
    repeated = [name for name, count in Counter(entry.name for entry in entries).items() if count > 1]
    if repeated:
        raise InputError(f"{first} has several pairs called '{repeated[0]}': give every row a name of its own")
    return [replace(entry, left=absolute(entry.left), right=entry.right and absolute(entry.right)) for entry in entries]


def absolute(address: str) -> str:
    """A path as workers understand it, which a running cluster starts in folders of its own."""
    return address if "://" in address else os.path.abspath(address)


def fingerprint(entries: Iterable[Entry], options: dict[str, Any]) -> str:
    """Of the list and of everything that decides the results: equal ones may continue one another."""
    digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode())
    for entry in entries:
        digest.update(json.dumps(asdict(entry)).encode())
    return digest.hexdigest()


def _of_shards(url: str) -> Iterable[Entry]:
    from matchattention.data.shards import read_shard_list

    shards = read_shard_list(url)
    for shard, (name, count) in enumerate(zip(shards.names, shards.samples)):
        for number in range(count):
            yield Entry(f"{name.removesuffix('.tar')}-{number:06d}", shards.url(shard), "", number)


def _open(url: str) -> bytes:
    if "://" not in url:
        path = Path(url)
        if not path.is_file():
            raise InputError(f"{url} does not exist")
        return path.read_bytes()
    import fsspec

    try:
        with fsspec.open(url, "rb") as file:
            return file.read()
    except Exception as error:
        raise InputError(f"{url} could not be read ({str(error)[:120] or type(error).__name__})") from error


def _parquet_rows(url: str) -> list[dict[str, str]]:
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(io.BytesIO(_open(url))).read()
    except (OSError, ValueError) as error:
        raise InputError(f"{url} is no Parquet file ({str(error)[:80]})") from None
    if not {"left", "right"} <= set(table.column_names):
        raise InputError(f"{url} needs the columns left and right, and may have name; it has {table.column_names}")
    wanted = [name for name in ("left", "right", "name") if name in table.column_names]
    return table.select(wanted).to_pylist()


def _csv_rows(url: str) -> list[dict[str, str]]:
    try:
        lines = [row for row in csv.reader(io.StringIO(_open(url).decode("utf-8-sig"))) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{url} is no CSV file of UTF-8 text ({error})") from None
    header = ["left", "right", "name"]
    if lines and {"left", "right"} <= {word.strip().lower() for word in lines[0]}:
        header = [word.strip().lower() for word in lines[0]]
        lines = lines[1:]
    short = next((row for row in lines if len(row) < 2), None)
    if short is not None:
        raise InputError(f"{url}: give a left and a right image on every line, not {short}")
    return [dict(zip(header, (word.strip() for word in row))) for row in lines]


def _of_rows(url: str, rows: list[dict[str, str]]) -> list[Entry]:
    base = url.rpartition("/")[0]

    def located(text: str) -> str:
        return text if "://" in text or text.startswith("/") or not base else f"{base}/{text}"

    stems = [Path(str(row["left"])).stem for row in rows]
    unique = len(set(stems)) == len(stems)
    return [
        Entry(
            str(row.get("name") or (stem if unique else f"{number:09d}-{stem}")),
            located(str(row["left"])),
            located(str(row["right"])),
        )
        for number, (row, stem) in enumerate(zip(rows, stems))
    ]
