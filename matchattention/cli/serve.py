"""`matchattention serve`: matching over HTTP."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from matchattention.errors import InputError

TOKEN_VARIABLE = "MATCHATTENTION_TOKEN"
_EPILOG = f"""examples:
  matchattention serve
  curl -F left=@left.png -F right=@right.png -F fx=700 -F baseline=0.12 http://127.0.0.1:8080/depth -o depth.png
  {TOKEN_VARIABLE}=$(openssl rand -hex 24) matchattention serve --host 0.0.0.0

Open Inference Protocol v2 at /v2 (tritonclient and KServe's clients speak it), two image files at /depth,
Prometheus' counters at /metrics. docs/serving.md has every address, answer and limit.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="0: any free one (default %(default)s)")
    parser.add_argument("--model", default="rt", help="shipped model or .safetensors file (default %(default)s)")
    parser.add_argument("--name", help="of the model in the addresses (default: the model's own)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (default %(default)s)")
    parser.add_argument("--precision", default="auto", help="auto, fp32, fp16, bf16 (default %(default)s)")
    parser.add_argument(
        "--token-file",
        type=Path,
        help=f"file with the token that requests must carry; else the variable {TOKEN_VARIABLE}. "
        "Needed unless only this machine can reach --host",
    )
    parser.add_argument("--queue", type=int, default=32, help="requests at once, then 503 (default %(default)s)")
    parser.add_argument(
        "--largest-batch", type=int, default=4, help="pairs of one size in a pass (default %(default)s)"
    )
    parser.add_argument(
        "--batch-wait-ms", type=float, default=2.0, metavar="MS", help="wait for more of them (default %(default)s)"
    )
    parser.add_argument("--timeout-s", type=float, default=60.0, metavar="S", help="then 504 (default %(default)s)")
    parser.add_argument(
        "--megabytes", type=float, default=64.0, metavar="MB", help="of a request (default %(default)s)"
    )
    parser.add_argument("--megapixels", type=float, default=4.2, metavar="MP", help="of an image (default %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    try:
        from matchattention.exporting.predictor import refuse_exported
        from matchattention.serve.server import listen, serve
        from matchattention.serve.settings import Settings, require_token
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("matchattention"):
            raise
        raise InputError(f"The server needs {error.name}: pip install 'matchattention[serve]'.") from None
    settings = Settings(
        queue=arguments.queue,
        largest_batch=arguments.largest_batch,
        batch_wait_ms=arguments.batch_wait_ms,
        timeout_s=arguments.timeout_s,
        megabytes=arguments.megabytes,
        megapixels=arguments.megapixels,
    )
    refuse_exported(arguments.model, "the server")
    name = arguments.name or Path(arguments.model).stem
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise InputError(f"'{name}' cannot stand in an address: give --name with letters, digits, '.', '_' and '-'.")
    token = _token(arguments.token_file)
    require_token(arguments.host, token)
    listener = listen(arguments.host, arguments.port)
    try:
        from matchattention.inference.predictor import Predictor

        predictor = Predictor(arguments.model, arguments.device, arguments.precision, check=False)
        serve(predictor, name, listener, settings, token=token)
    finally:
        listener.close()


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        return file.read_text().strip()
    except OSError as error:
        raise InputError(f"The token file {file} cannot be read ({error.strerror}).") from None
