"""One worker of an archive run: a group of pairs in, a shard of results out."""

from __future__ import annotations

import io
import json
import warnings
from typing import Any

import numpy as np

from matchattention.archive.manifest import Entry
from matchattention.archive.results import FieldFormat, Store, encode_confidence, encode_field, write_shard
from matchattention.errors import InputError, InputWarning, first_line

READ_AT_ONCE = 64  # pairs in memory: enough to find others of the same size


class ShardPredictor:
    """Predicts groups of pairs; Ray keeps one for each worker, with its network loaded.

    Args:
        output: Where shards go.
        model: Name or file of the network.
        task: "stereo" or "flow".
        device: Of the network.
        precision: Of the network.
        kind: Format of the fields.
        batch: Pairs of one size in one pass.
        check: Whether pairs are looked at for swapped or unrectified views.
    """

    def __init__(
        self,
        output: str,
        model: str,
        task: str = "stereo",
        device: str = "auto",
        precision: str = "auto",
        kind: FieldFormat = "png16",
        batch: int = 8,
        check: bool = True,
    ) -> None:
        from matchattention.inference.predictor import Predictor
        from matchattention.models.checkpoint import load

        self.store, self.task, self.kind, self.most = Store(output), task, kind, batch
        self.predictor = Predictor(load(model, task=task), device, precision, check=check)
        self._shards: dict[str, Any] = {}

    def __call__(self, work: dict[str, Any]) -> dict[str, Any]:
        """Ray Data's call: a batch of groups, each a shard's number and its pairs as JSON."""
        done: dict[str, list[Any]] = {"shard": [], "pairs": [], "bad": []}
        for number, text in zip(work["shard"], work["entries"]):
            entries = [Entry(**values) for values in json.loads(str(text))]
            rows = self.predict(entries)
            write_shard(self.store, int(number), rows)
            done["shard"].append(int(number))
            done["pairs"].append(len(rows))
            done["bad"].append(sum(row["error"] is not None for row in rows))
        return {name: np.asarray(values) for name, values in done.items()}

    def predict(self, entries: list[Entry]) -> list[dict[str, Any]]:
        """A row for every pair, in order; those that cannot be predicted say why."""
        rows: list[dict[str, Any]] = []
        for first in range(0, len(entries), READ_AT_ONCE):
            some = entries[first : first + READ_AT_ONCE]
            found: dict[int, dict[str, Any]] = {}
            sizes: dict[tuple[int, ...], list[tuple[int, Any]]] = {}
            for index, entry in enumerate(some):
                try:
                    pair = self._read(entry)
                    sizes.setdefault(pair[0].shape, []).append((index, pair))
                except Exception as error:
                    found[index] = _bad(entry, error)
            for members in sizes.values():
                for start in range(0, len(members), self.most):
                    chosen = members[start : start + self.most]
                    for (index, _), result in zip(chosen, self._match([pair for _, pair in chosen])):
                        entry = some[index]
                        found[index] = (
                            _bad(entry, result) if isinstance(result, Exception) else self._row(entry, result)
                        )
            rows += [found[index] for index in range(len(some))]
        return rows

    def _match(self, pairs: list[Any]) -> list[Any]:
        """A prediction or an exception for every pair; one bad pair does not spoil its batch."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)
            try:
                return list(self.predictor.batch(pairs))
            except Exception:
                results: list[Any] = []
                for left, right in pairs:
                    try:
                        results.append(self.predictor(left, right))
                    except Exception as error:
                        results.append(error)
                return results

    def _row(self, entry: Entry, prediction: Any) -> dict[str, Any]:
        field = prediction.flow if self.task == "flow" else prediction.disparity
        confidence = np.asarray(prediction.confidence)
        return {
            "name": entry.name,
            "left": entry.left,
            "right": entry.right,
            "height": field.shape[0],
            "width": field.shape[1],
            "format": self.kind,
            "field": encode_field(np.asarray(field), self.task, self.kind),
            "confidence": encode_confidence(confidence),
            "mean_confidence": float(confidence.mean()),
            "error": None,
        }

    def _read(self, entry: Entry) -> Any:
        from matchattention.inference.images import read_pair, read_side_by_side

        if entry.number >= 0:
            sample = self._shard(entry.left)[entry.number]
            views = (sample.frame1, sample.frame2) if hasattr(sample, "flow") else (sample.left, sample.right)
            return read_pair(*views)
        if not entry.right:
            return read_side_by_side(entry.left)
        return read_pair(_image(entry.left), _image(entry.right))

    def _shard(self, url: str) -> Any:
        from pathlib import Path

        from matchattention.data.shards import ShardFile, fetch, is_remote

        if url not in self._shards:
            for old in self._shards.values():
                old.forget()
            self._shards = {url: fetch(url) if is_remote(url) else ShardFile(Path(url), url)}
        return self._shards[url]


def _image(address: str) -> Any:
    """A path, or the picture behind an address."""
    if "://" not in address:
        return address
    import fsspec
    from PIL import Image

    with fsspec.open(address, "rb") as file:
        image = Image.open(io.BytesIO(file.read()))
        image.load()
        return image


def _bad(entry: Entry, error: Exception) -> dict[str, Any]:
    text = str(error) if isinstance(error, InputError) else first_line(error)
    return {"name": entry.name, "left": entry.left, "right": entry.right, "error": text or "unknown"}
