"""Run a matcher over a dataset and measure it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.data.datasets.registry import Dataset
from matchattention.data.datasets.sample import FlowSample, StereoSample
from matchattention.data.formats import write_flo, write_pfm
from matchattention.data.provenance import describe_environment
from matchattention.errors import InputError
from matchattention.evaluation.matchers import Matcher
from matchattention.evaluation.metrics import measure
from matchattention.evaluation.report import Report, SceneResult

OnScene = Callable[[int, SceneResult, StereoSample | FlowSample, NDArray[np.float32]], None]


def evaluate(dataset: Dataset, matcher: Matcher, command: str = "", on_scene: OnScene | None = None) -> Report:
    """Measure ``matcher`` on every sample of ``dataset`` that has ground truth.

    Args:
        dataset: what to measure on.
        matcher: what to measure.
        command: what the user typed, kept in the report.
        on_scene: called with (number from 1, result, sample, prediction) after each scene.

    Raises:
        InputError: no sample has ground truth, or a prediction has the wrong size.
    """
    results = []
    for number, sample in enumerate(dataset, start=1):
        truth = _truth(sample)
        if truth is None:
            continue
        prediction, seconds = timed_match(matcher, sample)
        if prediction.shape != truth.shape:
            raise InputError(
                f"The prediction of {sample.name} has shape {prediction.shape}, its ground truth {truth.shape}"
            )
        foreground = sample.foreground if isinstance(sample, StereoSample) else None
        result = SceneResult(
            name=sample.name,
            size=(truth.shape[1], truth.shape[0]),
            seconds=seconds,
            metrics=measure(prediction, truth, sample.non_occluded, foreground),
        )
        results.append(result)
        if on_scene is not None:
            on_scene(number, result, sample, prediction)
    if not results:
        raise InputError(
            f"{dataset.name} ({dataset.split}) has no ground truth to measure against; "
            "write a submission instead (matchattention submission)"
        )
    return Report(
        dataset=dataset.name,
        root=dataset.root.resolve().name,
        split=dataset.split,
        kind=dataset.kind,
        model=matcher.settings,
        scenes=tuple(results),
        environment=describe_environment(matcher.settings.get("device", "cpu")),
        command=command,
    )


def timed_match(matcher: Matcher, sample: StereoSample | FlowSample) -> tuple[NDArray[np.float32], float]:
    """The prediction and the seconds it took, without reading the images."""
    images = images_of(sample)
    if isinstance(sample, StereoSample):
        _ = sample.disparity  # read now, so that a matcher that takes its range from it does not pay for it
    start = time.perf_counter()
    prediction = matcher(*images, sample)
    return prediction, time.perf_counter() - start


def images_of(sample: StereoSample | FlowSample) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Left and right, or first and second frame."""
    if isinstance(sample, StereoSample):
        return sample.left, sample.right
    return sample.frame1, sample.frame2


def save_prediction(folder: Path, name: str, prediction: NDArray[Any]) -> Path:
    """Write ``NAME.pfm`` or ``NAME.flo``, which ``PredictionFiles`` reads back."""
    path = folder / f"{name}{'.flo' if prediction.ndim == 3 else '.pfm'}"
    path.parent.mkdir(parents=True, exist_ok=True)
    (write_flo if prediction.ndim == 3 else write_pfm)(path, prediction)
    return path


def _truth(sample: StereoSample | FlowSample) -> NDArray[np.float32] | None:
    return sample.disparity if isinstance(sample, StereoSample) else sample.flow
