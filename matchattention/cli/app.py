"""`matchattention app`: a page in the browser."""

from __future__ import annotations

import argparse

from matchattention.errors import InputError

_EPILOG = """examples:
  matchattention app
  matchattention app --model runs/flow/model.safetensors      optical flow: two frames in, motion out
  matchattention app --model runs/mine/model.safetensors --port 8123

The page is served on 127.0.0.1, to this machine only; images stay on it. For a machine far away, tunnel:
  ssh -L 8000:127.0.0.1:8000 far-away matchattention app --no-browser
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("--port", type=int, default=8000, help="of 127.0.0.1 (default %(default)s)")
    parser.add_argument(
        "--model",
        default="rt",
        help="shipped model or .safetensors file; a flow model gets a page for two frames (default %(default)s)",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (default %(default)s)")
    parser.add_argument("--precision", default="auto", help="auto, fp32, fp16, bf16 (default %(default)s)")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser window")
    parser.add_argument(
        "--max-megabytes", type=float, default=40.0, metavar="MB", help="largest image file (default %(default)g)"
    )
    parser.add_argument(
        "--max-megapixels", type=float, default=16.0, metavar="MP", help="largest image (default %(default)g)"
    )


def run(arguments: argparse.Namespace) -> None:
    from pathlib import Path

    from matchattention.inference.predictor import Predictor
    from matchattention.models.checkpoint import load

    try:
        from matchattention.app.server import require_free_port, serve
        from matchattention.app.uploads import Limits
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("matchattention"):
            raise
        raise InputError(f"The page needs {error.name}: pip install 'matchattention[app]'.") from None
    if min(arguments.max_megabytes, arguments.max_megapixels) <= 0:
        raise InputError("--max-megabytes and --max-megapixels must be positive.")
    require_free_port(arguments.port)
    predictor = Predictor(load(arguments.model), arguments.device, arguments.precision)
    limits = Limits(megabytes=arguments.max_megabytes, megapixels=arguments.max_megapixels)
    serve(predictor, Path(arguments.model).stem, arguments.port, browser=not arguments.no_browser, limits=limits)
