"""Measure confidence and one-sigma errors on a stereo dataset: do they mean what they say?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchattention.data.atomic import replacing
from matchattention.data.datasets.registry import Dataset
from matchattention.data.datasets.sample import StereoSample
from matchattention.data.formats import known_pixels
from matchattention.data.provenance import describe_environment
from matchattention.errors import InputError
from matchattention.evaluation.calibration import Reliability, coverage, joined, reliability, sparsification
from matchattention.geometry.confidence import disagreement_of
from matchattention.inference.prediction import Prediction
from matchattention.inference.predictor import Predictor

SCHEMA = "matchattention-calibration-1"
_FINEST = 0.25  # px: the error that left-right agreement alone counts a good match with, as `StereoCamera` does

Scene = dict[str, Any]


def measure_confidence(
    dataset: Dataset, predictor: Predictor, model: dict[str, Any], command: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """Everything about a predictor's confidence on the pairs of ``dataset`` that have ground truth, all pixels.

    Args:
        dataset: of stereo pairs.
        predictor: a stereo network's.
        model: what the record says about it.
        command: what was typed.
        say: takes a line for every scene.

    Returns:
        Figures of every scene and their means, ready for JSON: AUSE of "wrong" (bad 2; D1 on KITTI) by confidence and
        by left-right agreement alone, calibration error of "within 1 px", per cent within one, two and three sigmas,
        and the pooled reliability diagram.

    Raises:
        InputError: a dataset of optical flow, or without ground truth.
    """
    if dataset.kind != "stereo":
        raise InputError("Confidence is measured on stereo pairs; choose a stereo dataset")
    outliers = dataset.name.startswith("kitti")
    scenes: list[Scene] = []
    diagrams: dict[str, list[Reliability]] = {"confidence": [], "agreement": []}
    for sample in dataset:
        assert isinstance(sample, StereoSample)
        if sample.disparity is None:
            continue
        scene, parts = _scene(predictor.match(sample.left, sample.right), sample, outliers)
        scenes.append(scene)
        for name, part in parts.items():
            diagrams[name].append(part)
        say(
            f"{scene['name']}: AUSE {scene['ause']:.3f} (agreement alone {scene['ause_agreement']:.3f}), "
            f"{scene['coverage']['1']:.1f} % within one sigma"
        )
    if not scenes:
        raise InputError(f"{dataset.name} ({dataset.split}) has no ground truth to measure against")
    pooled = {name: joined(parts) for name, parts in diagrams.items()}
    return {
        "schema": SCHEMA,
        "dataset": dataset.name,
        "split": dataset.split,
        "model": model,
        "confidence": "head" if predictor.judge.head is not None else predictor.judge.reason,
        "wrong": "D1" if outliers else "bad 2",
        "command": command,
        "environment": describe_environment(model.get("device", "cpu")),
        "mean_over_scenes": _mean(scenes),
        "calibration_error": {name: diagram.error for name, diagram in pooled.items()},
        "reliability": {name: _table(diagram) for name, diagram in pooled.items()},
        "scenes": scenes,
    }


def _scene(result: Prediction, sample: StereoSample, outliers: bool) -> tuple[Scene, dict[str, Reliability]]:
    truth = sample.disparity
    assert truth is not None
    known = known_pixels(truth)
    error = np.abs(result.disparity - np.where(known, truth, 0))[known]
    agreement = result.confidence if result.agreement is None else result.agreement
    claimed = {"confidence": result.confidence[known], "agreement": agreement[known]}
    wrong: NDArray[np.bool_] = error > (3 if outliers else 2)
    if outliers:
        wrong &= error > 0.05 * truth[known]
    by_agreement = np.hypot(_FINEST, disagreement_of(claimed["agreement"]))
    sigma = by_agreement if result.error is None else result.error[known]
    diagrams = {name: reliability(error <= 1, values) for name, values in claimed.items()}
    return {
        "name": sample.name,
        "pixels": int(known.sum()),
        "wrong": 100 * float(wrong.mean()),
        "ause": sparsification(wrong, claimed["confidence"]).ause,
        "ause_agreement": sparsification(wrong, claimed["agreement"]).ause,
        "coverage": coverage(error, sigma),
        "coverage_agreement": coverage(error, by_agreement),
        "in_cloud": 100 * float((result.confidence >= 0.5).mean()),
        "in_cloud_agreement": 100 * float((agreement >= 0.5).mean()),
    }, diagrams


def _mean(scenes: list[Scene]) -> dict[str, Any]:
    """Plain means over scenes; an AUSE that no error defines counts for nothing."""
    means: dict[str, Any] = {}
    for name, value in scenes[0].items():
        if isinstance(value, dict):
            means[name] = {key: float(np.mean([scene[name][key] for scene in scenes])) for key in value}
        elif isinstance(value, float):
            means[name] = float(np.nanmean([scene[name] for scene in scenes]))
    return means


def _table(diagram: Reliability) -> dict[str, list[float | None]]:
    return {
        "claimed": [None if np.isnan(value) else float(value) for value in diagram.claimed],
        "observed": [None if np.isnan(value) else float(value) for value in diagram.observed],
        "pixels": [int(value) for value in diagram.pixels],
    }


def write_confidence(report: dict[str, Any], path: Path) -> None:
    """Write a report as JSON; NaN as null, six digits."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(part) for key, part in value.items()}
        if isinstance(value, list):
            return [plain(part) for part in value]
        if isinstance(value, float):
            return None if np.isnan(value) else float(f"{value:.6g}")
        return value

    with replacing(path) as temporary:
        temporary.write_text(json.dumps(plain(report), indent=1, allow_nan=False) + "\n")


def in_words(report: dict[str, Any]) -> str:
    """A report's means in a few lines."""
    means, errors = report["mean_over_scenes"], report["calibration_error"]
    within, before = means["coverage"], means["coverage_agreement"]
    return "\n".join(
        [
            f"confidence on {report['dataset']} ({report['split']}), {len(report['scenes'])} scenes: head against "
            "left-right agreement alone"
            if report["confidence"] == "head"
            else f"confidence on {report['dataset']} ({report['split']}): {report['confidence']}",
            f"AUSE ({report['wrong']}, all pixels)   {means['ause']:.3f}   {means['ause_agreement']:.3f}",
            f"calibration error, 1 px    {errors['confidence']:.3f}   {errors['agreement']:.3f}",
            f"within 1, 2, 3 sigma, %    {' '.join(f'{within[key]:.1f}' for key in within)}   "
            f"{' '.join(f'{before[key]:.1f}' for key in before)}",
            f"in the cloud (0.5), %      {means['in_cloud']:.1f}   {means['in_cloud_agreement']:.1f}",
        ]
    )
