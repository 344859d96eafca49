"""From any dataset to shards: every image's own bytes where that is exact, ground truth as it is."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from matchattention.data.atomic import replacing
from matchattention.data.shards import INDEX, ShardFile, decode_image, encode_array, index_json
from matchattention.errors import InputError

Encoding = Literal["png", "npy.xz"]


def _image(path: Path | None, image: NDArray[np.uint8], encoding: Encoding) -> tuple[str, bytes]:
    """Suffix and bytes of an image; the file's own bytes when decoding them gives exactly this image."""
    if encoding == "npy.xz":
        return encoding, encode_array(image)
    suffix = "" if path is None else path.suffix.lower().lstrip(".")
    if path is not None and suffix in ("png", "jpg", "jpeg", "webp"):
        content = path.read_bytes()
        try:
            if np.array_equal(decode_image(suffix, content), image):
                return suffix, content
        except (OSError, ValueError):
            pass  # something the dataset's own reader knows better
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", compress_level=6)
    return "png", buffer.getvalue()


def members(sample: Any, encoding: Encoding) -> Iterator[tuple[str, bytes]]:
    """A sample's members of a shard, by their names without the key."""
    flow = hasattr(sample, "flow")
    views = ("frame1", "frame2") if flow else ("left", "right")
    yield "json", json.dumps({"name": sample.name, "kind": "flow" if flow else "stereo"}).encode()
    for view, attribute in zip(("left", "right"), views):
        suffix, content = _image(
            getattr(sample, f"{attribute}_path", None), np.asarray(getattr(sample, attribute)), encoding
        )
        yield f"{view}.{suffix}", content
    wanted = ("flow", "non_occluded") if flow else ("disparity", "disparity_right", "non_occluded")
    arrays = {name: value for name in wanted if (value := getattr(sample, name, None)) is not None}
    if arrays:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        yield "truth.npz", buffer.getvalue()


def _is_written(path: Path, names: Sequence[str], encoding: Encoding) -> bool:
    """Whether a file is the whole shard of these samples, encoded so."""
    if not path.is_file():
        return False
    try:
        shard = ShardFile(path, str(path))
        packed = {"left.npy.xz" in entries for entries in shard.samples}
        return packed == {encoding == "npy.xz"} and [shard.name(n) for n in range(len(shard.samples))] == list(names)
    except (InputError, KeyError, TypeError, ValueError):
        return False


def write_shards(
    samples: Sequence[Any],
    folder: Path,
    *,
    per_shard: int = 256,
    encoding: Encoding = "png",
    about: dict[str, Any] | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> list[Path]:
    """Write samples in order, ``per_shard`` to a file; whole shards of these samples that are there are kept.

    Args:
        samples: Of any dataset.
        folder: Made if need be.
        per_shard: Samples of a shard, the last one's rest.
        encoding: "png" keeps image files as they are; "npy.xz" needs no image library to read.
        about: Anything to store in ``shards.json``: dataset, split.
        progress: Takes each sample's name when it is written or found.
    """
    if per_shard < 1:
        raise InputError(f"A shard holds at least one pair, not {per_shard}")
    if (folder / INDEX).is_file():
        raise InputError(f"{folder} holds shards already: choose another --output, or remove it first")
    folder.mkdir(parents=True, exist_ok=True)
    paths, counts = [], []
    for number, first in enumerate(range(0, len(samples), per_shard)):
        path = folder / f"{number:06d}.tar"
        indices = range(first, min(first + per_shard, len(samples)))
        names = [samples[index].name for index in indices]
        if _is_written(path, names, encoding):
            for name in names:
                progress(name)
        else:
            with replacing(path) as temporary, tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as archive:
                for index in indices:
                    sample = samples[index]
                    for name, content in members(sample, encoding):
                        entry = tarfile.TarInfo(f"{index:08d}.{name}")
                        entry.size = len(content)
                        archive.addfile(entry, io.BytesIO(content))
                    progress(sample.name)
        paths.append(path)
        counts.append(len(indices))
    with replacing(folder / INDEX) as temporary:
        temporary.write_text(index_json([path.name for path in paths], counts, about or {}))
    return paths
