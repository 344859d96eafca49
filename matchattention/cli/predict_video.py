"""The video and live-camera part of `matchattention predict`."""

from __future__ import annotations

import argparse
import warnings
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from matchattention.cli.live_view import LiveView, why_no_window
from matchattention.cli.predict import load_camera, load_predictor, open_rerun, output_options, record_of
from matchattention.cli.progress import Progress
from matchattention.data.atomic import replacing
from matchattention.errors import InputError, InputWarning
from matchattention.geometry.pair_check import blank_view
from matchattention.inference.frames import FrameSource, VideoFile
from matchattention.inference.images import Image
from matchattention.inference.outputs import is_done, require_writable, write_prediction
from matchattention.inference.prediction import Prediction
from matchattention.inference.sequences import ConsecutiveFrames, ImageSequence
from matchattention.inference.sources import VIDEO_SUFFIXES, is_video
from matchattention.inference.video import SteadyRange, VideoPredictor
from matchattention.viz.fields import disparity_picture
from matchattention.viz.flow import flow_picture


def run_video(arguments: argparse.Namespace) -> None:
    """Frames of one side-by-side or two separate videos; for flow each frame of one video or folder to the next."""
    if arguments.task == "flow":
        _run_flow(arguments, arguments.inputs, live=False)
        return
    left, right = arguments.inputs[0], arguments.inputs[1] if len(arguments.inputs) == 2 else None
    if right is None and not arguments.side_by_side:
        raise InputError(f"{left} is one video: give the right one too, or --side-by-side if it holds both views.")
    if right is not None and arguments.side_by_side:
        raise InputError("A side-by-side video holds both views: give one file.")
    if right is not None and not is_video(right):
        raise InputError(f"{left} is a video and {right} is none: give two videos or two images.")
    with FrameSource(left, right) as source:
        _run(arguments, source, left, right, live=False)


def run_live(arguments: argparse.Namespace) -> None:
    """Frames of one side-by-side camera or of two."""
    if len(arguments.live) > 2:
        raise InputError(f"--live takes one side-by-side camera or two cameras, not {len(arguments.live)}.")
    reason = why_no_window()
    if reason is not None and arguments.output is None and arguments.rerun is None:
        raise InputError(f"Frames cannot be shown here ({reason}): give --output video.mp4, --output DIR or --rerun.")
    if arguments.task == "flow":
        _run_flow(arguments, arguments.live, live=True)
        return
    left, right = arguments.live[0], arguments.live[1] if len(arguments.live) == 2 else None
    with FrameSource(left, right) as source:
        _run(arguments, source, left, right, live=True)


def _run_flow(arguments: argparse.Namespace, names: list[str], *, live: bool) -> None:
    if len(names) > 1 or arguments.side_by_side:
        raise InputError("Flow goes from each frame of one video to the next: give one, without --side-by-side.")
    name = names[0]
    frames = ConsecutiveFrames(name) if live or is_video(name) else ImageSequence(name)
    with frames as source:
        _run(arguments, source, name, None, live=live)


def _run(
    arguments: argparse.Namespace, source: FrameSource | ImageSequence, left: str, right: str | None, *, live: bool
) -> None:
    if arguments.explain:
        raise InputError("--explain draws one pair at a time: give two images of the video instead.")
    output = None if arguments.output is None else Path(arguments.output)
    to_video = output is not None and output.suffix.lower() in VIDEO_SUFFIXES
    if output is not None:
        require_writable(output.parent if to_video else output)
    camera = calibration = load_camera(arguments, None)
    predictor = load_predictor(arguments)
    predict = VideoPredictor(predictor)
    colours = SteadyRange()
    count = _frame_count(source.count, arguments.frames)
    progress = Progress(count, "frame")
    interrupted = False
    with ExitStack() as stack:
        stack.callback(progress.close)
        log = stack.enter_context(open_rerun(arguments))
        window = None
        if live and why_no_window() is None:
            window = LiveView("matchattention: q or Escape to stop")
            stack.callback(window.close)
        film = None
        if to_video:
            assert output is not None
            output.parent.mkdir(parents=True, exist_ok=True)
            film = VideoFile(stack.enter_context(replacing(output)), source.frames_per_second)
            stack.callback(film.close)
        try:
            for index, images in enumerate(source):
                if count is not None and index >= count:
                    break
                name = source.names[index] if isinstance(source, ImageSequence) else f"frame_{index:06d}"
                folder = output / name if output is not None and not to_video else None
                names = f"{left}#{index}", None if right is None else f"{right}#{index}"
                record = record_of(arguments, predictor, names, (view.tobytes() for view in images), calibration)
                if folder is not None and not arguments.overwrite and is_done(folder, record):
                    progress.step(name, "already there", skipped=True)
                    predict.restart()
                    continue
                blank = blank_view(*images)
                if blank is not None:
                    words = f"{name}: the {blank} view is one colour; its result means nothing."
                    warnings.warn(words, InputWarning, stacklevel=2)
                prediction = predict(*images) if blank is None else predictor.match(*images)
                image = images[0]
                scale = colours.update(_shown_values(prediction))
                camera = camera and camera.fitting(image.shape[1], image.shape[0])
                if folder is not None:
                    write_prediction(folder, prediction, record, camera, colours=scale, **output_options(arguments))
                if log is not None:
                    log.add(index, name, image, prediction, camera)
                if film is not None or window is not None:
                    picture = _frame_picture(image, prediction, scale)
                    if film is not None:
                        film.add(picture)
                    if window is not None:
                        window.show(picture)
                progress.step(name)
                if window is not None and not window.open:
                    break
        except KeyboardInterrupt:
            # A camera runs until it is stopped: that is its normal end, and a video so far is worth keeping.
            if not live:
                raise
            interrupted = True
        if progress.done == 0 and not interrupted:
            raise InputError(f"{left} has no frames that can be read.")
    if output is not None:
        print(f"{progress.done} frames are in {output}" + ("." if to_video else ", one sub-folder a frame."))


def _frame_count(available: int | None, asked: int | None) -> int | None:
    if asked is not None and asked < 1:
        raise InputError(f"--frames must be at least 1, not {asked}.")
    known = [number for number in (available, asked) if number is not None]
    return min(known) if known else None


def _shown_values(prediction: Prediction) -> np.ndarray:
    if prediction.task == "flow":
        return np.linalg.norm(prediction.flow, axis=-1)
    return prediction.disparity


def _frame_picture(image: Image, prediction: Prediction, scale: tuple[float, float]) -> Image:
    """The frame and its field side by side."""
    if prediction.task == "flow":
        field = flow_picture(prediction.flow, scale[1], wheel=False)
    else:
        field = disparity_picture(prediction.disparity, *scale, bar=False)
    return np.concatenate([image, field], axis=1)
