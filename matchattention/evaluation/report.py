"""The outcome of an evaluation: figures of every scene, their averages, and how they came about."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from matchattention.data.atomic import replacing
from matchattention.data.datasets.middlebury import MIDDLEBURY_WEIGHTS
from matchattention.data.reading import number, read_json, reads
from matchattention.errors import InputError
from matchattention.evaluation.averages import Averages, mean_over_scenes, pooled_over_pixels
from matchattention.evaluation.intervals import LEVEL, SAMPLES, Intervals, bootstrap
from matchattention.evaluation.metrics import SPEEDS

T = TypeVar("T")

SCHEMA = 1
_COLUMNS = {
    "stereo": ("bad1", "bad2", "bad3", "d1", "epe"),
    "flow": ("bad1", "bad3", "fl", "epe"),
}
_TITLES = {"bad0.5": "bad 0.5", "bad1": "bad 1", "bad2": "bad 2", "bad3": "bad 3", "bad4": "bad 4"}
_TITLES |= {"d1": "D1", "fl": "Fl", "epe": "EPE", "rms": "RMS"}


@dataclass(frozen=True)
class SceneResult:
    """One scene's figures.

    Attributes:
        name: the sample's name.
        size: (width, height) px.
        seconds: time of the matching alone, without reading files.
        metrics: ``{mask: {metric: value}}``.
    """

    name: str
    size: tuple[int, int]
    seconds: float
    metrics: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Report:
    """A dataset measured with one model.

    Attributes:
        dataset: its name in the registry.
        root: the last part of its folder's name.
        split: the split that was used.
        kind: ``stereo`` or ``flow``.
        model: the matcher's settings.
        scenes: in the dataset's order.
        environment: date, commit, versions, machine.
        command: what was typed.
    """

    dataset: str
    root: str
    split: str
    kind: str
    model: dict[str, Any]
    scenes: tuple[SceneResult, ...]
    environment: dict[str, Any]
    command: str

    def mean(self) -> Averages:
        """Plain mean over scenes, as zero-shot papers report."""
        return mean_over_scenes([scene.metrics for scene in self.scenes])

    def weighted_mean(self) -> Averages | None:
        """Mean with Middlebury's official weights; None for other datasets."""
        if self.dataset != "middlebury":
            return None
        weights = [MIDDLEBURY_WEIGHTS.get(scene.name, 1.0) for scene in self.scenes]
        return mean_over_scenes([scene.metrics for scene in self.scenes], weights)

    def pooled(self) -> Averages:
        """All pixels of all scenes together, as KITTI's server does."""
        return pooled_over_pixels([scene.metrics for scene in self.scenes])

    def intervals(self) -> Intervals:
        """95 % bootstrap interval of `mean`, see `evaluation.intervals`; empty for a single scene."""
        return bootstrap([scene.metrics for scene in self.scenes])

    def to_json(self) -> str:
        """Everything, NaN as null."""
        content = {
            "schema": SCHEMA,
            "dataset": self.dataset,
            "root": self.root,
            "split": self.split,
            "kind": self.kind,
            "model": self.model,
            "command": self.command,
            "environment": self.environment,
            "units": "bad*, d1, fl, missing: per cent; epe, rms, a*: px; seconds: matching alone",
            "mean_over_scenes": self.mean(),
            "official_weighted_mean": self.weighted_mean(),
            "pooled_over_pixels": self.pooled(),
            "bootstrap": {
                "level": LEVEL,
                "samples": SAMPLES,
                "mean_over_scenes": self.intervals(),
                "pooled_over_pixels": bootstrap([scene.metrics for scene in self.scenes], pooled=True),
            },
            "scenes": [
                {
                    "name": scene.name,
                    "size": list(scene.size),
                    "seconds": scene.seconds,
                    "metrics": scene.metrics,
                }
                for scene in self.scenes
            ],
        }
        return json.dumps(_rounded(content), indent=1, allow_nan=False) + "\n"

    def write(self, path: Path) -> None:
        """Write the JSON file."""
        with replacing(path) as temporary:
            temporary.write_text(self.to_json())

    def table(self) -> str:
        """Scenes and their averages as text: noc before all where both are known."""
        masks: list[str] = [mask for mask in ("noc", "all") if mask in self.mean()]
        columns = _COLUMNS[self.kind]
        groups = " | ".join(f"{mask:^{9 * len(columns)}}" for mask in masks)
        titles = " | ".join("".join(f"{_TITLES[column]:>9}" for column in columns) for _ in masks)
        width = max([len(scene.name) for scene in self.scenes] + [len("weighted mean")])
        lines = [f"{'':{width}} | {groups} |", f"{'':{width}} | {titles} | seconds"]
        rule = "-" * len(lines[-1])
        lines.append(rule)
        for scene in self.scenes:
            lines.append(_line(scene.name, width, scene.metrics, masks, columns, scene.seconds))
        lines.append(rule)
        seconds = sum(scene.seconds for scene in self.scenes) / len(self.scenes)
        lines.append(_line("mean", width, self.mean(), masks, columns, seconds))
        for name, end in zip((f"{LEVEL:.0%} from", "to"), self._interval_ends()):
            lines.append(_line(name, width, end, masks, columns))
        weighted = self.weighted_mean()
        if weighted is not None:
            lines.append(_line("weighted mean", width, weighted, masks, columns))
        if self.dataset.startswith("kitti"):
            lines.append(_line("all pixels", width, self.pooled(), masks, columns))
            if "fg" in self.mean():
                pooled = self.pooled()
                shares = "  ".join(f"D1-{mask} {pooled[mask]['d1']:.2f}" for mask in ("bg", "fg", "all"))
                lines.append(f"{shares} (all pixels)")
        if self.kind == "flow":
            lines += self._by_speed()
        return "\n".join(lines)

    def _interval_ends(self) -> list[Averages]:
        """Lower and upper end of the mean's interval; none for a single scene."""
        intervals = self.intervals()
        if not intervals:
            return []
        return [
            {mask: {name: ends[end] for name, ends in row.items()} for mask, row in intervals.items()} for end in (0, 1)
        ]

    def _by_speed(self) -> list[str]:
        """A line for hidden pixels and for each class of true speed that has pixels."""
        mean = self.mean()
        lines = []
        for mask in ("occ", *SPEEDS):
            values = mean.get(mask, {})
            if values.get("pixels"):
                share = 100 * values["pixels"] / mean["all"]["pixels"]
                figures = f"EPE {values['epe']:.2f} px, Fl {values['fl']:.2f} %, bad 1 {values['bad1']:.2f} %"
                lines.append(f"{mask:>6}: {figures} ({share:.1f} % of the pixels)")
        return lines


@reads("a result of matchattention evaluate --json", "evaluate again")
def read_report(path: Path) -> Report:
    """Read a JSON file that ``write`` made."""
    content = read_json(Path(path).read_bytes())
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or "scenes" not in content:
        raise InputError(f"{path} was not written by matchattention evaluate --json (schema {SCHEMA})")
    if content["kind"] not in _COLUMNS:
        raise ValueError("its kind is neither stereo nor flow")
    scenes = tuple(_read_scene(scene) for scene in _of_kind(list, content, "scenes"))
    if not scenes:
        raise ValueError("it holds no scenes")
    names = {frozenset(values) for scene in scenes for values in scene.metrics.values()}
    if len(names) != 1 or not {"pixels", *_COLUMNS[content["kind"]]} <= set(*names):
        raise ValueError("its scenes lack metrics or differ in them")
    model, environment = _of_kind(dict, content, "model"), _of_kind(dict, content, "environment")
    for table, key in ((model, "label"), (environment, "date"), (environment, "processor")):
        _of_kind(str, table, key)
    if "commit" not in environment or not isinstance(model.get("device", ""), str):
        raise ValueError("it does not say where it comes from")
    texts = {name: _of_kind(str, content, name) for name in ("dataset", "root", "split", "kind", "command")}
    return Report(**texts, model=model, scenes=scenes, environment=environment)


def _read_scene(scene: Any) -> SceneResult:
    width, height = (number(extent, "size") for extent in _of_kind(list, scene, "size"))
    metrics = {
        mask: {name: math.nan if value is None else number(value, name) for name, value in values.items()}
        for mask, values in _of_kind(dict, scene, "metrics").items()
    }
    if "all" not in metrics:
        raise ValueError("a scene lacks its metrics")
    seconds = number(scene["seconds"], "seconds")
    return SceneResult(_of_kind(str, scene, "name"), (int(width), int(height)), seconds, metrics)


def _of_kind(kind: type[T], table: Any, name: str) -> T:
    """A value of a parsed document, of the type that it must have."""
    if not isinstance(table, dict) or not isinstance(table[name], kind):
        raise ValueError(f"{name} is of another kind")
    return table[name]


def _line(
    name: str,
    width: int,
    metrics: Mapping[str, Mapping[str, float]],
    masks: list[str],
    columns: tuple[str, ...],
    seconds: float | None = None,
) -> str:
    empty: dict[str, float] = {}
    cells = " | ".join("".join(_cell(metrics.get(mask, empty).get(column)) for column in columns) for mask in masks)
    return f"{name:{width}} | {cells} |" + ("" if seconds is None else f" {seconds:7.2f}")


def _cell(value: float | None) -> str:
    return f"{'–':>9}" if value is None or math.isnan(value) else f"{value:9.2f}"


def _rounded(content: Any) -> Any:
    """Six significant digits are more than any benchmark prints; JSON has no NaN."""
    if isinstance(content, dict):
        return {key: _rounded(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_rounded(value) for value in content]
    if isinstance(content, float):
        return None if math.isnan(content) else float(f"{content:.6g}")
    return content
