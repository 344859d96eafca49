"""Error over training pairs: trainings of growing budgets, each with its own fall of the learning rate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matchattention.ablation.figures.drawing import GREY, picture
from matchattention.ablation.figures.settings import Settings
from matchattention.ablation.results import read_results
from matchattention.ablation.statistics import summary
from matchattention.bench.report import RESULTS
from matchattention.errors import InputError

MEASURES = ("rendered/all/bad1", "rendered/occluded/bad1")


def measure(settings: Settings) -> dict[str, Any]:
    """Gather the points of ablation files with different budgets, and the validations of trainings' log.jsonl."""
    files = settings.files or tuple(sorted(RESULTS.glob("ablations*.json")))
    if not files:
        raise InputError("There are no results yet: run `matchattention ablate` first, or name files with --from.")
    results: dict[str, Any] = {"files": [str(path) for path in files], "points": [], "logs": {}}
    for path in files:
        if path.suffix == ".jsonl":
            results["logs"][path.parent.name] = _validations(path)
        else:
            results["points"] += _points(read_results(path))
    results["points"].sort(key=lambda point: (point["row"], point["pairs"]))
    return results


def _points(data: dict[str, Any]) -> list[dict[str, Any]]:
    points = []
    for row, pairs in sorted(
        {(run["row"], run["pairs"]) for run in data["runs"] if not run["row"].startswith("scenes")}
    ):
        runs = [run for run in data["runs"] if run["pairs"] == pairs]
        point: dict[str, Any] = {"row": row, "pairs": pairs}
        for name in MEASURES:
            found = summary(runs, row, name)
            point[name] = None if found is None else {"mean": found.mean, "spread": found.spread, "seeds": found.seeds}
        points.append(point)
    return points


def _validations(path: Path) -> list[dict[str, float]]:
    """Pairs seen and rendered bad 1 of every validation of a training."""
    seen, found = 0, []
    for line in path.read_text().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            raise InputError(f"{path} is no log of a training: a line of it is no JSON.") from None
        if entry.get("kind") == "train":
            seen = entry["samples"]
        elif entry.get("kind") == "validation" and "rendered/bad1" in entry:
            found.append({"pairs": seen, "bad1": entry["rendered/bad1"]})
    return found


def draw(data: dict[str, Any], path: Path, settings: Settings) -> None:
    """A line a row over pairs, all and occluded pixels apart."""
    with picture(path, columns=2, size=(11, 4)) as axes:
        for axis, name in zip(axes, MEASURES):
            for row in dict.fromkeys(point["row"] for point in data["points"]):
                points = [point for point in data["points"] if point["row"] == row and point[name]]
                means = [point[name]["mean"] for point in points]
                spreads = [point[name]["spread"] or 0.0 for point in points]
                axis.errorbar([point["pairs"] for point in points], means, spreads, marker="o", label=row)
            axis.set(xscale="log", yscale="log", xlabel="training pairs", ylabel="bad 1, %", title=name)
            axis.grid(color=GREY, alpha=0.2)
        for label, entries in data["logs"].items():
            axes[0].plot([e["pairs"] for e in entries], [e["bad1"] for e in entries], ":", label=f"{label}, validation")
        axes[0].legend(frameon=False, fontsize=7)
