"""Datasets in WebDataset shards: tar files of whole samples, on a disk or behind any address fsspec knows.

A sample of a shard is a run of members with one key::

    00000042.json           {"name": …, "kind": "stereo" or "flow"}
    00000042.left.png       the image's own bytes, or left.npy.xz, which needs no image library
    00000042.right.png      (flow: the first and the second frame)
    00000042.truth.npz      float32 arrays, exactly as the dataset gave them

Beside the shards lies ``shards.json`` with the number of samples in each, so that a reader can shuffle, split and
resume without looking at them.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import tarfile
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.data.reading import check_pixels, read_json
from matchattention.errors import InputError

INDEX = "shards.json"
FORMAT = "matchattention-shards-1"
# A delta filter turns neighbouring pixels into small numbers; any xz tool undoes it.
XZ_FILTERS = [{"id": lzma.FILTER_DELTA, "dist": 3}, {"id": lzma.FILTER_LZMA2, "preset": 6}]
MOST_OPEN = 8  # shards a reader keeps at hand


@dataclass(frozen=True)
class ShardedStereo:
    """A stereo pair of a shard; attributes as of `StereoSample`."""

    name: str
    left: NDArray[np.uint8]
    right: NDArray[np.uint8]
    disparity: NDArray[np.float32] | None = None
    disparity_right: NDArray[np.float32] | None = None
    non_occluded: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class ShardedFlow:
    """Two frames of a shard; attributes as of `FlowSample`."""

    name: str
    frame1: NDArray[np.uint8]
    frame2: NDArray[np.uint8]
    flow: NDArray[np.float32] | None = None
    non_occluded: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class ShardList:
    """Where shards lie and how many samples each has.

    Attributes:
        base: Folder or address of the shards, ending in a slash.
        names: Of the files.
        samples: In each.
    """

    base: str
    names: tuple[str, ...]
    samples: tuple[int, ...]

    def url(self, number: int) -> str:
        """Of one shard."""
        return self.base + self.names[number]

    @property
    def total(self) -> int:
        """Samples in all shards."""
        return sum(self.samples)


def decode_image(suffix: str, content: bytes) -> NDArray[np.uint8]:
    """(H, W, 3) uint8 RGB from an image member of a shard."""
    if suffix == "npy.xz":
        raw = lzma.LZMADecompressor(memlimit=1 << 28).decompress(content, 3 << 29)
        array = np.load(io.BytesIO(raw), allow_pickle=False)
        if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
            raise ValueError("its image is no uint8 RGB")
        return array
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        check_pixels("the image", image.height, image.width)
        return np.asarray(image.convert("RGB"))


def encode_array(image: NDArray[np.uint8]) -> bytes:
    """An image as ``npy.xz``."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(image))
    return lzma.compress(buffer.getvalue(), format=lzma.FORMAT_XZ, filters=XZ_FILTERS)


def decode_sample(members: dict[str, bytes]) -> ShardedStereo | ShardedFlow:
    """A sample from its members, by their names without the key."""
    info = read_json(members["json"])
    images = {}
    for view in ("left", "right"):
        suffix = next(name.removeprefix(f"{view}.") for name in members if name.startswith(f"{view}."))
        images[view] = decode_image(suffix, members[f"{view}.{suffix}"])
    truth: dict[str, Any] = {}
    if "truth.npz" in members:
        with np.load(io.BytesIO(members["truth.npz"]), allow_pickle=False) as arrays:
            truth = {name: arrays[name] for name in arrays.files}
    shape = images["left"].shape[:2]
    if any(array.shape[:2] != shape for array in (*truth.values(), images["right"])):
        raise ValueError("its arrays have different sizes")
    seen = truth.get("non_occluded")
    if info["kind"] == "flow":
        return ShardedFlow(str(info["name"]), images["left"], images["right"], truth.get("flow"), seen)
    return ShardedStereo(
        str(info["name"]), images["left"], images["right"], truth.get("disparity"), truth.get("disparity_right"), seen
    )


class ShardFile:
    """One shard at hand: samples by their number, in any order; threads may share it."""

    def __init__(self, path: Path, origin: str, temporary: bool = False) -> None:
        self.path, self.origin, self._temporary = path, origin, temporary
        self.samples: list[dict[str, tuple[int, int]]] = []
        key = None
        try:
            with tarfile.open(path, "r:") as archive:
                for member in archive:
                    if not member.isfile():
                        continue
                    own, _, name = member.name.partition(".")
                    if own != key:
                        self.samples.append({})
                        key = own
                    self.samples[-1][name] = (member.offset_data, member.size)
        except (tarfile.TarError, OSError, ValueError) as error:
            raise InputError(f"{origin} is no whole shard ({error}): write or fetch it again") from None

    def __getitem__(self, number: int) -> ShardedStereo | ShardedFlow:
        try:
            members = {}
            with self.path.open("rb") as file:
                for name, (offset, size) in self.samples[number].items():
                    file.seek(offset)
                    members[name] = file.read(size)
            return decode_sample(members)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"Sample {number} of {self.origin} is damaged ({str(error)[:120] or type(error).__name__}): "
                "write or fetch the shard again"
            ) from error

    def name(self, number: int) -> str:
        """Of a sample, without decoding it."""
        offset, size = self.samples[number]["json"]
        with self.path.open("rb") as file:
            file.seek(offset)
            return str(read_json(file.read(size))["name"])

    def forget(self) -> None:
        """Remove a fetched copy."""
        if self._temporary:
            self.path.unlink(missing_ok=True)


def is_remote(url: str) -> bool:
    """Whether an address needs fetching."""
    return "://" in url and not url.startswith("file://")


def read_shard_list(url: str) -> ShardList:
    """Shards by the address of their folder, of their ``shards.json``, or of one .tar file.

    Raises:
        InputError: Nothing is there, or it is not what `matchattention shard` writes.
    """
    url = url.removeprefix("file://")
    if url.endswith(".tar"):
        base, _, name = url.rpartition("/")
        base = base + "/" if base or url.startswith("/") else ""
        shard = ShardFile(Path(url), url) if not is_remote(url) else fetch(url)
        count = len(shard.samples)
        shard.forget()
        return ShardList(base, (name,), (count,))
    base = url.removesuffix(INDEX).rstrip("/") + "/"
    try:
        text = _read(base + INDEX)
    except FileNotFoundError:
        where = f"{base} cannot be reached or holds" if is_remote(base) else f"{base} holds"
        raise InputError(
            f"{where} no {INDEX}: make shards with 'matchattention shard DATASET ROOT --output DIR'"
        ) from None
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{base}{INDEX} cannot be read ({str(error)[:120]}): check address and rights") from None
    try:
        content = read_json(text)
        if content["format"] != FORMAT:
            raise ValueError("another format")
        names = tuple(str(shard["name"]) for shard in content["shards"])
        counts = tuple(int(shard["samples"]) for shard in content["shards"])
    except Exception as error:
        raise InputError(f"{base}{INDEX} cannot be read ({str(error)[:120]}): write the shards again") from None
    if not names or any("/" in name or count < 1 for name, count in zip(names, counts)):
        raise InputError(f"{base}{INDEX} lists no shards: write them again")
    return ShardList(base, names, counts)


def _read(url: str) -> bytes:
    if not is_remote(url):
        return Path(url).read_bytes()
    with _open_remote(url) as file:
        return file.read()


def _open_remote(url: str) -> Any:
    """A context that reads the file at an address."""
    try:
        import fsspec

        return fsspec.open(url, "rb")
    except ImportError as error:
        raise InputError(
            f"{url} cannot be opened here ({error}): pip install 'matchattention[remote]' for http and s3"
        ) from None


def fetch(url: str) -> ShardFile:
    """A remote shard as a temporary file."""
    handle, name = tempfile.mkstemp(prefix="matchattention-shard-", suffix=".tar")
    try:
        with os.fdopen(handle, "wb") as target, _open_remote(url) as source:
            while piece := source.read(1 << 22):
                target.write(piece)
        return ShardFile(Path(name), url, temporary=True)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, InputError) or not isinstance(error, Exception):
            raise
        raise InputError(f"{url} could not be fetched ({str(error)[:160] or type(error).__name__})") from error


class ShardCache:
    """The shards used last, at most `MOST_OPEN`; remote ones are fetched once each while they stay."""

    def __init__(self, shards: ShardList) -> None:
        self.shards = shards
        self._open: OrderedDict[int, ShardFile] = OrderedDict()
        self._locks = [threading.Lock() for _ in shards.names]
        self._lock = threading.Lock()

    def get(self, number: int) -> ShardFile:
        """Shard ``number``, opened or fetched if it is not at hand."""
        with self._locks[number]:  # two threads must not fetch the same one
            with self._lock:
                if number in self._open:
                    self._open.move_to_end(number)
                    return self._open[number]
            url = self.shards.url(number)
            shard = fetch(url) if is_remote(url) else ShardFile(Path(url), url)
            if len(shard.samples) != self.shards.samples[number]:
                raise InputError(f"{url} has {len(shard.samples)} samples, {INDEX} says {self.shards.samples[number]}")
            with self._lock:
                self._open[number] = shard
                dropped = [self._open.popitem(last=False)[1] for _ in range(len(self._open) - MOST_OPEN)]
        for old in dropped:
            old.forget()
        return shard

    def close(self) -> None:
        """Remove fetched copies."""
        with self._lock:
            for shard in self._open.values():
                shard.forget()
            self._open.clear()


class ShardedSamples(Sequence[Any]):
    """All samples of shards by their number, decoded when asked for."""

    def __init__(self, url: str) -> None:
        self.shards = read_shard_list(url)
        self._cache = ShardCache(self.shards)
        self._ends = np.cumsum(self.shards.samples)

    def __len__(self) -> int:
        return self.shards.total

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = int(np.searchsorted(self._ends, index, side="right"))
        return self._cache.get(number)[index - int(self._ends[number] - self.shards.samples[number])]


def index_json(names: Sequence[str], samples: Sequence[int], about: dict[str, Any]) -> str:
    """The text of ``shards.json``."""
    shards = [{"name": name, "samples": count} for name, count in zip(names, samples)]
    return json.dumps({"format": FORMAT, **about, "total": sum(samples), "shards": shards}, indent=1) + "\n"
