"""The files of one prediction: what each shows, and how it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from matchattention.data.formats import write_flo, write_npy, write_pfm
from matchattention.errors import InputError
from matchattention.geometry.camera import StereoCamera
from matchattention.geometry.cloud import write_depth_png16, write_ply
from matchattention.inference.prediction import Prediction
from matchattention.viz.arrows import self_position_arrows
from matchattention.viz.evolution import evolution_strip, write_evolution_gif
from matchattention.viz.fields import depth_picture, disparity_picture, write_picture
from matchattention.viz.flow import flow_picture

RECORD = "prediction.json"

# Every file `predict` can write, and what it shows; most useful first.
MEANINGS = {
    "disparity.png": "disparity in colours with a scale in px: bright is near",
    "disparity.pfm": "disparity of the left view, px, float32",
    "disparity_right.pfm": "disparity of the right view, px, float32",
    "flow.png": "motion in colours: hue is the direction, strength the length",
    "flow.flo": "motion of the first frame, px, Middlebury's format",
    "flow_backward.flo": "motion of the second frame back to the first",
    "occlusion.png": "white where a pixel has no partner in the other view",
    "confidence.png": "white where a match is surely within 1 px, black where it is a guess",
    "depth.npy": "depth in metres, float32",
    "depth_error.npy": "its one-sigma error estimate in metres, float32",
    "depth_colours.png": "depth in colours with a scale in metres: bright is far",
    "depth.png": "depth in millimetres, 16 bits, 0 is unknown or beyond 65 m",
    "cloud.ply": "coloured point cloud in metres, for MeshLab, CloudCompare or Blender",
    "evolution.gif": "the field after every block, from 1/32 to full resolution",
    "evolution.png": "the field at the end of every scale",
    "attention.png": "where occluded pixels look in their own view",
    RECORD: "what was computed from which files with which model",
}

# The words of `--only`, and the files each stands for.
KINDS = {
    "disparity": ("disparity.png", "disparity.pfm"),
    "right": ("disparity_right.pfm",),
    "flow": ("flow.png", "flow.flo", "flow_backward.flo"),
    "occlusion": ("occlusion.png",),
    "confidence": ("confidence.png",),
    "depth": ("depth.npy", "depth_error.npy", "depth_colours.png", "depth.png"),
    "cloud": ("cloud.ply",),
    "explain": ("evolution.gif", "evolution.png", "attention.png"),
}
_WITH_CAMERA = ("depth", "cloud")

Writer = Callable[[Path], Any]


def kinds_of(only: str | Iterable[str] | None) -> list[str] | None:
    """The words of `--only`: of a list, or of a text with commas between them; None: all kinds."""
    words = only.split(",") if isinstance(only, str) else only
    return None if words is None else [word.strip() for word in words]


def check_kinds(only: Iterable[str] | None, task: str, *, camera: bool) -> None:
    """Refuse words of `--only` that nothing can come of, before anything is computed.

    Raises:
        InputError: an unknown word, one of the other task, or one that needs a camera.
    """
    for kind in only or ():
        if kind not in KINDS:
            raise InputError(f"There is no kind of result called '{kind}': choose among {', '.join(KINDS)}.")
        if kind == "flow" and task != "flow":
            raise InputError(f"A {task} model has no {kind}: leave it out of --only, or give --task flow.")
        if kind in ("disparity", "right", *_WITH_CAMERA) and task == "flow":
            raise InputError(f"A flow model has no {kind}: leave it out of --only.")
        if kind in _WITH_CAMERA and not camera:
            raise InputError(f"--only {kind} needs the calibration: give --camera.")


def files_of(
    prediction: Prediction,
    camera: StereoCamera | None,
    *,
    colours: tuple[float, float] | None = None,
    min_confidence: float = 0.5,
    max_depth: float = np.inf,
    only: str | Iterable[str] | None = None,
) -> dict[str, Writer]:
    """Name of each file that belongs to a prediction, and the function that writes it to a path.

    Args:
        prediction: what to write.
        camera: for this size of images; adds depth, its error and the point cloud.
        colours: value range of the coloured disparity; None: its own percentiles.
        min_confidence: of the cloud's points.
        max_depth: metres beyond which the cloud has no points.
        only: the kinds wanted, see `KINDS`; None: all.
    """
    only = kinds_of(only)
    check_kinds(only, prediction.task, camera=camera is not None)
    files: dict[str, Writer] = {}
    if prediction.task == "flow":
        flow = prediction.flow
        files["flow.png"] = lambda path: write_picture(path, flow_picture(flow))
        files["flow.flo"] = lambda path: write_flo(path, flow)
        files["flow_backward.flo"] = lambda path: write_flo(path, prediction.relative_position_right)
    else:
        disparity = prediction.disparity
        low, high = colours if colours is not None else (None, None)
        files["disparity.png"] = lambda path: write_picture(path, disparity_picture(disparity, low, high))
        files["disparity.pfm"] = lambda path: write_pfm(path, disparity)
        files["disparity_right.pfm"] = lambda path: write_pfm(path, prediction.disparity_right)
    confidence = prediction.confidence
    files["occlusion.png"] = lambda path: write_picture(path, prediction.occlusion)
    files["confidence.png"] = lambda path: write_picture(path, np.rint(confidence * 255).astype(np.uint8))
    if camera is not None:
        depth = camera.depth(disparity)
        limits = {"min_confidence": min_confidence, "max_depth": max_depth}
        files["depth.npy"] = lambda path: write_npy(path, depth)
        files["depth_error.npy"] = lambda path: write_npy(
            path, camera.depth_error(disparity, confidence, error=prediction.error)
        )
        files["depth_colours.png"] = lambda path: write_picture(path, depth_picture(depth))
        files["depth.png"] = lambda path: write_depth_png16(path, depth)
        files["cloud.ply"] = lambda path: write_ply(path, *prediction.points(camera, **limits))
    matches = prediction.matches
    if matches is not None:
        files["evolution.gif"] = lambda path: write_evolution_gif(path, matches, task=prediction.task)
        files["evolution.png"] = lambda path: write_picture(path, evolution_strip(matches, task=prediction.task))
        image = prediction.image
        if image is not None:
            looks = matches.self_position[0].numpy()
            files["attention.png"] = lambda path: write_picture(
                path, self_position_arrows(image, looks, occlusion=prediction.occlusion, spacing=12)
            )
    if only is None:
        return files
    wanted = {name for kind in only for name in KINDS[kind]}
    return {name: write for name, write in files.items() if name in wanted}
