"""What `predict` leaves behind: a folder of files that appears whole or not at all."""

from __future__ import annotations

import glob
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from matchattention.data.atomic import replacing
from matchattention.data.formats import write_flo, write_npy, write_pfm
from matchattention.errors import InputError
from matchattention.geometry.camera import StereoCamera
from matchattention.geometry.cloud import write_depth_png16, write_ply
from matchattention.inference.images import Image
from matchattention.inference.prediction import Prediction
from matchattention.viz.arrows import self_position_arrows
from matchattention.viz.evolution import evolution_strip, write_evolution_gif
from matchattention.viz.fields import depth_picture, disparity_picture, write_picture
from matchattention.viz.flow import flow_picture

RECORD = "prediction.json"

# Every file `predict` can write, and what it shows.
MEANINGS = {
    "disparity.png": "disparity in colours with a scale in px: bright is near",
    "disparity.pfm": "disparity of the left view, px, float32",
    "disparity_right.pfm": "disparity of the right view, px, float32",
    "flow.png": "motion in colours: hue is the direction, strength the length",
    "flow.flo": "motion of the first frame, px, Middlebury's format",
    "flow_backward.flo": "motion of the second frame back to the first",
    "occlusion.png": "white where a pixel has no partner in the other view",
    "confidence.png": "white where the two views agree, black where they do not",
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


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder to write into; its files move to `folder` when the block ends well, else nothing stays.

    An existing `folder` keeps what is not ours, and loses what an earlier prediction left there. The record goes first
    and comes last: a folder whose writing was cut off in the middle never counts as done. Folders made on the way are
    removed again after a failure.
    """
    made = _make_parents(folder)
    _remove_leftovers(folder)
    try:
        stage = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-{os.getpid()}-", dir=folder.parent))
        try:
            yield stage
            stage.chmod(0o777 & ~_umask())  # mkdtemp made it private
            if folder.is_dir():
                new = {file.name for file in stage.iterdir()}
                for name in [RECORD, *sorted(set(MEANINGS) - new)]:
                    (folder / name).unlink(missing_ok=True)
                for name in sorted(new - {RECORD}) + [RECORD] * (RECORD in new):
                    os.replace(stage / name, folder / name)
            else:
                os.rename(stage, folder)
        finally:
            if stage.exists():
                shutil.rmtree(stage, ignore_errors=True)
    except BaseException:
        for parent in reversed(made):
            with suppress(OSError):
                parent.rmdir()
        raise


def require_writable(folder: Path) -> None:
    """Refuse an output that can only fail after the work is done."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: give a folder as --output.")
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise InputError(f"{existing} is a file: {folder} cannot be made in it.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"Nothing can be written into {existing}: choose another --output or change its permissions.")


def write_prediction(
    folder: Path,
    prediction: Prediction,
    image: Image,
    record: dict[str, Any],
    camera: StereoCamera | None = None,
    *,
    colours: tuple[float, float] | None = None,
    max_depth: float = np.inf,
) -> list[Path]:
    """Write everything about one pair into `folder`.

    Args:
        folder: made if need be.
        prediction: what to write.
        image: (H, W, 3) uint8 first view, for the cloud's colours.
        record: what `is_done` compares; stored as JSON.
        camera: adds depth, its error and the point cloud.
        colours: value range of the coloured picture; None: its own percentiles.
        max_depth: metres beyond which the cloud has no points.

    Returns:
        the files, most useful first.
    """
    with whole_folder(folder) as stage:
        if prediction.task == "flow":
            write_flo(stage / "flow.flo", prediction.flow)
            write_flo(stage / "flow_backward.flo", prediction.relative_position_right)
            write_picture(stage / "flow.png", flow_picture(prediction.flow))
        else:
            low, high = colours if colours is not None else (None, None)
            write_picture(stage / "disparity.png", disparity_picture(prediction.disparity, low, high))
            write_pfm(stage / "disparity.pfm", prediction.disparity)
            write_pfm(stage / "disparity_right.pfm", prediction.disparity_right)
        write_picture(stage / "occlusion.png", prediction.occlusion)
        write_picture(stage / "confidence.png", np.rint(prediction.confidence * 255).astype(np.uint8))
        if camera is not None:
            depth = camera.depth(prediction.disparity)
            write_npy(stage / "depth.npy", depth)
            write_npy(stage / "depth_error.npy", camera.depth_error(prediction.disparity, prediction.confidence))
            write_depth_png16(stage / "depth.png", depth)
            write_picture(stage / "depth_colours.png", depth_picture(depth))
            points, shades = camera.points(
                prediction.disparity, image, confidence=prediction.confidence, max_depth=max_depth
            )
            write_ply(stage / "cloud.ply", points, shades)
        if prediction.matches is not None:
            write_evolution_gif(stage / "evolution.gif", prediction.matches, task=prediction.task)
            write_picture(stage / "evolution.png", evolution_strip(prediction.matches, task=prediction.task))
            looks = prediction.matches.self_position[0].numpy()
            write_picture(
                stage / "attention.png",
                self_position_arrows(image, looks, occlusion=prediction.occlusion, spacing=12),
            )
        sizes = {file.name: file.stat().st_size for file in stage.iterdir()}
        with replacing(stage / RECORD) as temporary:
            temporary.write_text(json.dumps({**record, "files": sizes}, indent=2, sort_keys=True) + "\n")
        names = {*sizes, RECORD}
    return [folder / name for name in MEANINGS if name in names]


def is_done(folder: Path, record: dict[str, Any]) -> bool:
    """Whether `folder` holds the results that `record` describes, each file as long as it was written."""
    try:
        stored = json.loads((folder / RECORD).read_text())
        sizes = stored.pop("files")
        whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return False
    return whole and stored == json.loads(json.dumps(record))


def _remove_leftovers(folder: Path) -> None:
    """Remove what runs that were killed while writing `folder` left beside it."""
    for stage in folder.parent.glob(f".{glob.escape(folder.name)}.partial-*"):
        process = stage.name.rsplit(".partial-", 1)[1].split("-")[0]
        if not (process.isdecimal() and _is_alive(int(process))):
            shutil.rmtree(stage, ignore_errors=True)


def _is_alive(process: int) -> bool:
    if os.name != "posix" or process == os.getpid():
        return True  # elsewhere asking for a process can end it; a hidden folder that stays does no harm
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _make_parents(folder: Path) -> list[Path]:
    """Make the folders above `folder`; returns those that were missing, outermost first."""
    missing = [parent for parent in folder.absolute().parents if not parent.exists()][::-1]
    for parent in missing:
        parent.mkdir(exist_ok=True)
    return missing


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
