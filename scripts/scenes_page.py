#!/usr/bin/env python3
"""Draw the contact sheet of rendered scenes and the page of statistics against real pairs.

    python scripts/scenes_page.py --real FOLDER

Writes docs/images/scenes.jpg, docs/images/scenes-statistics.png and docs/scenes-statistics.md. Of the real pairs only
distributions are kept, never images. Needs matplotlib and Pillow (the docs extra).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from matchattention.data.atomic import replacing
from matchattention.data.batch import Batch
from matchattention.data.formats import read_kitti_disparity_png16, read_pfm
from matchattention.data.images import read_image
from matchattention.errors import InputError
from matchattention.synth.photos.layered_photos import LayeredPhotoStream
from matchattention.synth.photos.photo_bank import load
from matchattention.synth.stream.distributions import Summary
from matchattention.synth.stream.scene_stream import SceneStream
from matchattention.synth.stream.statistics import MEASURES, Pair, summarise
from matchattention.synth.world.config import PRESETS

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 8
CELL = (192, 288)  # px, height x width of one picture on the sheet; disparity goes below it


def pairs_of(batch: Batch) -> Iterator[Pair]:
    """The samples of a batch, on the host."""
    for index in range(batch.image0.shape[0]):
        hidden = batch.occluded0[index].cpu() if batch.occluded0 is not None else None
        yield Pair(
            batch.image0[index].cpu(), batch.image1[index].cpu(), -batch.field0[index, ..., 0].cpu(),
            batch.valid0[index].cpu(), hidden,
        )  # fmt: skip


def image(path: Path) -> torch.Tensor:
    return torch.from_numpy(read_image(path)).permute(2, 0, 1).float()


def middlebury(root: Path) -> Iterator[Pair]:
    for folder in sorted((root / "MiddEval3" / "trainingQ").iterdir()):
        disparity = torch.from_numpy(read_pfm(folder / "disp0GT.pfm").copy())
        valid = disparity.isfinite()
        hidden = torch.from_numpy(read_image(folder / "mask0nocc.png")[..., 0].copy()) == 128
        yield Pair(image(folder / "im0.png"), image(folder / "im1.png"), disparity.nan_to_num(0, 0, 0), valid, hidden)


def kitti(root: Path) -> Iterator[Pair]:
    base = root / "kitti2015" / "training"
    for path in sorted((base / "disp_occ_0").glob("*_10.png")):
        disparity = torch.from_numpy(read_kitti_disparity_png16(path).copy())
        seen = torch.from_numpy(read_kitti_disparity_png16(base / "disp_noc_0" / path.name).copy()).isfinite()
        valid = disparity.isfinite()
        left, right = (image(base / f"image_{camera}" / path.name) for camera in (2, 3))
        yield Pair(left, right, disparity.nan_to_num(0, 0, 0), valid, valid & ~seen)


def eth3d(root: Path) -> Iterator[Pair]:
    for folder in sorted((root / "no_ground_truth" / "eth3d_two_view").iterdir()):
        if (folder / "im0.png").is_file():
            yield Pair(image(folder / "im0.png"), image(folder / "im1.png"))


REAL = {"Middlebury Q": middlebury, "KITTI 2015": kitti, "ETH3D (images)": eth3d}


def contact_sheet(pairs: list[Pair], path: Path) -> None:
    """Left view over its disparity, each disparity on its own scale; occluded pixels darker."""
    import matplotlib
    from PIL import Image

    colours = matplotlib.colormaps["turbo"]
    height, width = CELL
    sheet = Image.new("RGB", (COLUMNS * width, -(-len(pairs) // COLUMNS) * 2 * height))
    for index, pair in enumerate(pairs):
        assert pair.disparity is not None
        assert pair.occluded is not None
        scale = max(float(pair.disparity.quantile(0.995)), 1e-3)
        painted = colours((pair.disparity / scale).clamp(0, 1).numpy())[..., :3]
        painted = painted * np.where(pair.occluded.numpy()[..., None], 0.55, 1.0)
        left, top = index % COLUMNS * width, index // COLUMNS * 2 * height
        for row, picture in enumerate((pair.image0.permute(1, 2, 0).numpy(), painted * 255)):
            cell = Image.fromarray(picture.round().astype(np.uint8)).resize((width, height), Image.Resampling.LANCZOS)
            sheet.paste(cell, (left, top + row * height))
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        sheet.save(temporary, quality=82, optimize=True)


def histograms(summaries: list[Summary], path: Path) -> None:
    """One small plot for each measure, one line for each set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(5, 3, figsize=(13, 16), layout="constrained")
    for axis, (name, item) in zip(axes.flat, MEASURES.items()):
        edges = MEASURES[name].edges.numpy()
        for summary in summaries:
            if name in summary.histograms:
                style = "-" if summary.name.startswith(("Rendered", "Layered")) else "--"
                shares = np.array(summary.histograms[name])
                if summary.pairs < 500 and np.count_nonzero(shares) < len(shares) // 2:
                    shares = np.convolve(shares, np.ones(5) / 5, mode="same")  # one value a pair: few bins are hit
                axis.plot(edges[:-1], shares, style, label=summary.name, linewidth=1.4)
        axis.set_title(item.title, fontsize=10)
        axis.set_xlabel(item.unit, fontsize=8)
        axis.set_yticks([])
        if item.logarithmic:
            axis.set_xscale("log")
    axes.flat[0].legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=75)
    pyplot.close(figure)


def number(value: float) -> str:
    return f"{value:.3g}"


def page(summaries: list[Summary], command: str, remarks: Path) -> str:
    """The comparison as a page; what a person concluded from it is kept from ``remarks``."""
    lines = [
        "# Rendered pairs and real ones",
        "",
        "![64 rendered samples, each left view over its disparity](images/scenes.jpg)",
        "",
        "The first 64 samples of seed 0 of the preset `mixed`: left view over its disparity (warm is near, each on its",
        "own scale; darker where the other view cannot see the point).",
        "",
        "Statistics of rendered and of real pairs. Only distributions of the real ones are kept; they were looked at",
        "to find what is unlike a world, not to fit a dataset. 10 %, 50 % and 90 % quantiles over pixels, at most 4096",
        "of each pair (over pairs where a measure has one value a pair). KITTI's truth is sparse: its slopes and edges",
        "are those between neighbouring laser returns. Command: `" + command + "`.",
        "",
        "| measure | " + " | ".join(f"{item.name} ({item.pairs})" for item in summaries) + " |",
        "|---" * (len(summaries) + 1) + "|",
    ]
    for name, item in MEASURES.items():
        cells = [
            " / ".join(number(value) for value in summary.quantiles[name]) if name in summary.quantiles else "–"
            for summary in summaries
        ]
        unit = f", {item.unit}" if item.unit else ""
        lines.append(f"| {item.title}{unit} | " + " | ".join(cells) + " |")
    lines += ["", "![Histograms of all measures](images/scenes-statistics.png)", ""]
    marker = "## What it shows"
    if remarks.exists() and marker in (text := remarks.read_text(encoding="utf-8")):
        lines += [marker + text.split(marker, 1)[1].rstrip(), ""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, help="folder with MiddEval3, kitti2015 and no_ground_truth")
    parser.add_argument("--size", type=int, nargs=2, default=(384, 576), metavar=("H", "W"))
    parser.add_argument("--count", type=int, default=64, help="rendered samples (default 64)")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--sheet-only", action="store_true", help="draw the contact sheet, leave the statistics")
    parser.add_argument("--samples", type=int, help="rays per pixel instead of the preset's, to save time")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = tuple(arguments.size)
    config = PRESETS["mixed"] if arguments.samples is None else replace(PRESETS["mixed"], samples=arguments.samples)
    scenes = SceneStream(config, size, 4, 0, device)
    rendered: list[Pair] = []
    while len(rendered) < arguments.count:
        rendered += pairs_of(scenes.next())
        print(f"rendered {len(rendered)} of {arguments.count}", file=sys.stderr, flush=True)
    contact_sheet(rendered[:64], arguments.docs / "images" / "scenes.jpg")
    if arguments.sheet_only:
        return 0
    if arguments.real is None or not (arguments.real / "MiddEval3").is_dir():
        raise InputError("statistics need real pairs: name their folder with --real, or use --sheet-only")
    summaries = [summarise("Rendered", rendered)]
    bank = load(device=device)
    if bank is not None:
        stream = LayeredPhotoStream(bank, size, 8, 0, device)
        layered = [pair for _ in range(-(-arguments.count // 8)) for pair in pairs_of(stream.next())]
        summaries.append(summarise("Layered photos", layered))
    summaries += [summarise(name, read(arguments.real)) for name, read in REAL.items()]
    histograms(summaries, arguments.docs / "images" / "scenes-statistics.png")
    target = arguments.docs / "scenes-statistics.md"
    text = page(summaries, f"python scripts/scenes_page.py --count {arguments.count} --real FOLDER", target)
    with replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(f"scenes_page: {error}", file=sys.stderr)
        sys.exit(2)
