"""Predictions in the Rerun viewer: images, disparity, confidence, depth and the cloud on one time line."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np

from matchattention.data.atomic import replacing
from matchattention.errors import InputError
from matchattention.geometry.camera import StereoCamera
from matchattention.inference.images import Image
from matchattention.inference.prediction import Prediction
from matchattention.viz.fields import confidence_picture, disparity_picture
from matchattention.viz.flow import flow_picture


class RerunLog:
    """A recording, shown live or saved; a saved one appears when the block ends well.

    Args:
        file: an .rrd file to save to; "" opens the viewer instead.
    """

    def __init__(self, file: str) -> None:
        try:
            import rerun
        except ImportError:
            raise InputError("--rerun needs Rerun: pip install 'matchattention[rerun]'.") from None
        self._rerun: Any = rerun
        self._file = file
        self._exits = ExitStack()

    def __enter__(self) -> RerunLog:
        rerun = self._rerun
        rerun.init("matchattention", spawn=not self._file)
        if self._file:
            rerun.save(self._exits.enter_context(replacing(self._file)))
        self._exits.callback(rerun.disconnect)  # flushes, before the file takes its name
        rerun.log("world", rerun.ViewCoordinates.RDF, static=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exits.__exit__(kind, error, trace)

    def add(self, index: int, name: str, image: Image, prediction: Prediction, camera: StereoCamera | None) -> None:
        """Log one pair or frame at its place on the time line."""
        rerun = self._rerun
        rerun.set_time("pair", sequence=index)
        rerun.log("name", rerun.TextLog(name))
        rerun.log("left", rerun.Image(image))
        rerun.log("confidence", rerun.Image(confidence_picture(prediction.confidence, bar=False)))
        rerun.log("occlusion", rerun.Image(prediction.occlusion.astype(np.uint8) * 255))
        if prediction.task == "flow":
            rerun.log("flow", rerun.Image(flow_picture(prediction.flow)))
            return
        rerun.log("disparity", rerun.Image(disparity_picture(prediction.disparity, bar=False)))
        if camera is not None:
            points, colours = camera.points(prediction.disparity, image, confidence=prediction.confidence)
            rerun.log("world/points", rerun.Points3D(points, colors=colours))
            rerun.log("depth", rerun.DepthImage(camera.depth(prediction.disparity), meter=1.0))
