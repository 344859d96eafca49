"""Rendered flow pairs as files that `folder-flow` reads.

A pair is a folder with frame1.png, frame2.png, flow.flo, flow_backward.flo and occlusions.png.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from matchattention.data.formats import write_flo
from matchattention.synth.dice import scalar_uniform
from matchattention.synth.sensor import pipeline
from matchattention.synth.sensor.config import SensorConfig
from matchattention.synth.stream.render import FRAMES
from matchattention.synth.stream.scene_stream import SceneStream

SENSOR_PURPOSE = 3  # of `scalar_uniform`, as for stereo scenes


class FlowPair(NamedTuple):
    """One pair on the host.

    Attributes:
        frame1: (H, W, 3) uint8.
        frame2: (H, W, 3) uint8.
        forward: (H, W, 2) float32 px from the first frame to the second, inf where unknown.
        backward: (H, W, 2) float32 px from the second frame to the first, inf where unknown.
        occluded: (H, W) bool: points of the first frame that the second does not show.
    """

    frame1: NDArray[np.uint8]
    frame2: NDArray[np.uint8]
    forward: NDArray[np.float32]
    backward: NDArray[np.float32]
    occluded: NDArray[np.bool_]


def render_flow_pair(stream: SceneStream, index: int, moments: tuple[float, float] = FRAMES) -> FlowPair:
    """Sample ``index`` of a stream of flow pairs at two moments, photographed with a seed of its own."""
    rendered = stream.rendered(range(index, index + 1), moments)
    seed = int(scalar_uniform(stream.seed, index, purpose=SENSOR_PURPOSE) * 2**62)
    camera = SensorConfig.preset(stream.config.sensor)
    images = pipeline.apply(rendered.image[:, 0], rendered.image[:, 1], camera, [seed])
    first, second = (image[0].round().byte().permute(1, 2, 0).cpu().numpy() for image in images)
    forward, backward = torch.where(rendered.valid[..., None], rendered.field, torch.inf)[0].cpu().numpy()
    return FlowPair(first, second, forward, backward, rendered.occluded[0, 0].cpu().numpy())


def write_flow_files(folder: Path, pair: FlowPair) -> None:
    """Write one pair's files into a folder."""
    from PIL import Image

    Image.fromarray(pair.frame1).save(folder / "frame1.png")
    Image.fromarray(pair.frame2).save(folder / "frame2.png")
    write_flo(folder / "flow.flo", pair.forward)
    write_flo(folder / "flow_backward.flo", pair.backward)
    Image.fromarray(np.where(pair.occluded, 255, 0).astype(np.uint8)).save(folder / "occlusions.png")
