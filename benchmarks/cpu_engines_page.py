"""The tables and the advice on CPU engines in docs/deployment.md, from what `cpu_engines.py` measured.

Whatever is not measured yet leaves its cells empty and is said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cpu_engines_studies import Study

from matchattention.data.atomic import replacing

PAGE = Path(__file__).resolve().parents[1] / "docs" / "deployment.md"
BEGIN, END = (
    "<!-- cpu engines of {}: written by benchmarks/cpu_engines.py page -->",
    "<!-- end of cpu engines of {} -->",
)
LOSS = 0.1  # points


def section(found: dict[str, Any], study: Study) -> str:
    """The part of the page between its two markers.

    Args:
        found: the JSON file's content.
        study: what was to be measured.
    """
    titles = [column.title for column in study.columns]
    head = ["engine", *titles, "px from PyTorch", "file, MB", "nodes", "ms a pair"]
    rows = [_row(name, found, study) for name in study.engines]
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows))
    return "\n\n".join((_circumstances(found, study), table, _advice(found, study)))


def write_page(found: dict[str, Any], study: Study, page: Path = PAGE) -> None:
    """Put the section in its place."""
    begin, end = BEGIN.format(study.model), END.format(study.model)
    text = page.read_text()
    before, rest = text.split(begin)
    _, after = rest.split(end)
    with replacing(page) as temporary:
        temporary.write_text(f"{before}{begin}\n{section(found, study)}\n{end}{after}")


def _row(name: str, found: dict[str, Any], study: Study) -> list[str]:
    figures = found.get("accuracy", {}).get("engines", {}).get(name, {})
    engine = study.engines[name]
    file = found.get("files", {}).get(study.file(engine), {}) if engine else {}
    time = (found.get("latency") or {}).get("engines", {}).get(name)
    apart = [measured["px_from_pytorch"] for measured in figures.values() if "px_from_pytorch" in measured]
    cells = [
        " / ".join(f"{figures[column.pairs][mask][figure]:.2f}" for mask, figure in column.figures)
        if column.pairs in figures
        else ""
        for column in study.columns
    ]
    return [
        name,
        *cells,
        f"{max(apart):.4f}" if apart else "",
        str(file.get("megabytes", "")),
        str(file.get("nodes", "")),
        f"{time['best_ms']:.0f} ({time['times_as_fast_as_pytorch']:.2f}x)" if time else "",
    ]


def _circumstances(found: dict[str, Any], study: Study) -> str:
    accuracy, latency = found.get("accuracy"), found.get("latency")
    parts = []
    if accuracy:
        scenes = {
            study.pairs[key].title: measured["scenes"]
            for figures in accuracy["engines"].values()
            for key, measured in figures.items()
        }
        sets = _and([f"{number} pairs of {title}" for title, number in scenes.items()])
        parts.append(f"`{study.model}` on {sets}: means over scenes; {_where(accuracy['environment'])}.")
        parts.append("Pixels from PyTorch are the mean difference on the set where it is largest.")
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


def loss(figures: dict[str, Any], plain: dict[str, Any], study: Study) -> tuple[float, str] | None:
    """The most points lost against PyTorch, and where; None before all sets are measured."""
    if not all(key in measured for measured in (figures, plain) for key in study.pairs):
        return None
    return max(
        (figures[key][mask][figure] - plain[key][mask][figure], f"{words} {mask} of {study.pairs[key].title}")
        for key, figure, words in study.points
        for mask in ("noc", "all")
        if mask in plain[key]
    )


def _advice(found: dict[str, Any], study: Study) -> str:
    measured, latency = found.get("accuracy", {}).get("engines", {}), found.get("latency")
    plain = measured.get(next(iter(study.engines)), {})
    losses = {name: loss(measured.get(name, {}), plain, study) for name in study.engines}
    kept = _and(list(dict.fromkeys(words for _, _, words in study.points)))
    lines = []
    good = [name for name, lost in losses.items() if lost is not None and lost[0] < LOSS]
    times = {} if latency is None else {name: latency["engines"][name] for name in good if name in latency["engines"]}
    if times:
        best = min(times, key=lambda name: times[name]["best_ms"])
        lines.append(f"**Use {best}**: of all that lose less than {LOSS} points of {kept} it is the fastest")
        if engine := study.engines[best]:
            file = study.file(engine)
            precision = "" if engine.exported == "fp32" else f" --precision {engine.exported}"
            lines[-1] += f", {times[best]['times_as_fast_as_pytorch']:.2f} times as fast as PyTorch."
            lines.append(f"`matchattention export --model {study.model} --output {file}{precision}` makes its file,")
            lines.append(f"`--model {file} --engine {engine.engine}` runs it.")
        else:
            lines[-1] += ", and needs no exported file."
    else:
        if good:
            lines.append(f"These lose less than {LOSS} points of {kept}: {', '.join(good)}.")
        lines.append("**Which is the fastest is not measured yet.**")
    if missing := [name for name, lost in losses.items() if lost is None]:
        lines.append(f"Not measured on all sets yet: {', '.join(missing)}.")
    for name, lost in losses.items():
        if lost is not None and lost[0] >= LOSS:
            lines.append(f"{name} loses {lost[0]:.2f} points ({lost[1]}).")
    return " ".join(lines)


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
