"""From two frames to everything the page shows of their motion."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchattention.app.result import ARCHIVE, LEFT_VIEW, VALUES, write_archive
from matchattention.app.worker import Progress
from matchattention.data.atomic import replacing
from matchattention.errors import InputWarning
from matchattention.geometry.camera import StereoCamera
from matchattention.inference.images import read_pair
from matchattention.inference.outputs import write_prediction
from matchattention.inference.predictor import Predictor
from matchattention.inference.result_files import MEANINGS, RECORD
from matchattention.viz.fields import confidence_picture, occlusion_overlay, write_picture
from matchattention.viz.flow import flow_picture
from matchattention.viz.flow_arrows import flow_arrows

# What the viewer lays over the first frame: the word on its button, and the file.
VIEWS = {
    "Motion": "view_motion.png",
    "Arrows": "view_arrows.png",
    "Occlusion": "view_occlusion.jpg",
    "Confidence": "view_confidence.png",
    "Second": "view_second.jpg",
}


@dataclass(frozen=True)
class FlowResult:
    """A finished prediction.

    Attributes:
        folder: where its files are.
        width: px.
        height: px.
        seconds: from the read images to the matches.
        longest: px, motion of full colour.
        hidden: share of pixels that the second frame does not show, in per cent.
        notes: what there is to say about the pair, in sentences.
        downloads: name to meaning, most useful first.
    """

    folder: Path
    width: int
    height: int
    seconds: float
    longest: float
    hidden: float
    notes: list[str]
    downloads: dict[str, str]

    def file(self, name: str) -> Path | None:
        """The file of this name if it is one of ours; never a path made of the name."""
        served = {*self.downloads, *VIEWS.values(), LEFT_VIEW, VALUES}
        return next((self.folder / known for known in served if known == name), None)


def compute_flow(
    predictor: Predictor,
    first: Path,
    second: Path,
    camera: StereoCamera | None,
    folder: Path,
    progress: Progress,
    *,
    check: bool = True,
) -> FlowResult:
    """Match two frames and write their files and views into `folder`.

    Args:
        predictor: of a flow network.
        first: image file.
        second: image file.
        camera: not used; flow has no metres.
        folder: made here.
        progress: told what is going on.
        check: not used; frames may differ in any way.
    """
    progress.at("Reading the frames", 0.05)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        frames = read_pair(first, second)
        height, width = frames[0].shape[:2]
        start = time.perf_counter()
        with progress.of_blocks(predictor.network, 0.1, 0.8):
            prediction = predictor(*frames)
        seconds = time.perf_counter() - start
    notes = [str(warning.message) for warning in caught if issubclass(warning.category, InputWarning)]

    progress.at("Writing the files", 0.85)
    write_prediction(folder, prediction, {"page": True})
    (folder / RECORD).unlink()  # for `predict` to resume by; a page does not
    downloads = {name: meaning for name, meaning in MEANINGS.items() if (folder / name).is_file()}
    write_archive(folder, list(downloads))
    downloads[ARCHIVE] = "all of these in one file"

    progress.at("Drawing the views", 0.95)
    longest = max(float(np.percentile(np.linalg.norm(prediction.flow, axis=-1), 99)), 1e-3)
    write_picture(folder / LEFT_VIEW, frames[0])
    write_picture(folder / VIEWS["Second"], frames[1])
    write_picture(folder / VIEWS["Motion"], flow_picture(prediction.flow, longest, wheel=False))
    write_picture(folder / VIEWS["Arrows"], flow_arrows(frames[0], prediction.flow, occlusion=prediction.occlusion))
    write_picture(folder / VIEWS["Occlusion"], occlusion_overlay(frames[0], prediction.occlusion))
    write_picture(folder / VIEWS["Confidence"], confidence_picture(prediction.confidence, bar=False))
    with replacing(folder / VALUES) as temporary, temporary.open("wb") as file:
        for component in (0, 1):
            file.write(np.ascontiguousarray(prediction.flow[..., component]).astype("<f4").tobytes())
        file.write(np.rint(prediction.confidence * 255).astype(np.uint8).tobytes())
        file.write(prediction.occlusion.astype(np.uint8).tobytes())
    return FlowResult(
        folder, width, height, seconds, longest, 100 * float(prediction.occlusion.mean()), notes, downloads
    )
