#!/usr/bin/env python3
"""Render the street of the bundled flow example: a pair of frames, or a film beside the motion that rt-flow finds.

    python scripts/flow_example.py pair --output matchattention/examples/drive
    python scripts/flow_example.py pair --output large --size 2160x3840 --step 0.5 --truth
    python scripts/flow_example.py film --output docs/images/flow.gif

No photo is in it: everything is drawn by `matchattention.synth`. The film's motion comes from `matchattention predict`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from matchattention.cli.main import main as matchattention
from matchattention.cli.sizes import parse_size
from matchattention.data.atomic import replacing
from matchattention.data.formats import read_flo
from matchattention.errors import InputError
from matchattention.inference.result_files import RECORD
from matchattention.synth.stream.export_flow import FlowPair, render_flow_pair, write_flow_files
from matchattention.synth.stream.scene_stream import SceneStream
from matchattention.synth.world.config import PRESETS
from matchattention.viz.flow import direction_colours, flow_picture

SEED, INDEX = 5, 9  # of the preset "drive"
FILM = (-1.5, 0.25, 18)  # first moment, time between frames, frames
SIDE = (320, 180)  # px, width x height of either half of the film
MILLISECONDS = 120  # a frame of the film


def street(size: tuple[int, int], samples: int) -> SceneStream:
    """The stream that the street is of."""
    return SceneStream(replace(PRESETS["drive"], samples=samples), size, 1, SEED, "cpu", INDEX)


def write_pair(folder: Path, pair: FlowPair, *, truth: bool) -> None:
    """Both frames as small files, and the motion and what it hides if asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    if truth:
        write_flow_files(folder, pair)
    for name, frame in (("frame1", pair.frame1), ("frame2", pair.frame2)):
        Image.fromarray(frame).save(folder / f"{name}.png", optimize=True)


def render_film(folder: Path, size: tuple[int, int], samples: int) -> None:
    """All frames as images whose names sort."""
    first, step, count = FILM
    stream = street(size, samples)
    for index, number in enumerate(range(0, count, 2)):
        moments = first + number * step, first + (number + 1) * step
        pair = render_flow_pair(stream, INDEX, moments)
        Image.fromarray(pair.frame1).save(folder / f"{number:03d}.png")
        Image.fromarray(pair.frame2).save(folder / f"{number + 1:03d}.png")
        print(f"rendered {2 * index + 2} of {count}", file=sys.stderr, flush=True)


def find_motion(frames: Path, flows: Path) -> list[np.ndarray]:
    """Motion of every frame to the next one, as anybody would compute it."""
    if matchattention(["predict", str(frames), "--task", "flow", "--only", "flow", "--output", str(flows)]) != 0:
        raise InputError("the motion of the film could not be computed; see the line above")
    return [read_flo(record.with_name("flow.flo")) for record in sorted(flows.glob(f"*/{RECORD}"))]


def film(frames: list[Path], flows: list[np.ndarray]) -> list[Image.Image]:
    """Each frame beside its motion, all on one scale and in one palette."""
    longest = float(np.percentile([np.linalg.norm(flow, axis=-1) for flow in flows], 98))
    shown = [Image.open(frame).resize(SIDE, Image.Resampling.LANCZOS) for frame in frames[: len(flows)]]
    palette = film_palette(shown)
    pictures = []
    for frame, flow in zip(shown, flows):
        picture = Image.new("RGB", (2 * SIDE[0], SIDE[1]))
        picture.paste(frame)
        picture.paste(Image.fromarray(flow_picture(flow, longest)).resize(SIDE, Image.Resampling.LANCZOS), (SIDE[0], 0))
        pictures.append(picture.quantize(palette=palette))
    return pictures


def film_palette(frames: list[Image.Image]) -> Image.Image:
    """An image with 256 colours: half of them for the frames, half for all motions there are."""
    strip = Image.new("RGB", (SIDE[0], SIDE[1] * len(frames)))
    for index, frame in enumerate(frames):
        strip.paste(frame, (0, index * SIDE[1]))
    span = np.linspace(-1, 1, 256)
    motions = Image.fromarray(direction_colours(np.stack(np.meshgrid(span, span), -1)))
    colours = [image.quantize(128).getpalette()[: 3 * 128] for image in (strip, motions)]
    palette = Image.new("P", (1, 1))
    palette.putpalette(colours[0] + colours[1])
    return palette


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("pair", "film"))
    parser.add_argument("--output", type=Path, required=True, help="folder of the pair, or the film's .gif")
    parser.add_argument("--size", help="HEIGHTxWIDTH in px (pair: 396x704, film: 360x640)")
    parser.add_argument("--step", type=float, default=1.0, help="pair: time between the frames (default 1)")
    parser.add_argument("--truth", action="store_true", help="pair: also flow.flo, flow_backward.flo, occlusions.png")
    parser.add_argument("--samples", type=int, default=8, help="rays a pixel (default 8)")
    arguments = parser.parse_args()
    size = parse_size(arguments.size or {"pair": "396x704", "film": "360x640"}[arguments.what])
    if arguments.what == "pair":
        pair = render_flow_pair(street(size, arguments.samples), INDEX, (0.0, arguments.step))
        write_pair(arguments.output, pair, truth=arguments.truth)
        return 0
    with tempfile.TemporaryDirectory() as work:
        frames, flows = Path(work) / "frames", Path(work) / "flows"
        frames.mkdir()
        render_film(frames, size, arguments.samples)
        first, *others = film(sorted(frames.iterdir()), find_motion(frames, flows))
        with replacing(arguments.output) as temporary:
            first.save(temporary, format="GIF", save_all=True, append_images=others, duration=MILLISECONDS, loop=0)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(f"flow_example: {error}", file=sys.stderr)
        sys.exit(2)
