"""Pairs a second that training can be fed with: image files, shards and rendered scenes beside each other.

    python3 benchmarks/input_throughput.py --pairs 64 --size 540x960 --crop 320x640 --output $OUT

Renders pairs once, writes them as PNG and PFM files and as shards (both encodings), then draws batches from each source
as training does, augmentation included. Without an image library there are no PNGs, and the rest is measured. Writes
input-throughput-DEVICE.json. Close other programs: what is measured is the CPU, except for scenes rendered on a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from numpy.typing import NDArray

from matchattention.bench import report
from matchattention.data import datasets
from matchattention.data.formats import write_pfm
from matchattention.data.shard_writer import write_shards
from matchattention.training.file_source import FileSource
from matchattention.training.recipe import SourceConfig
from matchattention.training.shard_source import ShardSource
from matchattention.training.supply import make_source


class Pair(NamedTuple):
    """A rendered pair as a dataset's sample: (H, W, 3) uint8 and (H, W) px."""

    name: str
    left: NDArray[np.uint8]
    right: NDArray[np.uint8]
    disparity: NDArray[np.float32]


def render_pairs(count: int, height: int, width: int, scenes: str, device: torch.device) -> list[Pair]:
    """Rendered pairs in memory."""
    source = make_source((SourceConfig("scenes", preset=scenes),), 3, device)
    pairs = []
    for number in range(count):
        batch = source.batch(number, 1, height, width)
        views = [i[0].permute(1, 2, 0).clamp(0, 255).byte().cpu().numpy() for i in (batch.image0, batch.image1)]
        pairs.append(Pair(f"scene{number:04d}", *views, -batch.field0[0, ..., 0].cpu().numpy()))
    return pairs


def write_files(root: Path, pairs: list[Pair]) -> None:
    """Pairs in Middlebury's file names."""
    from PIL import Image

    for pair in pairs:
        folder = root / pair.name
        folder.mkdir(parents=True)
        for name, image in (("im0", pair.left), ("im1", pair.right)):
            Image.fromarray(image).save(folder / f"{name}.png")
        write_pfm(folder / "disp0GT.pfm", pair.disparity)


def rate(source: Any, batch: int, crop: tuple[int, int], seconds: float) -> dict[str, float]:
    """Pairs a second of a source, after one batch to warm up."""
    source.batch(0, batch, *crop)
    began, drawn = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        source.batch(batch + drawn, batch, *crop)
        drawn += batch
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    spent = time.monotonic() - began
    return {"pairs_per_second": drawn / spent, "pairs": drawn, "seconds": spent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--size", default="540x960", help="HxW of the stored pairs, as Scene Flow has")
    parser.add_argument("--crop", default="320x640")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--scenes", default="mixed")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    height, width = (int(part) for part in arguments.size.split("x"))
    crop = tuple(int(part) for part in arguments.crop.split("x"))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    results: dict[str, Any] = {
        "stored": [height, width],
        "crop": list(crop),
        "batch": arguments.batch,
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "sources": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        pairs = render_pairs(arguments.pairs, height, width, arguments.scenes, device)
        sources: dict[str, Any] = {}
        if importlib.util.find_spec("PIL") is not None:
            write_files(root / "files", pairs)
            samples = datasets.open("folder", root / "files")
            sources["files"] = lambda: FileSource(samples, 0, "cpu")
            write_shards(samples, root / "png", per_shard=16)
            sources["shards png"] = lambda: ShardSource(str(root / "png"), 0, "cpu")
        write_shards(pairs, root / "npy.xz", per_shard=16, encoding="npy.xz")
        sources["shards npy.xz"] = lambda: ShardSource(str(root / "npy.xz"), 0, "cpu")
        sources["scenes"] = lambda: make_source((SourceConfig("scenes", preset=arguments.scenes),), 5, device)
        for name, make in sources.items():
            found = rate(make(), arguments.batch, crop, arguments.seconds)
            stored = root / name.removeprefix("shards ")
            if stored.is_dir():
                size = sum(path.stat().st_size for path in stored.rglob("*") if path.is_file())
                found["megabytes_a_pair"] = size / arguments.pairs / 1e6
            results["sources"][name] = found
            print(f"{name:14s} {found['pairs_per_second']:8.1f} pairs/s", flush=True)
            report.write("input-throughput", device, arguments.output, results)


if __name__ == "__main__":
    main()
