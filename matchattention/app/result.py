"""From a pair to everything the page shows and gives away."""

from __future__ import annotations

import time
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchattention.app.worker import Progress
from matchattention.data.atomic import replacing
from matchattention.errors import InputWarning
from matchattention.geometry.camera import StereoCamera
from matchattention.geometry.cloud import write_ply
from matchattention.inference.images import Image, read_pair
from matchattention.inference.outputs import write_prediction
from matchattention.inference.prediction import Prediction
from matchattention.inference.predictor import Predictor
from matchattention.inference.result_files import MEANINGS, RECORD
from matchattention.viz.colormaps import value_range
from matchattention.viz.fields import (
    confidence_picture,
    depth_colour_range,
    depth_picture,
    disparity_picture,
    occlusion_overlay,
    write_picture,
)

CLOUD_POINTS = 60_000  # what a browser turns smoothly on a phone
ARCHIVE = "matchattention.zip"

# What the viewer lays over the left photo: the word on its button, and the file. Depth is there with a camera only.
VIEWS = {
    "Disparity": "view_disparity.png",
    "Depth": "view_depth.png",
    "Confidence": "view_confidence.png",
    "Occlusion": "view_occlusion.jpg",
    "Right": "view_right.jpg",
}
LEFT_VIEW = "view_left.jpg"
VALUES = "values.bin"


class Cloud(NamedTuple):
    """Points to turn in the browser.

    Attributes:
        points: (N, 3) as (right, forward, up), the median distance at 4.
        colours: (N, 3) in [0, 1], linear light.
        spacing: distance of neighbouring points at the median distance.
        shown: number of points.
        found: number before thinning out.
    """

    points: NDArray[np.float32]
    colours: NDArray[np.float32]
    spacing: float
    shown: int
    found: int


@dataclass(frozen=True)
class Result:
    """A finished prediction.

    Attributes:
        folder: where its files are.
        width: px.
        height: px.
        camera: calibration for these images; None without one.
        seconds: from the read images to the matches, the check of the pair included.
        disparity_range: px, of the first and the last colour.
        depth_range: metres, of the first and the last colour; None without a camera.
        notes: what there is to say about the pair, in sentences.
        downloads: name to meaning, most useful first.
        cloud: to turn; None when no point is certain enough.
    """

    folder: Path
    width: int
    height: int
    camera: StereoCamera | None
    seconds: float
    disparity_range: tuple[float, float]
    depth_range: tuple[float, float] | None
    notes: list[str]
    downloads: dict[str, str]
    cloud: Cloud | None

    @property
    def views(self) -> list[str]:
        """The layers there are, by the words on their buttons."""
        return [name for name in VIEWS if name != "Depth" or self.camera is not None]

    def file(self, name: str) -> Path | None:
        """The file of this name if it is one of ours; never a path made of the name."""
        served = {*self.downloads, *(VIEWS[view] for view in self.views), LEFT_VIEW, VALUES}
        return next((self.folder / known for known in served if known == name), None)


def compute(
    predictor: Predictor,
    left: Path,
    right: Path,
    camera: StereoCamera | None,
    folder: Path,
    progress: Progress,
    *,
    check: bool = True,
) -> Result:
    """Match a pair and write its files and views into `folder`.

    Args:
        predictor: of a stereo network.
        left: image file.
        right: image file.
        camera: calibration of these images or of ones they were resized from; None: no metres.
        folder: made here.
        progress: told what is going on.
        check: whether to refuse swapped and unrectified views.
    """
    progress.at("Reading the images and checking the pair", 0.05)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        photos = read_pair(left, right)
        height, width = photos[0].shape[:2]
        camera = camera and camera.fitting(width, height)
        start = time.perf_counter()
        with progress.of_blocks(predictor.network, 0.1, 0.8):
            prediction = predictor(*photos, check=check)
        seconds = time.perf_counter() - start
    notes = [str(warning.message) for warning in caught if issubclass(warning.category, InputWarning)]

    progress.at("Writing the files", 0.85)
    low, high = value_range(prediction.disparity)
    write_prediction(folder, prediction, {"page": True}, camera, colours=(low, high))
    (folder / RECORD).unlink()  # for `predict` to resume by; a page does not
    assumed = camera or assumed_camera(width)
    points, colours = assumed.points(prediction.disparity, photos[0], confidence=prediction.confidence)
    if camera is None:
        write_ply(folder / "cloud.ply", points, colours)
    downloads = {name: meaning for name, meaning in MEANINGS.items() if (folder / name).is_file()}
    if camera is None:
        downloads["cloud.ply"] = "coloured point cloud in units of the baseline, for an assumed field of view of 53°"
    write_archive(folder, list(downloads))
    downloads[ARCHIVE] = "all of these in one file"

    progress.at("Drawing the views", 0.95)
    _write_views(folder, prediction, photos, (low, high))
    depth_range = None
    if camera is not None:
        depth = camera.depth(prediction.disparity)
        depth_range = depth_colour_range(depth)
        write_picture(folder / VIEWS["Depth"], depth_picture(depth, *depth_range, bar=False))
    return Result(
        folder=folder, width=width, height=height, camera=camera, seconds=seconds, disparity_range=(low, high),
        depth_range=depth_range,
        notes=notes, downloads=downloads, cloud=thinned(points, colours, assumed.fx),
    )  # fmt: skip


def assumed_camera(width: int) -> StereoCamera:
    """A camera for pairs without calibration: 53° wide, and distances in units of the baseline."""
    return StereoCamera(fx=float(width), baseline=1.0)


def thinned(points: NDArray[np.float32], colours: NDArray[np.uint8], focal: float) -> Cloud | None:
    """At most `CLOUD_POINTS` of a cloud in front of a viewer that has z up, far outliers left out.

    Args:
        points: (N, 3) as (right, down, forward).
        colours: (N, 3) uint8.
        focal: focal length in px.
    """
    found = len(points)
    if found == 0:
        return None
    near = points[:, 2] <= 1.5 * np.percentile(points[:, 2], 95)
    points, colours = points[near], colours[near]
    chosen = np.random.default_rng(0).permutation(len(points))[:CLOUD_POINTS]  # no pattern, unlike every n-th
    scale = 4 / float(np.median(points[:, 2]))
    stride = np.sqrt(max(1.0, len(points) / CLOUD_POINTS))  # px between the points that stay
    return Cloud(
        points=(points[chosen] * scale)[:, [0, 2, 1]] * np.array([1, 1, -1], np.float32),
        colours=np.power(colours[chosen] / np.float32(255), np.float32(2.2)),  # the renderer counts in linear light
        spacing=float(4 * stride / focal),
        shown=len(chosen),
        found=found,
    )


def _write_views(
    folder: Path, prediction: Prediction, photos: tuple[Image, Image], colours: tuple[float, float]
) -> None:
    """The layers of the viewer, and per pixel disparity (float32), confidence (0…255) and occlusion (0, 1)."""
    write_picture(folder / LEFT_VIEW, photos[0])
    write_picture(folder / VIEWS["Right"], photos[1])
    write_picture(folder / VIEWS["Disparity"], disparity_picture(prediction.disparity, *colours, bar=False))
    write_picture(folder / VIEWS["Confidence"], confidence_picture(prediction.confidence, bar=False))
    write_picture(folder / VIEWS["Occlusion"], occlusion_overlay(photos[0], prediction.occlusion))
    with replacing(folder / VALUES) as temporary, temporary.open("wb") as file:
        file.write(prediction.disparity.astype("<f4").tobytes())
        file.write(np.rint(prediction.confidence * 255).astype(np.uint8).tobytes())
        file.write(prediction.occlusion.astype(np.uint8).tobytes())


def write_archive(folder: Path, names: list[str]) -> None:
    """Pack files of a folder into one to download."""
    with replacing(folder / ARCHIVE) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            archive.write(folder / name, name)
