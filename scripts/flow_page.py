#!/usr/bin/env python3
"""Draw the contact sheet of moving scenes and the page of statistics against real flow pairs.

    python scripts/flow_page.py --real FOLDER

Writes docs/images/flow-scenes.jpg, docs/images/flow-statistics.png and docs/flow-statistics.md. Of the real pairs only
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

from matchattention.data import datasets
from matchattention.data.atomic import replacing
from matchattention.data.batch import Batch
from matchattention.data.datasets.folder import FLOW_PATTERNS
from matchattention.errors import InputError
from matchattention.synth.photos.moving_photos import MovingPhotoStream
from matchattention.synth.photos.photo_bank import load
from matchattention.synth.stream.distributions import Summary
from matchattention.synth.stream.flow_statistics import MEASURES, FlowPair, summarise
from matchattention.synth.stream.scene_stream import SceneStream
from matchattention.synth.world.config import PRESETS
from matchattention.viz.flow import flow_picture

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 6
CELL = (144, 288)  # px, height x width of one picture on the sheet
KITTI = replace(FLOW_PATTERNS, truth="*/flow_occ.png", visible="*/flow_noc.png")
REAL = {
    "KITTI 2015": ("kitti2015", KITTI),
    "KITTI 2012": ("kitti2012", KITTI),
    "Sintel": ("sintel", FLOW_PATTERNS),
    "Middlebury": ("middlebury", FLOW_PATTERNS),
    "FlyingChairs": ("flyingchairs", FLOW_PATTERNS),
}


def pairs_of(batch: Batch) -> Iterator[FlowPair]:
    """The samples of a batch, on the host."""
    for index in range(batch.image0.shape[0]):
        hidden = batch.occluded0[index].cpu() if batch.occluded0 is not None else None
        yield FlowPair(
            batch.image0[index].cpu(), batch.image1[index].cpu(), batch.field0[index].cpu(),
            batch.valid0[index].cpu(), hidden,
        )  # fmt: skip


def real_pairs(root: Path, name: str) -> Iterator[FlowPair]:
    """Real pairs of one set with their truth."""
    folder, patterns = REAL[name]
    for sample in datasets.open("folder-flow", root / folder, None, patterns):
        flow = torch.from_numpy(np.array(sample.flow))
        valid = flow.isfinite().all(-1)
        seen = sample.non_occluded
        frames = (
            torch.from_numpy(np.array(frame)).permute(2, 0, 1).float() for frame in (sample.frame1, sample.frame2)
        )
        hidden = None if seen is None else valid & ~torch.from_numpy(np.array(seen))
        yield FlowPair(*frames, torch.where(valid[..., None], flow, 0.0), valid, hidden)


def contact_sheet(pairs: list[FlowPair], path: Path) -> None:
    """Both frames over the motion in colours with its wheel; pixels that the second frame does not show are darker."""
    from PIL import Image

    height, width = CELL
    sheet = Image.new("RGB", (COLUMNS * width, -(-len(pairs) // COLUMNS) * 3 * height))
    for index, pair in enumerate(pairs):
        field = np.where(pair.valid.numpy()[..., None], pair.flow.numpy(), np.nan)
        painted = flow_picture(field).astype(np.float32)
        if pair.occluded is not None:
            painted *= np.where(pair.occluded.numpy()[..., None], 0.6, 1.0)
        left, top = index % COLUMNS * width, index // COLUMNS * 3 * height
        frames = [image.permute(1, 2, 0).numpy() for image in (pair.image0, pair.image1)]
        for row, picture in enumerate((*frames, painted)):
            cell = Image.fromarray(picture.round().clip(0, 255).astype(np.uint8))
            sheet.paste(cell.resize((width, height), Image.Resampling.LANCZOS), (left, top + row * height))
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        sheet.save(temporary, quality=80, optimize=True)


def histograms(summaries: list[Summary], path: Path) -> None:
    """One small plot for each measure, one line for each set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(4, 3, figsize=(13, 13), layout="constrained")
    for axis, (name, item) in zip(axes.flat, MEASURES.items()):
        edges = MEASURES[name].edges.numpy()
        for summary in summaries:
            if name not in summary.histograms:
                continue
            shares = np.array(summary.histograms[name])
            if np.count_nonzero(shares) < len(shares) // 2:
                shares = np.convolve(shares, np.ones(5) / 5, mode="same")  # one value a pair: few bins are hit
            style = "--" if summary.name in REAL else "-"
            axis.plot(edges[:-1], shares, style, label=summary.name, linewidth=1.4)
        axis.set_title(item.title, fontsize=10)
        axis.set_xlabel(item.unit, fontsize=8)
        axis.set_yticks([])
        if item.logarithmic:
            axis.set_xscale("log")
    axes.flat[0].legend(fontsize=8)
    axes.flat[-1].axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=75)
    pyplot.close(figure)


def page(summaries: list[Summary], command: str, remarks: Path) -> str:
    """The comparison as a page; what a person concluded from it is kept from ``remarks``."""
    lines = [
        "# Moving scenes and real ones",
        "",
        "![Rendered flow pairs, both frames over the motion](images/flow-scenes.jpg)",
        "",
        "Samples of the preset `flow` and, in the last two rows of pairs, of moving photos: both frames over the",
        "motion in colours, each on the scale of its own wheel; darker where the second frame does not show the point.",
        "",
        "Statistics of rendered and of real pairs. Only distributions of the real ones are kept; they were looked at",
        "to find what is unlike a world, not to fit a dataset. 10, 50, 90 and 99 % quantiles over pixels, at most",
        "4096 of each pair (over pairs where a measure has one value a pair). Command: `" + command + "`.",
        "",
        "| measure | " + " | ".join(f"{item.name} ({item.pairs})" for item in summaries) + " |",
        "|---" * (len(summaries) + 1) + "|",
    ]
    for name, item in MEASURES.items():
        cells = [
            " / ".join(f"{value:.2g}" for value in summary.quantiles[name]) if name in summary.quantiles else "–"
            for summary in summaries
        ]
        lines.append(f"| {item.title}, {item.unit} | " + " | ".join(cells) + " |")
    lines += ["", "![Histograms of all measures](images/flow-statistics.png)", ""]
    marker = "## What it shows"
    if remarks.exists() and marker in (text := remarks.read_text(encoding="utf-8")):
        lines += [marker + text.split(marker, 1)[1].rstrip(), ""]
    return "\n".join(lines)


def collected(stream: SceneStream | MovingPhotoStream, count: int, what: str) -> list[FlowPair]:
    """The stream's next pairs."""
    pairs: list[FlowPair] = []
    while len(pairs) < count:
        pairs += pairs_of(stream.next())
        print(f"{what}: {len(pairs)} of {count}", file=sys.stderr, flush=True)
    return pairs[:count]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, help="folder with kitti2015, kitti2012, sintel, middlebury, flyingchairs")
    parser.add_argument("--size", type=int, nargs=2, default=(160, 320), metavar=("H", "W"))
    parser.add_argument("--count", type=int, default=48, help="rendered samples, and as many of moving photos (48)")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--preset", default="flow", help="of the scenes (flow)")
    parser.add_argument("--samples", type=int, help="rays per pixel and moments of an exposure, to save time")
    parser.add_argument("--sheet-only", action="store_true", help="draw the contact sheet, leave the statistics")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = tuple(arguments.size)
    config = PRESETS[arguments.preset]
    if arguments.samples is not None:
        config = replace(config, samples=arguments.samples)
    rendered = collected(SceneStream(config, size, 4, 0, device), arguments.count, "rendered")
    bank = load(device=device)
    moved = [] if bank is None else collected(MovingPhotoStream(bank, size, 8, 0, device), arguments.count, "photos")
    contact_sheet(rendered[: 6 * COLUMNS] + moved[: 2 * COLUMNS], arguments.docs / "images" / "flow-scenes.jpg")
    if arguments.sheet_only:
        return 0
    if arguments.real is None or not arguments.real.is_dir():
        raise InputError("statistics need real pairs: name their folder with --real, or use --sheet-only")
    summaries = [summarise("Rendered", rendered)]
    if moved:
        summaries.append(summarise("Moving photos", moved))
    summaries += [summarise(name, real_pairs(arguments.real, name)) for name in REAL]
    histograms(summaries, arguments.docs / "images" / "flow-statistics.png")
    target = arguments.docs / "flow-statistics.md"
    samples = "" if arguments.samples is None else f" --samples {arguments.samples}"
    options = f"--count {arguments.count} --size {size[0]} {size[1]}{samples}"
    text = page(summaries, f"python scripts/flow_page.py {options} --real FOLDER", target)
    with replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(f"flow_page: {error}", file=sys.stderr)
        sys.exit(2)
