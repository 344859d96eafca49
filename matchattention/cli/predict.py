"""`matchattention predict`: from pairs to disparity, depth and clouds."""

from __future__ import annotations

import argparse
import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matchattention.errors import InputError, InputWarning

if TYPE_CHECKING:
    import torch

    from matchattention.cli.rerun_log import RerunLog
    from matchattention.geometry.camera import StereoCamera
    from matchattention.inference.images import Image
    from matchattention.inference.predictor import Predictor
    from matchattention.inference.sources import Pair

_EXAMPLES = """examples:
  matchattention predict left.png right.png --output result
  matchattention predict left.png right.png --output result --camera calib.txt
  matchattention predict left_folder right_folder --output results      one sub-folder a pair; resumes
  matchattention predict 'shots/*_left.png' 'shots/*_right.png' --output results
  matchattention predict scenes --output results                        a tree with im0/im1 or left/right
  matchattention predict pairs.txt --output results                     two paths a line
  matchattention predict both.png --side-by-side --output result
  matchattention predict stereo.mp4 --side-by-side --output depth.mp4
  matchattention predict --live 0 1                                     two cameras, in a window
  matchattention predict frame1.png frame2.png --task flow --output result
  matchattention predict video.mp4 --task flow --output flow.mp4        each frame to the next
  matchattention predict frames --task flow --output flows              a folder of frames, likewise
  matchattention predict --example --output output/demo
  matchattention predict --example --task flow --output output/motion

For stereo the images must be rectified: the same thing on the same row in both. `matchattention rectify` does that.
Swapped views and vertical error are measured and refused; --no-check goes on all the same.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "inputs", nargs="*", metavar="INPUT",
        help="LEFT and RIGHT image, folder, glob or video; or one folder of scenes, list of pairs (.txt, .csv), "
        "or side-by-side image or video; for flow also one video or folder of frames",
    )  # fmt: skip
    parser.add_argument("--output", metavar="DIR", help="folder for the results, or a video file (.mp4, .avi)")
    parser.add_argument(
        "--model", default=None, help="shipped model, .safetensors or released .pth file (default rt; flow: rt-flow)"
    )
    parser.add_argument("--task", choices=("stereo", "flow"), default="stereo", help="what the model is for")
    parser.add_argument(
        "--engine", choices=("onnx", "openvino", "ray"),
        help="run the file of `matchattention export` given as --model (.onnx, .xml) by this; else its suffix decides; "
        "ray: archives of pairs on many processes or machines, results in Parquet shards",
    )  # fmt: skip
    parser.add_argument(
        "--camera", metavar="FILE",
        help="calibration for depth and cloud: Middlebury, KITTI, K.txt, OpenCV or ROS YAML, JSON; or numbers like "
        "fx=451,baseline=0.075,cx=299,cy=235. A bare name not found here is looked for beside each left image",
    )  # fmt: skip
    parser.add_argument("--baseline", type=float, metavar="M", help="metres between the cameras, in place of FILE's")
    parser.add_argument("--max-depth", type=float, default=float("inf"), metavar="M", help="cloud: leave out beyond")
    parser.add_argument(
        "--min-confidence", type=float, default=0.5, metavar="X",
        help="cloud: leave out points under this confidence, 0 to 1 (default 0.5)",
    )  # fmt: skip
    parser.add_argument(
        "--confidence", default="auto", metavar="HOW",
        help="auto: the model's own confidence head where it has one (probability of being within 1 px); agreement: do "
        "both views agree; or the FILE of a head",
    )  # fmt: skip
    parser.add_argument(
        "--only", metavar="KINDS",
        help="write these results alone, with commas between: disparity, right, flow, occlusion, confidence, depth, "
        "cloud, explain",
    )  # fmt: skip
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (default auto)")
    parser.add_argument("--precision", default="auto", help="auto, fp32, fp16, bf16 (default auto)")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: one a core)")
    parser.add_argument("--side-by-side", action="store_true", help="each image or frame holds both views")
    parser.add_argument("--live", nargs="+", metavar="SOURCE", help="cameras: one side-by-side or two; number or URL")
    parser.add_argument("--frames", type=int, metavar="N", help="stop a video or camera after N frames")
    parser.add_argument("--no-check", action="store_true", help="skip the check for swapped or unrectified views")
    parser.add_argument("--explain", action="store_true", help="add pictures of attention and of every block's field")
    parser.add_argument("--overwrite", action="store_true", help="compute again what is there already")
    parser.add_argument(
        "--rerun", nargs="?", const="", metavar="FILE.rrd", help="show in the Rerun viewer, or save for it"
    )
    parser.add_argument(
        "--example", nargs="?", const="", metavar="NAME", help="use a bundled pair: donkey or workbench; for flow drive"
    )
    from matchattention.cli.predict_archive import add_archive_arguments

    add_archive_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    if arguments.engine == "ray":
        from matchattention.cli.predict_archive import run_archive

        return run_archive(arguments)
    from matchattention.inference.sequences import holds_sequence
    from matchattention.inference.sources import find_pairs, is_one_pair, is_video

    if not arguments.max_depth > 0:
        raise InputError(f"--max-depth is a distance in metres: give a positive number, not {arguments.max_depth:g}.")
    if not 0 <= arguments.min_confidence <= 1:
        raise InputError(f"--min-confidence is between 0 and 1, not {arguments.min_confidence:g}.")
    _check_only(arguments)
    if arguments.baseline is not None and arguments.camera is None and not _has_example_camera(arguments):
        raise InputError("--baseline belongs to a calibration: give --camera too, or leave it out.")
    if arguments.threads is not None:
        arguments.threads = _use_threads(arguments.threads)
    if arguments.example is not None:
        _use_example(arguments)
    inputs = arguments.inputs
    if arguments.live:
        from matchattention.cli.predict_video import run_live

        if inputs:
            raise InputError("--live takes its frames from cameras: leave the inputs out.")
        run_live(arguments)
        return
    if not 1 <= len(inputs) <= 2:
        raise InputError(
            "Give LEFT and RIGHT (images, folders, globs or videos), or one folder, list or --side-by-side file; "
            f"{len(inputs)} inputs came. Quote globs so that the shell leaves them whole."
            if inputs
            else "Give LEFT and RIGHT images, a folder, a list, or --example; see --help."
        )
    if not arguments.output and arguments.rerun is None:
        raise InputError("Give --output DIR: the folder for the results.")
    follows = arguments.task == "flow" and len(inputs) == 1 and not arguments.side_by_side
    if is_video(inputs[0]) or (follows and holds_sequence(inputs[0])):
        from matchattention.cli.predict_video import run_video

        run_video(arguments)
        return
    if arguments.output is not None and is_video(arguments.output):
        raise InputError(f"{arguments.output} is a video, the inputs are images: give a folder as --output.")
    left, right = inputs[0], inputs[1] if len(inputs) == 2 else None
    pairs = find_pairs(left, right, side_by_side=arguments.side_by_side)
    _run_pairs(arguments, pairs, is_one_pair(left, right, arguments.side_by_side))


def _check_only(arguments: argparse.Namespace) -> None:
    from matchattention.inference.result_files import check_kinds, kinds_of

    if arguments.only is None:
        return
    arguments.only = kinds_of(arguments.only)
    has_camera = arguments.camera is not None or _has_example_camera(arguments)
    check_kinds(arguments.only, arguments.task, camera=has_camera)
    if "explain" in arguments.only:
        arguments.explain = True


def output_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What decides which files are written and which points they hold."""
    return {
        "min_confidence": arguments.min_confidence,
        "max_depth": arguments.max_depth,
        "only": arguments.only,
    }


def _use_threads(count: int) -> int:
    """Compute with so many threads, or one a core where more are asked for; returns their number."""
    import torch

    if count < 1:
        raise InputError(f"--threads must be at least 1, not {count}.")
    cores = os.cpu_count() or 1
    if count > cores:  # thousands of them end the process
        warnings.warn(f"--threads {count}: {cores} are used, one a core.", InputWarning, stacklevel=2)
        count = cores
    torch.set_num_threads(count)
    return count


def _has_example_camera(arguments: argparse.Namespace) -> bool:
    return arguments.example is not None and arguments.task == "stereo"


def _use_example(arguments: argparse.Namespace) -> None:
    from matchattention.examples import example
    from matchattention.exporting.predictor import is_exported

    if arguments.inputs:
        raise InputError("--example uses a bundled pair: leave the inputs out.")
    files = example(arguments.example or None, arguments.task)
    arguments.inputs = [str(files.left), str(files.right)]
    arguments.explain = not is_exported(arguments.model) and "explain" in (arguments.only or ["explain"])
    if files.camera is None:
        return
    arguments.camera = arguments.camera or str(files.camera)
    if arguments.max_depth == float("inf"):
        arguments.max_depth = 8.0  # a room


def load_predictor(arguments: argparse.Namespace) -> Predictor:
    """The predictor that the arguments ask for."""
    from matchattention.inference.confidence import AGREEMENT, AUTO
    from matchattention.inference.predictor import Predictor
    from matchattention.models.checkpoint import load
    from matchattention.models.confidence_file import load_head
    from matchattention.runtime.precision import choose_device, choose_precision

    exported = exported_predictor(arguments)
    if exported is not None:
        arguments.weights = hashlib.sha256(Path(arguments.model).read_bytes()).hexdigest()
        return exported
    choose_precision(arguments.precision, choose_device(arguments.device))  # before the weights are read
    model = arguments.model or ("rt" if arguments.task == "stereo" else "rt-flow")
    network = load(model, task=arguments.task)
    arguments.weights = _weights_hash(network)
    check, confidence = not arguments.no_check, arguments.confidence
    if confidence not in (AUTO, AGREEMENT):  # a head's file, whose weights decide too
        confidence = load_head(Path(confidence), network)
        arguments.weights += f" {_weights_hash(confidence)}"
    return Predictor(network, arguments.device, arguments.precision, confidence=confidence, check=check)


def exported_predictor(arguments: argparse.Namespace) -> Any:
    """The predictor for an exported file, or None when the model is none."""
    from matchattention.exporting.predictor import ExportedPredictor, is_exported

    if not is_exported(arguments.model):
        if arguments.engine is not None:
            raise InputError(f"--engine {arguments.engine} runs exported files: give --model FILE.onnx or FILE.xml.")
        return None
    predictor = ExportedPredictor(
        arguments.model,
        arguments.engine,
        arguments.precision,
        arguments.threads or 0,
        check=not arguments.no_check,
        device=arguments.device,
    )
    if predictor.task != arguments.task:
        raise InputError(f"{arguments.model} is a {predictor.task} model, but {arguments.task} was asked for.")
    return predictor


def _weights_hash(network: torch.nn.Module) -> str:
    """Of every weight: another file at the same path is another model."""
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()


def load_camera(arguments: argparse.Namespace, left: Path | None) -> StereoCamera | None:
    """The calibration that `--camera` means for a pair, or None without one."""
    from matchattention.geometry.camera import StereoCamera

    given = arguments.camera
    if given is None:
        return None
    if arguments.task == "flow":
        raise InputError("--camera turns disparity into depth; a flow model has none: leave it out.")
    if "=" in given and not Path(given).exists():
        return _camera_from_numbers(given, arguments.baseline)
    path = Path(given)
    if not path.exists() and left is not None and path.name == given and (left.parent / given).is_file():
        path = left.parent / given
    return StereoCamera.from_file(path, baseline=arguments.baseline)


def _camera_from_numbers(text: str, baseline: float | None) -> StereoCamera:
    from matchattention.geometry.camera import StereoCamera

    known = {"fx", "fy", "cx", "cy", "baseline", "doffs", "width", "height"}
    numbers: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            numbers[name.strip()] = float(value)
        except ValueError:
            raise InputError(f"--camera {text}: '{part}' is not NAME=NUMBER.") from None
    if baseline is not None:
        numbers["baseline"] = baseline
    unknown = sorted(set(numbers) - known)
    if unknown or not {"fx", "baseline"} <= set(numbers):
        raise InputError(
            f"--camera {text}: give at least fx (px) and baseline (m); known are {', '.join(sorted(known))}."
        )
    for name in ("width", "height"):
        if name in numbers and not numbers[name].is_integer():
            raise InputError(f"--camera {text}: {name} is a whole number of px.")
        if name in numbers:
            numbers[name] = int(numbers[name])
    return StereoCamera(**numbers)


def record_of(
    arguments: argparse.Namespace,
    predictor: Predictor,
    names: tuple[str, str | None],
    contents: Iterable[bytes],
    camera: StereoCamera | None,
) -> dict[str, Any]:
    """What a result depends on: equal records need no second computation.

    Args:
        arguments: the options.
        predictor: its precision counts; its weights stand in `arguments`, put there by `load_predictor`.
        names: of the left and the right view, for people.
        contents: the files' or the frames' bytes, of which a hash is kept.
        camera: the calibration as read, so that an edited file counts.
    """
    from matchattention import __version__

    return {
        "version": __version__,
        "left": names[0],
        "right": names[1],
        "contents": [hashlib.sha256(content).hexdigest() for content in contents],
        "model": str(arguments.model or ("rt" if arguments.task == "stereo" else "rt-flow")),
        "confidence": str(arguments.confidence),
        "task": arguments.task,
        "precision": str(predictor.dtype).removeprefix("torch."),
        "weights": arguments.weights,
        "camera": None if camera is None else asdict(camera),
        "max_depth": None if arguments.max_depth == float("inf") else arguments.max_depth,
        "min_confidence": arguments.min_confidence,
        "only": arguments.only,
        "side_by_side": arguments.side_by_side,
        "explain": arguments.explain,
    }


def _run_pairs(arguments: argparse.Namespace, pairs: list[Pair], single: bool) -> None:
    from matchattention.inference.outputs import require_own_results, require_writable

    output = None if arguments.output is None else Path(arguments.output)
    if output is not None:
        require_writable(output)
    if single:
        if output is not None:
            require_own_results(output)
        pairs[0].read()  # a wrong file is told before the model is loaded
        load_camera(arguments, pairs[0].left)
    predictor = load_predictor(arguments)
    with open_rerun(arguments) as log:
        if single:
            report(_one_pair(arguments, predictor, pairs[0], output, log, 0))
        else:
            _many_pairs(arguments, predictor, pairs, output, log)


def _many_pairs(
    arguments: argparse.Namespace,
    predictor: Predictor,
    pairs: list[Pair],
    output: Path | None,
    log: RerunLog | None,
) -> None:
    from matchattention.cli.progress import Progress
    from matchattention.inference.outputs import is_done
    from matchattention.inference.result_files import RECORD

    progress = Progress(len(pairs), "pair")
    failures = []
    computed = skipped = 0
    try:
        for index, pair in enumerate(pairs):
            folder = None if output is None else output / pair.name
            try:
                if (
                    folder is not None
                    and not arguments.overwrite
                    and (folder / RECORD).is_file()
                    and is_done(folder, _record_of_pair(arguments, predictor, pair))
                ):
                    skipped += 1
                    progress.step(pair.name, "already there", skipped=True)
                    continue
                _one_pair(arguments, predictor, pair, folder, log, index)
            except InputError as error:
                failures.append(f"{pair.name}: {error}")
                progress.step(pair.name, f"failed: {error}")
                continue
            computed += 1
            progress.step(pair.name)
    except KeyboardInterrupt:
        if output is not None:
            print(f"{computed} new and {skipped} earlier results are in {output}; the same command goes on from here.")
        raise
    finally:
        progress.close()
    if output is not None:
        print(f"{computed} new and {skipped} earlier results are in {output}, one sub-folder a pair.")
    if failures:
        raise InputError(f"{len(failures)} of {len(pairs)} pairs failed; the first was {failures[0]}")


def _one_pair(
    arguments: argparse.Namespace,
    predictor: Predictor,
    pair: Pair,
    folder: Path | None,
    log: RerunLog | None,
    index: int,
) -> list[Path]:
    from matchattention.inference.outputs import write_prediction

    left, right = pair.read()
    camera = load_camera(arguments, pair.left)
    camera = camera and camera.fitting(left.shape[1], left.shape[0])
    with _signs_of_life(predictor, left):
        prediction = predictor(left, right, trace=arguments.explain)
    if log is not None:
        log.add(index, pair.name, left, prediction, camera)
    if folder is None:
        return []
    record = _record_of_pair(arguments, predictor, pair)
    return write_prediction(folder, prediction, record, camera, **output_options(arguments))


@contextmanager
def _signs_of_life(predictor: Predictor, image: Image) -> Iterator[None]:
    """Say how far the network is where one pair takes long."""
    from matchattention.cli.waiting import Waiting
    from matchattention.inference.block_progress import watching_blocks

    with Waiting(f"matching {image.shape[1]}x{image.shape[0]} px") as waiting:
        network = getattr(predictor, "network", None)  # an exported one shows no blocks
        if network is None:
            yield
            return
        with watching_blocks(network, lambda block, blocks: waiting.at(f"block {block} of {blocks}")):
            yield


def _record_of_pair(arguments: argparse.Namespace, predictor: Predictor, pair: Pair) -> dict[str, Any]:
    files = [pair.left] if pair.right is None else [pair.left, pair.right]
    names = str(pair.left), None if pair.right is None else str(pair.right)
    contents = (file.read_bytes() for file in files)
    return record_of(arguments, predictor, names, contents, load_camera(arguments, pair.left))


def open_rerun(arguments: argparse.Namespace) -> AbstractContextManager[RerunLog | None]:
    """The Rerun recording that `--rerun` asks for."""
    if arguments.rerun is None:
        return nullcontext()
    from matchattention.cli.rerun_log import RerunLog

    return RerunLog(arguments.rerun)


def report(files: list[Path]) -> None:
    """Say where the results are and what they show."""
    from matchattention.inference.result_files import MEANINGS

    if not files:
        return
    width = max(len(str(file)) for file in files)
    for file in files:
        print(f"{file!s:<{width}}  {MEANINGS[file.name]}")
