"""Rendered scenes as files in Middlebury's layout, which every stereo project can read.

A scene is a folder with im0.png, im1.png, disp0GT.pfm, disp1GT.pfm, mask0nocc.png and calib.txt; those of a flow pair
are in `export_flow`. The folder appears whole or not at all, so an interrupted export resumes with the first scene that
is missing.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from matchattention.data.atomic import replacing
from matchattention.data.formats import write_pfm
from matchattention.errors import InputError
from matchattention.synth.dice import scalar_uniform
from matchattention.synth.sensor import pipeline
from matchattention.synth.sensor.config import SensorConfig
from matchattention.synth.stream.export_flow import render_flow_pair, write_flow_files
from matchattention.synth.stream.scene_stream import SceneStream
from matchattention.synth.world.config import SceneConfig

SETTINGS = "render.json"
NON_OCCLUDED, OCCLUDED, UNKNOWN = 255, 128, 0  # Middlebury's mask0nocc.png
SENSOR_PURPOSE = 3  # of `scalar_uniform`: these draws are the export's own


class ExportedScene(NamedTuple):
    """One scene on the host.

    Attributes:
        image0: (H, W, 3) uint8, left.
        image1: (H, W, 3) uint8, right.
        disparity0: (H, W) float32 px, inf where unknown.
        disparity1: (H, W) float32 px, inf where unknown.
        occluded0: (H, W) bool.
        focal: px.
        centre: principal point (x, y) of both views, px.
        baseline: m.
    """

    image0: NDArray[np.uint8]
    image1: NDArray[np.uint8]
    disparity0: NDArray[np.float32]
    disparity1: NDArray[np.float32]
    occluded0: NDArray[np.bool_]
    focal: float
    centre: tuple[float, float]
    baseline: float


def render_scene(stream: SceneStream, index: int) -> ExportedScene:
    """Sample ``index`` of the stream, photographed with a seed of its own."""
    rendered = stream.rendered(range(index, index + 1))
    seed = int(scalar_uniform(stream.seed, index, purpose=SENSOR_PURPOSE) * 2**62)
    camera = SensorConfig.preset(stream.config.sensor)
    images = pipeline.apply(rendered.image[:, 0], rendered.image[:, 1], camera, [seed])
    left, right = (image[0].round().byte().permute(1, 2, 0).cpu().numpy() for image in images)
    disparity = torch.where(rendered.valid, rendered.disparity, math.inf)[0].cpu().numpy()
    focal, x, y = rendered.lens[0].tolist()
    return ExportedScene(
        left, right, disparity[0], disparity[1], rendered.occluded[0, 0].cpu().numpy(), focal, (x, y),
        float(rendered.baseline[0]),
    )  # fmt: skip


def calibration_text(scene: ExportedScene) -> str:
    """Middlebury's calib.txt: px, and the baseline in millimetres."""
    height, width = scene.disparity0.shape
    camera = f"[{scene.focal:.6f} 0 {scene.centre[0]:.6f}; 0 {scene.focal:.6f} {scene.centre[1]:.6f}; 0 0 1]"
    known = scene.disparity0[np.isfinite(scene.disparity0)]
    largest = float(known.max()) if known.size else 0.0
    smallest = float(known.min()) if known.size else 0.0
    return (
        f"cam0={camera}\ncam1={camera}\ndoffs=0\nbaseline={scene.baseline * 1000:.6f}\nwidth={width}\n"
        f"height={height}\nndisp={math.ceil(largest) + 1}\nisint=0\nvmin={math.floor(smallest)}\n"
        f"vmax={math.ceil(largest)}\ndyavg=0\ndymax=0\n"
    )


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A place for the files of ``folder``, which must not exist yet and appears complete."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield temporary
        temporary.chmod(0o755)  # mkdtemp made it private
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_scene(folder: Path, scene: ExportedScene) -> None:
    """Write one scene; ``folder`` must not exist yet and appears complete."""
    from PIL import Image

    mask = np.where(np.isfinite(scene.disparity0), np.where(scene.occluded0, OCCLUDED, NON_OCCLUDED), UNKNOWN)
    with _whole(folder) as temporary:
        Image.fromarray(scene.image0).save(temporary / "im0.png")
        Image.fromarray(scene.image1).save(temporary / "im1.png")
        write_pfm(temporary / "disp0GT.pfm", scene.disparity0)
        write_pfm(temporary / "disp1GT.pfm", scene.disparity1)
        Image.fromarray(mask.astype(np.uint8)).save(temporary / "mask0nocc.png")
        (temporary / "calib.txt").write_text(calibration_text(scene), encoding="ascii")


def _settings(stream: SceneStream, preset: str) -> dict[str, object]:
    photos = stream.config.photos if stream.has_photos else 0.0
    return {"preset": preset, "seed": stream.seed, "size": list(stream.size), "photos": photos}


def prepare(output: Path, settings: dict[str, object], config: SceneConfig) -> None:
    """Make the folder and note what it holds; refuse one that holds something else.

    Raises:
        InputError: the folder was made with other settings, or is a file.
    """
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file; name a folder to write scenes into")
    output.mkdir(parents=True, exist_ok=True)
    note = output / SETTINGS
    if note.exists():
        try:
            found = json.loads(note.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{note} is damaged ({error}); remove it or choose another folder") from error
        differing = [name for name, value in settings.items() if found.get(name) != value]
        if differing:
            name = differing[0]
            raise InputError(
                f"{output} holds scenes with {name} {found.get(name)}, not {settings[name]}; choose another folder"
            )
        return
    with replacing(note) as temporary:
        temporary.write_text(json.dumps({**settings, "config": asdict(config)}, indent=2) + "\n", encoding="utf-8")


def export(
    stream: SceneStream, preset: str, count: int, output: Path, done: Callable[[str, bool], None] = lambda *_: None
) -> None:
    """Write samples 0 … count-1 of a stream, leaving out those that are there already.

    Args:
        stream: what to render.
        preset: its name, noted beside the scenes.
        count: scenes in all.
        output: folder of the scenes' folders, 000000, 000001, …
        done: called with a scene's name and whether it was there already.
    """
    prepare(output, _settings(stream, preset), stream.config)
    for index in range(count):
        folder = output / f"{index:06d}"
        present = folder.exists()
        if not present and stream.config.task == "flow":
            with _whole(folder) as temporary:
                write_flow_files(temporary, render_flow_pair(stream, index))
        elif not present:
            write_scene(folder, render_scene(stream, index))
        done(folder.name, present)
