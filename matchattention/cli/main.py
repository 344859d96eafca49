"""The command line: one table of commands, one place where errors become sentences."""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from matchattention.errors import InputError, InputWarning

# Each command is a module of this package with `add_arguments(parser)` and `run(arguments)`.
# It is imported only when chosen, so that `--help` needs neither torch nor optional packages.
COMMANDS = {
    "predict": "disparity, depth and point cloud of a pair, a folder or a video",
    "evaluate": "measure a model on a benchmark",
    "submission": "write the files that a benchmark's server takes",
    "results": "the paper's tables with our rows, from evaluation files",
    "render": "render stereo scenes with exact ground truth",
    "train": "train or fine-tune a network",
    "scale": "what a training or an archive takes on many GPUs, from rates of one",
    "shard": "write a dataset as WebDataset shards, for training from file or object stores",
    "train-confidence": "train the small head that tells how far off each match may be",
    "bench": "time the operator, a network or a training step",
    "ablate": "the paper's ablation tables, every row under the same budget",
    "figure": "the paper's figures, measured here and drawn",
    "export": "write a network as ONNX, OpenVINO or torch.export, checked against PyTorch",
    "convert": "turn a released .pth file into a .safetensors checkpoint",
    "models": "list the registered networks",
    "doctor": "what this machine has, which backends run and why not",
    "app": "a page in the browser: drop two images, see depth",
    "serve": "matching over HTTP: Open Inference Protocol v2 and POST /depth",
    "rectify": "rectify a raw pair with an OpenCV calibration",
}


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the whole list of options."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    parser = _Parser(prog="matchattention", description="Stereo depth and optical flow with MatchAttention.")
    from matchattention import __version__

    parser.add_argument("--version", action="version", version=f"matchattention {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == chosen:
            module = importlib.import_module(f"matchattention.cli.{name.replace('-', '_')}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
            parser.prog = command.prog  # what it finds wrong is wrong with this command
    return parser


def _say_warnings_once() -> None:
    """Warnings in one sentence each, however many pairs they are true of; nothing of what image libraries mumble."""
    said: set[str] = set()

    def say(warning: Warning | str, category: type[Warning], *_: object) -> None:
        if str(warning) not in said:
            said.add(str(warning))
            print(f"warning: {warning}", file=sys.stderr)

    warnings.simplefilter("always", InputWarning)
    warnings.filterwarnings("ignore", module=r"PIL\.")
    warnings.showwarning = say  # type: ignore[assignment]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns 0, 2 for input the user has to change, 130 for Ctrl-C."""
    argv = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in argv if word in COMMANDS), None)
    arguments = _parser(chosen).parse_args(argv)
    _say_warnings_once()
    try:
        arguments.run(arguments)
    except InputError as error:
        print(f"matchattention {arguments.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        return 0
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        print(f"matchattention {arguments.command}: {error.strerror or error}{where}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"matchattention {arguments.command}: stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
