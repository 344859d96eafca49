"""`matchattention figure`: the paper's figures, measured here and drawn."""

from __future__ import annotations

import argparse
import functools
import importlib.util
from pathlib import Path

from matchattention.cli.sizes import parse_size
from matchattention.errors import InputError

EPILOG = """\
figures:
{figures}

examples:
  matchattention figure self-positions              measures, then draws docs/images/figure-self-positions.png
  matchattention figure operator-tokens --no-draw   measures alone, on a machine without matplotlib
  matchattention figure operator-tokens --draw      draws what benchmarks/results has, measures nothing

A measurement goes to benchmarks/results/figure-NAME-DEVICE.json with date, commit, hardware and versions.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    from matchattention.ablation.figures.table import FIGURES

    parser.epilog = EPILOG.format(figures="\n".join(f"  {name:18} {words}" for name, words in FIGURES.items()))
    parser.add_argument("name", help="of the figure, see below")
    parser.add_argument("--model", default="rt", help="network of the figures that show one (rt)")
    parser.add_argument("--size", metavar="HxW", help="height x width, px, instead of the figure's own")
    parser.add_argument("--count", type=int, help="pairs, or tokens a side of the largest map, instead of its own")
    parser.add_argument("--scenes", help="the renderer's preset (mixed)")
    parser.add_argument("--seconds", type=float, default=0.5, help="measuring time of each case (0.5)")
    parser.add_argument("--from", dest="files", type=Path, nargs="+", default=[], help="files to draw from")
    parser.add_argument("--pool-folder", type=Path, help="keeps rendered pairs for the next time")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--output", type=Path, help="folder of the JSON file (benchmarks/results)")
    parser.add_argument("--picture", type=Path, help="the picture (docs/images/figure-NAME.png)")
    drawing = parser.add_mutually_exclusive_group()
    drawing.add_argument("--draw", metavar="FILE", nargs="?", const="", help="draw a measurement, measure nothing")
    drawing.add_argument("--no-draw", action="store_true", help="measure alone")


def run(arguments: argparse.Namespace) -> None:
    """Measure and draw one figure."""
    from matchattention.ablation.figures.settings import Settings
    from matchattention.ablation.figures.table import FIGURES, figure_module
    from matchattention.bench import report
    from matchattention.data.reading import read_json
    from matchattention.runtime.precision import choose_device

    if arguments.name not in FIGURES:
        raise InputError(f"There is no figure '{arguments.name}'; choose one of {', '.join(FIGURES)}.")
    if importlib.util.find_spec("matplotlib") is None and not arguments.no_draw:
        raise InputError(
            "Drawing needs matplotlib: pip install 'matchattention[docs]', or measure alone with --no-draw."
        )
    module = figure_module(arguments.name)
    device = choose_device(arguments.device)
    name = f"figure-{arguments.name}"
    say = functools.partial(print, flush=True)
    settings = Settings(
        device=device,
        say=say,
        keep=functools.partial(report.write, name, device, arguments.output),
        model=arguments.model,
        size=_size(arguments.size),
        count=arguments.count,
        scenes=arguments.scenes,
        seconds=arguments.seconds,
        pool_folder=arguments.pool_folder,
        files=tuple(arguments.files),
    )
    if arguments.draw is None:
        written = report.write(name, device, arguments.output, module.measure(settings))
        say(f"written: {written}")
    else:
        written = Path(arguments.draw) if arguments.draw else _newest(name, arguments.output or report.RESULTS)
    if arguments.no_draw:
        return
    try:
        data = read_json(written.read_bytes())
    except ValueError as error:
        raise InputError(f"{written} is no measurement of a figure: {error}.") from None
    picture = arguments.picture or Path("docs") / "images" / f"{name}.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    module.draw(data, picture, settings)
    say(f"drawn: {picture}")


def _newest(name: str, folder: Path) -> Path:
    found = sorted(folder.glob(f"{name}-*.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise InputError(f"{folder} has no {name}-*.json: measure it first, without --draw.")
    return found[-1]


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    height, width = parse_size(text)
    if height % 32 or width % 32:
        raise InputError(f"Sizes of figures are multiples of 32 px; got '{text}'.")
    return height, width
