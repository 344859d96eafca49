"""The tables and the advice on CPU engines in docs/deployment.md, from what `cpu_engines.py` measured.

Whatever is not measured yet leaves its cells empty and is said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matchattention.data.atomic import replacing

PAGE = Path(__file__).resolve().parents[1] / "docs" / "deployment.md"
BEGIN, END = "<!-- cpu engines: written by benchmarks/cpu_engines.py page -->", "<!-- end of cpu engines -->"
NAMES = {"middlebury": "Middlebury Q", "kitti2015": "KITTI 2015"}
# What an engine must not lose.
POINTS = (("middlebury", "bad2", "bad 2"), ("middlebury", "bad1", "bad 1"), ("kitti2015", "d1", "D1"))
LOSS = 0.1  # points
EXPORTS = {"rt.onnx": "--output rt.onnx", "rt-int8.onnx": "--output rt-int8.onnx --precision int8"}
HEAD = (
    "engine",
    "Middlebury Q, bad 2 noc / all, %",
    "bad 1 noc, %",
    "KITTI 2015, D1 noc / all, %",
    "px from PyTorch",
    "file, MB",
    "nodes",
    "ms a pair",
)


def section(study: dict[str, Any], engines: dict[str, tuple[str, str, str] | None]) -> str:
    """The part of the page between its two markers.

    Args:
        study: the JSON file's content.
        engines: `cpu_engines.ENGINES`; the first one is what all others are compared with.
    """
    measured = study.get("accuracy", {}).get("engines", {})
    rows = [_row(name, choice, study) for name, choice in engines.items()]
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in (HEAD, ["---"] * len(HEAD), *rows))
    return "\n\n".join((_circumstances(study), table, _advice(measured, study.get("latency"), engines)))


def write_page(study: dict[str, Any], engines: dict[str, tuple[str, str, str] | None], page: Path = PAGE) -> None:
    """Put the section in its place."""
    text = page.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    with replacing(page) as temporary:
        temporary.write_text(f"{before}{BEGIN}\n{section(study, engines)}\n{END}{after}")


def _row(name: str, choice: tuple[str, str, str] | None, study: dict[str, Any]) -> list[str]:
    figures = study.get("accuracy", {}).get("engines", {}).get(name, {})
    file = study.get("files", {}).get(choice[0], {}) if choice else {}
    time = (study.get("latency") or {}).get("engines", {}).get(name)
    middlebury, kitti = (figures.get(dataset) for dataset in NAMES)
    apart = [found["px_from_pytorch"] for found in (middlebury, kitti) if found and "px_from_pytorch" in found]
    return [
        name,
        f"{middlebury['noc']['bad2']:.2f} / {middlebury['all']['bad2']:.2f}" if middlebury else "",
        f"{middlebury['noc']['bad1']:.2f}" if middlebury else "",
        f"{kitti['noc']['d1']:.2f} / {kitti['all']['d1']:.2f}" if kitti else "",
        f"{max(apart):.4f}" if apart else "",
        str(file.get("megabytes", "")),
        str(file.get("nodes", "")),
        f"{time['best_ms']:.0f} ({time['times_as_fast_as_pytorch']:.2f}x)" if time else "",
    ]


def _circumstances(study: dict[str, Any]) -> str:
    accuracy, latency = study.get("accuracy"), study.get("latency")
    parts = []
    if accuracy:
        scenes = {
            NAMES[dataset]: found["scenes"]
            for figures in accuracy["engines"].values()
            for dataset, found in figures.items()
        }
        sets = " and ".join(f"{number} pairs of {name}" for name, number in scenes.items())
        parts.append(f"`{study['model']}` on {sets}: means over scenes; {_where(accuracy['environment'])}.")
        parts.append("Pixels from PyTorch are the mean difference on the worse of the two sets.")
    if latency:
        busy = (
            ""
            if latency["quiet_machine"]
            else f", **on a busy machine** (load {latency['load_average']['before'][0]:.1f})"
        )
        parts.append(
            f"Times are the fastest of {latency['rounds']} turns at {latency['size']} with {latency['threads']} threads"
            f"{busy}, in brackets how many times PyTorch's speed; {_where(latency['environment'])}."
        )
    return " ".join(parts)


def _where(environment: dict[str, Any]) -> str:
    versions = environment["versions"]
    packages = (("PyTorch", "torch"), ("ONNX Runtime", "onnxruntime"), ("OpenVINO", "openvino"))
    named = ", ".join(f"{name} {versions[key]}" for name, key in packages if key in versions)
    return f"{environment['processor']}, {named}, commit {environment['commit']}, {environment['date'][:10]}"


def loss(figures: dict[str, Any], plain: dict[str, Any]) -> tuple[float, str] | None:
    """The most points lost against PyTorch, and where; None before both sets are measured."""
    if not all(dataset in found for found in (figures, plain) for dataset in NAMES):
        return None
    return max(
        (figures[dataset][mask][key] - plain[dataset][mask][key], f"{words} {mask} of {NAMES[dataset]}")
        for dataset, key, words in POINTS
        for mask in ("noc", "all")
    )


def _advice(measured: dict[str, Any], latency: dict[str, Any] | None, engines: dict[str, Any]) -> str:
    plain = measured.get(next(iter(engines)), {})
    losses = {name: loss(measured.get(name, {}), plain) for name in engines}
    lines = []
    good = [name for name, lost in losses.items() if lost is not None and lost[0] < LOSS]
    times = {} if latency is None else {name: latency["engines"][name] for name in good if name in latency["engines"]}
    if times:
        best = min(times, key=lambda name: times[name]["best_ms"])
        lines.append(
            f"**Use {best}**: of all that lose less than {LOSS} points of bad 1, bad 2 and D1 it is the fastest"
        )
        if choice := engines[best]:
            file, engine, _ = choice
            lines[-1] += f", {times[best]['times_as_fast_as_pytorch']:.2f} times as fast as PyTorch."
            lines.append(
                f"`matchattention export {EXPORTS[file]}` makes its file, `--model {file} --engine {engine}` runs it."
            )
        else:
            lines[-1] += ", and needs no exported file."
    else:
        if good:
            lines.append(f"These lose less than {LOSS} points of bad 1, bad 2 and D1: {', '.join(good)}.")
        lines.append("**Which is the fastest is not measured yet.**")
    if missing := [name for name in engines if not all(dataset in measured.get(name, {}) for dataset in NAMES)]:
        lines.append(f"Not measured on both sets yet: {', '.join(missing)}.")
    for name, lost in losses.items():
        if lost is not None and lost[0] >= LOSS:
            lines.append(f"{name} loses {lost[0]:.2f} points ({lost[1]}).")
    return " ".join(lines)
