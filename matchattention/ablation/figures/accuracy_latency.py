"""Accuracy over latency: ours, from the evaluation and timing files, among the points of the paper's table 5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matchattention.ablation.figures.drawing import BLUE, GREY, ORANGE, picture
from matchattention.ablation.figures.settings import Settings
from matchattention.ablation.paper import TABLE_5
from matchattention.ablation.results import FORMAT
from matchattention.ablation.rows import BASELINE
from matchattention.ablation.statistics import summary
from matchattention.bench.report import RESULTS
from matchattention.data.reading import read_json
from matchattention.errors import InputError
from matchattention.evaluation.report import read_report


def measure(settings: Settings) -> dict[str, Any]:
    """Gather the points; nothing is measured again.

    The files are, unless others are given: evaluation/rt-kitti2015-training.json, network-rt-*.json of a GPU and,
    where it exists, ablations-*.json of a GPU.
    """
    files = settings.files or _usual_files()
    results: dict[str, Any] = {"files": [str(path) for path in files], "points": [], "rows": []}
    accuracy: tuple[float, int] | None = None
    timings: list[dict[str, Any]] = []
    for path in files:
        data = read_json(path.read_bytes())
        if data.get("format") == FORMAT:
            results["rows"] += _rows(data)
        elif "dataset" in data:
            report = read_report(path)
            accuracy = (report.mean()["all"]["d1"], len(report.scenes))
        elif "modes" in data:
            timings.append(data)
    if accuracy is None or not timings:
        raise InputError(
            "An accuracy and a latency are needed: give an evaluation file of kitti2015 and a file of "
            "`matchattention bench network` with --from."
        )
    results["points"] = [point for data in timings for point in _fastest(data, *accuracy)]
    return results


def _fastest(data: dict[str, Any], error: float, pairs: int) -> list[dict[str, Any]]:
    """The point of a timing file's fastest mode; none where every mode failed."""
    times = {mode: row["median_ms"] for mode, row in data["modes"].items() if "median_ms" in row}
    if not times:
        return []
    mode = min(times, key=lambda name: times[name])
    chip = data["environment"].get("gpu") or data["environment"].get("processor")
    point = {"network": data["network"], "mode": mode, "ms": times[mode], "kitti_d1": error, "pairs": pairs}
    return [{**point, "size": data["shape"], "hardware": chip}]


def _usual_files() -> tuple[Path, ...]:
    files = [RESULTS / "evaluation" / "rt-kitti2015-training.json"]
    files += sorted(RESULTS.glob("network-rt-nvidia*.json")) + sorted(RESULTS.glob("ablations-nvidia*.json"))
    missing = [path for path in files if not path.is_file()]
    if missing:
        raise InputError(f"{missing[0]} is not here: run it in the source tree, or name files with --from.")
    return tuple(files)


def _rows(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Cost and error of the rows of an ablation that have both."""
    rows = []
    for name, cost in data["costs"].items():
        found = summary(data["runs"], name, "rendered/all/bad1")
        if found is not None and "median_ms" in cost["timing"]:
            rows.append({"row": name, "ms": cost["timing"]["median_ms"], "bad1": found.mean, "spread": found.spread})
    return rows


def draw(data: dict[str, Any], path: Path, settings: Settings) -> None:
    """KITTI's D1 over ms; beside it the rows of the ablation where there are any."""
    columns = 2 if data["rows"] else 1
    with picture(path, columns=columns, size=(6.5 * columns, 4.2)) as axes:
        first = axes[0] if columns == 2 else axes
        for name, point in TABLE_5.items():
            first.semilogx(point.rtx_4060_ti, point.kitti_d1, "s", color=ORANGE, mfc="white")
            first.annotate(f" {name}", (point.rtx_4060_ti, point.kitti_d1), color=GREY, va="center", fontsize=7)
        for point in data["points"]:
            first.semilogx(point["ms"], point["kitti_d1"], "o", color=BLUE)
            words = f"ours: {point['hardware']},\n{point['pairs']} of the 200 pairs"
            first.annotate(words, (point["ms"], point["kitti_d1"]), (0, -24), textcoords="offset points", fontsize=7)
        first.set(title="The paper's table 5 (RTX 4060 Ti, all 200 pairs) and ours", xlabel="ms at 1024x512, fp16")
        first.set(ylabel="KITTI 2015 D1, % (all)", xlim=(1, 3000))
        if columns == 2:
            for row in data["rows"]:
                style = {"color": BLUE if row["row"] == BASELINE else GREY, "marker": "o"}
                axes[1].errorbar(row["ms"], row["bad1"], row["spread"] or 0.0, **style)
                axes[1].annotate(f" {row['row']}", (row["ms"], row["bad1"]), fontsize=7)
            axes[1].set(title="Rows of the ablation", xlabel="ms at 1024x512, fp16", ylabel="rendered bad 1, %")
