"""``matchattention render``: scenes of our own, stereo or moving, with exact ground truth."""

from __future__ import annotations

import argparse
from pathlib import Path

from matchattention.cli.sizes import parse_size
from matchattention.errors import InputError

_EPILOG = """\
examples:
  matchattention render --count 100 --output scenes
  matchattention render --count 20 --output streets --preset street --size 384x1248 --seed 7
  matchattention render --count 50 --output moving --preset flow

Each scene is a folder in Middlebury's layout: im0.png and im1.png (left and right), disp0GT.pfm and disp1GT.pfm
(px; inf is unknown, 0 is the sky), mask0nocc.png (255 visible in both views, 128 occluded, 0 unknown) and calib.txt.
Moving scenes (flow, flow-rolling, flow-small, drive) are what `folder-flow` reads: frame1.png, frame2.png, flow.flo,
flow_backward.flo and occlusions.png (255 where the second frame does not show the point).
Scene i of a seed and preset is always the same scene. Run the same command again to resume; a larger --count adds.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    from matchattention.synth.world.config import PRESETS

    parser.epilog = _EPILOG
    parser.add_argument("--count", type=int, required=True, metavar="N", help="how many scenes the folder shall hold")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the scenes' folders")
    parser.add_argument("--preset", default="mixed", help=f"kind of scenes: {', '.join(PRESETS)} (default mixed)")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other scenes (default 0)")
    parser.add_argument("--size", default="512x768", metavar="HxW", help="height x width, px (default 512x768)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (default auto)")


def run(arguments: argparse.Namespace) -> None:
    """Render until the folder holds `count` scenes."""
    from matchattention.cli.progress import Progress
    from matchattention.inference.outputs import require_writable
    from matchattention.runtime.precision import choose_device
    from matchattention.synth.stream.export import export
    from matchattention.synth.stream.scene_stream import SceneStream
    from matchattention.synth.world.config import PRESETS

    if arguments.count < 1:
        raise InputError(f"--count {arguments.count} renders nothing; ask for at least 1")
    if arguments.preset not in PRESETS:
        raise InputError(f"No preset is called {arguments.preset!r}; choose one of {', '.join(PRESETS)}")
    size = parse_size(arguments.size)
    require_writable(arguments.output)
    stream = SceneStream(PRESETS[arguments.preset], size, 1, arguments.seed, choose_device(arguments.device))
    progress = Progress(arguments.count, "scene")
    try:
        export(
            stream,
            arguments.preset,
            arguments.count,
            arguments.output,
            lambda name, present: progress.step(name, "there already" if present else "", skipped=present),
        )
    finally:
        progress.close()
