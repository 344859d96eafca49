"""Anything that can be measured: a network, OpenCV's matchers, or files that someone else predicted."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from matchattention.data.datasets.sample import FlowSample, StereoSample
from matchattention.data.field_files import DISPARITY_SUFFIXES, FLOW_SUFFIXES, read_disparity, read_flow
from matchattention.errors import InputError
from matchattention.evaluation import opencv_flow, sgbm

Image = NDArray[np.uint8]
Field = NDArray[np.float32]
Sample = StereoSample | FlowSample


class Matcher(Protocol):
    """Gives the disparity ``(H, W)`` of a stereo sample or the flow ``(H, W, 2)`` of a flow sample.

    Attributes:
        settings: name, label and every choice that shapes the result, for the record.
    """

    settings: dict[str, Any]

    def __call__(self, first: Image, second: Image, sample: Sample) -> Field:
        """Match two images; ``sample`` says where they come from and what is known of them."""


class SgbmMatcher:
    """OpenCV's StereoSGBM; see ``evaluation.sgbm`` for how it is set up."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {
            "name": "sgbm",
            "label": "SGBM (OpenCV)",
            "mode": "MODE_HH",
            **sgbm.PARAMETERS,
            "range": "largest true disparity, else width / 4, rounded up to 16 px",
            "holes": "smaller neighbour in the row",
        }

    def __call__(self, first: Image, second: Image, sample: Sample) -> Field:
        if isinstance(sample, FlowSample):
            raise InputError("sgbm matches stereo pairs; choose a flow network for this dataset")
        return sgbm.match(first, second, sgbm.search_range(sample.disparity, first.shape[1]))


class OpenCVFlow:
    """DIS or Farneback; see ``evaluation.opencv_flow`` for how they are set up."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.settings: dict[str, Any] = {"name": name, **opencv_flow.SETTINGS[name]}

    def __call__(self, first: Image, second: Image, sample: Sample) -> Field:
        if isinstance(sample, StereoSample):
            raise InputError(f"{self._name} finds optical flow; choose rt or sgbm for stereo pairs")
        return opencv_flow.match(self._name, first, second)


class NetworkMatcher:
    """A network behind ``Predictor``.

    Args:
        model: a shipped model, a checkpoint, a released .pth file, or a file of `matchattention export`.
        task: "stereo" or "flow"; a model made for the other is refused.
        device: as ``Predictor`` takes it.
        precision: as ``Predictor`` takes it.
        label: what tables call it.
        engine: what runs a file of `matchattention export`: "onnx" or "openvino"; else its suffix decides.
    """

    def __init__(
        self,
        model: str,
        task: str,
        device: str = "auto",
        precision: str = "auto",
        label: str | None = None,
        engine: str | None = None,
    ) -> None:
        from matchattention.exporting.predictor import ExportedPredictor, is_exported
        from matchattention.inference.predictor import Predictor
        from matchattention.models.checkpoint import load

        self._predict: Predictor | ExportedPredictor
        if is_exported(model):
            self._predict = ExportedPredictor(model, engine, precision, device=device)
            if self._predict.task != task:
                raise InputError(f"{model} is a {self._predict.task} model, but {task} was asked for.")
        elif engine is not None:
            raise InputError(f"--engine {engine} runs exported files: give --model FILE.onnx or FILE.xml.")
        else:
            self._predict = Predictor(load(model, task=task), device=device, precision=precision)
        self.settings: dict[str, Any] = {
            "name": Path(model).name,
            "label": label or f"MatchAttention {Path(model).stem}",
            "device": str(self._predict.device),
            "precision": str(self._predict.dtype).removeprefix("torch."),
            **_provenance(model),
        }

    def __call__(self, first: Image, second: Image, sample: Sample) -> Field:
        result = self._predict.match(first, second)  # benchmarks' pairs need no check for swapped views
        return np.asarray(result.flow if isinstance(sample, FlowSample) else result.disparity, np.float32)


class PredictionFiles:
    """A folder of predictions: ``NAME.pfm`` / ``NAME.flo`` (or .png, .npy …), or ``NAME/disparity.pfm``.

    NAME is the sample's name; ``/`` in it may be a folder or written ``_``.
    """

    def __init__(self, folder: Path, label: str | None = None) -> None:
        if not folder.is_dir():
            raise InputError(f"Expected a folder of predictions in {folder}")
        self._folder = folder
        self.settings: dict[str, Any] = {"name": f"predictions in {folder.name}", "label": label or folder.name}

    def __call__(self, first: Image, second: Image, sample: Sample) -> Field:
        if isinstance(sample, FlowSample):
            return read_flow(self._find(sample.name, "flow", FLOW_SUFFIXES))
        return read_disparity(self._find(sample.name, "disparity", DISPARITY_SUFFIXES))

    def _find(self, name: str, kind: str, suffixes: tuple[str, ...]) -> Path:
        for stem in (name, name.replace("/", "_"), f"{name}/{kind}"):
            for suffix in suffixes:
                path = self._folder / f"{stem}{suffix}"
                if path.is_file():
                    return path
        raise InputError(f"Expected the prediction {self._folder / name}{suffixes[0]} (or {', '.join(suffixes[1:])})")


def _provenance(model: str) -> dict[str, Any]:
    """Which weights exactly, and what their file says about itself."""
    from matchattention.models.checkpoint import read_header, shipped

    path = shipped().get(model, Path(model))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    metadata = read_header(path)[1] if path.suffix == ".safetensors" else {}
    return {"sha256": digest, "checkpoint": metadata}


def create_matcher(
    model: str,
    task: str,
    predictions: Path | None = None,
    device: str = "auto",
    precision: str = "auto",
    label: str | None = None,
    engine: str | None = None,
) -> Matcher:
    """The matcher that a command line asks for."""
    if predictions is not None:
        return PredictionFiles(predictions, label)
    if model == "sgbm":
        return SgbmMatcher()
    if model in opencv_flow.SETTINGS:
        return OpenCVFlow(model)
    return NetworkMatcher(model, task, device, precision, label, engine)
