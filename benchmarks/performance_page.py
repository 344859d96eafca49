"""Write the tables and plots of docs/performance.md from the JSON files of benchmarks/results.

    python benchmarks/performance_page.py

Files of runs that were stopped early lack parts: their tables lack rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from performance_plots import draw

from matchattention.bench.kernels import ATTENTION_KERNELS, idle_share
from matchattention.data.atomic import replacing

ROOT = Path(__file__).resolve().parents[1]
PEER_MODES = ("eager", "eager-graph", "compiled", "compiled-graph", "fused-graph")
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines)


def where(data: dict[str, Any]) -> str:
    """One line on where a run was made."""
    found = data.get("environment", {})
    chip = found.get("gpu") or f"{found.get('processor')}, {found.get('threads')} threads"
    pytorch = found.get("versions", {}).get("torch")
    return f"{chip}; PyTorch {pytorch}; commit {found.get('commit')}; {found.get('date', '')[:10]}"


def milliseconds(row: dict[str, Any]) -> str:
    """Median and 90th percentile, or why there is none."""
    if "median_ms" not in row:
        return row.get("failed", "–")
    digits = 4 if row["median_ms"] < 0.1 else 3 if row["median_ms"] < 10 else 1
    return f"{row['median_ms']:.{digits}f} ({row['p90_ms']:.{digits}f})"


def over_floor(row: dict[str, Any]) -> str:
    """Time over the floor, and over the floor with its launches where these were timed."""
    if "over_floor" not in row:
        return ""
    launches = f" ({row['over_floor_and_launches']:.2f})" if "over_floor_and_launches" in row else ""
    return f"{row['over_floor']:.2f}{launches}"


def gibibytes(row: dict[str, Any]) -> str:
    peak = row.get("peak_bytes")
    return "–" if peak is None else f"{peak / 2**30:.2f}"


def operator_section(data: dict[str, Any]) -> str:
    rows = []
    for case in data.get("cases", []):
        if "forward" not in case:
            rows.append([case["name"], case["positions"], case.get("failed", "–"), "", "", "", ""])
            continue
        forward, both = case["forward"], case.get("forward_backward")
        rows.append(
            [
                case["name"],
                case["positions"],
                milliseconds(forward),
                over_floor(forward),
                f"{forward['peak_over_inputs_and_outputs']:.3f}" if "peak_over_inputs_and_outputs" in forward else "–",
                milliseconds(both) if both else "",
                over_floor(both or {}),
            ]
        )
    floor = "x floor (with launches)" if "launch_ms" in data else "x floor"
    head = ["case", "positions", "forward, ms (p90)", floor, "peak / (in + out)", "with backward, ms (p90)", floor]
    sentences = []
    if "copy_bandwidth_bytes_per_s" in data:
        sentences.append(f"Copy bandwidth {data['copy_bandwidth_bytes_per_s'] / 1e9:.0f} GB/s.")
    if "launch_ms" in data:
        sentences.append(f"A kernel that changes one number takes {1e3 * data['launch_ms']:.2f} us.")
    if "growth_exponent" in data:
        sentences.append(f"Time grows with tokens to the power {data['growth_exponent']:.3f}.")
    return " ".join(sentences) + "\n\n" + table(head, rows)


def idle(row: dict[str, Any]) -> str:
    return f"{100 * idle_share(row['busy_us'], row['median_ms']):.1f} %" if "busy_us" in row else ""


def network_section(data: dict[str, Any]) -> str:
    weights = "shipped weights" if data["trained_weights"] else "random weights"
    height, width = data["shape"]
    lines = [f"{width}x{height}, {data['precision']}, {data['flops'] / 1e9:.1f} GFLOP, {weights}.", ""]
    modes = data.get("modes", {})
    rows = [
        [mode, milliseconds(row), gibibytes(row), str(row.get("launches", "")), idle(row), attention_share(row)]
        for mode, row in modes.items()
    ]
    lines.append(
        table(
            ["mode", "ms (p90)", "peak GiB", "kernels", "idle between them", "of the time in attention kernels"], rows
        )
    )
    counted = dict.fromkeys(word for row in modes.values() for word in row.get("attention_us", {}))
    if counted:
        words = "; ".join(f"`{word}*`: {ATTENTION_KERNELS[word]}" for word in counted)
        lines += ["", f"Attention kernels: {words}."]
    own = data.get("operator_beside_fused_pass")
    if own:
        share = f"{100 * own['share']:.1f} % of the {own['fused_busy_us']:.0f} us that the fused pass is busy"
        lines += ["", f"The operator by itself, as in the captured pass, takes {own['operator_us']:.0f} us: {share}."]
    rows = [parity_row(row) for row in data.get("parity_with_fp32", [])]
    if rows:
        lines += ["", table(["image width", "mean px from fp32", "left quarter", "right quarter"], rows)]
    if data.get("large"):
        rows = [
            [name, f"{row['shape'][1]}x{row['shape'][0]}", milliseconds(row), gibibytes(row)]
            for name, row in data["large"].items()
        ]
        lines += ["", table(["input", "size", "ms (p90)", "peak GiB"], rows)]
        if "growth_exponent" in data:
            lines += ["", growth_sentence(data)]
    return "\n".join(lines)


def growth_sentence(data: dict[str, Any]) -> str:
    text = f"Time grows with pixels to the power {data['growth_exponent']:.3f}"
    if "growth_exponent_over_all_passes" in data:
        text += f", with the pixels of all passes to the power {data['growth_exponent_over_all_passes']:.3f}"
    if "memory_growth_exponent" in data:
        text += f"; memory with pixels to the power {data['memory_growth_exponent']:.3f}"
    return text + "."


def attention_share(row: dict[str, Any]) -> str:
    return f"{100 * row['attention_share']:.1f} %" if "attention_share" in row else ""


def parity_row(row: dict[str, Any]) -> list[str]:
    if "mean_px" not in row:
        return [str(row["width"]), row.get("failed", "–"), "", ""]
    columns = ("mean_px", "mean_px_first_quarter", "mean_px_last_quarter")
    return [str(row["width"]), *(f"{row[column]:.4f}" for column in columns)]


def training_section(data: dict[str, Any]) -> str:
    height, width = data["crop"]
    rows = [
        [name, milliseconds(row), f"{row['pairs_per_second']:.1f}" if "pairs_per_second" in row else "", gibibytes(row)]
        for name, row in data.get("modes", {}).items()
    ]
    text = f"{data['network']}, crop {width}x{height}, batch {data['batch']}."
    return text + "\n\n" + table(["step", "ms (p90)", "pairs/s", "peak GiB"], rows)


def peers_section(data: dict[str, Any]) -> str:
    rows = []
    for name, modes in data.get("networks", {}).items():
        best = {mode: milliseconds(row) for mode, row in modes.items() if isinstance(row, dict)}
        rows.append([name, *(best.get(mode, "") for mode in PEER_MODES)])
    return table(["network", *(f"{mode}, ms (p90)" for mode in PEER_MODES)], rows)


def predictor_section(data: dict[str, Any]) -> str:
    """What a user waits for, way by way; then the first call of a new process."""
    height, width = data["shape"]
    rows = [
        [name, f"{row['ms_a_pair']:.2f}", f"{1e3 / row['ms_a_pair']:.1f}", row.get("mode", "")]
        if "ms_a_pair" in row
        else [name, row.get("failed", "–"), "", ""]
        for name, row in data.get("ways", {}).items()
    ]
    text = f"`Predictor(model, check=False)`, {width}x{height}.\n\n" + table(
        ["in and out", "ms a pair", "pairs/s", "mode"], rows
    )
    first = [
        [name, f"{row['load_s']:.1f}", f"{row['first_call_s']:.1f}"] for name, row in data.get("first_call", {}).items()
    ]
    return text + ("\n\n" + table(["new process", "network ready, s", "first pair, s"], first) if first else "")


def scenes_section(data: dict[str, Any]) -> str:
    """Sustained rates by size, with drawing, rendering and sensor; then what a pair costs the GPU, stage by stage."""
    rates, stages = [], []
    for name, row in data.items():
        kind, _, size = name.partition("_")
        if kind == "sustained" and "pairs_per_s" in row:
            size, clean, _ = size.partition("_clean")
            sensor = "none" if clean else "default"
            rates.append([size, sensor, f"{row['pairs_per_s']:.0f}", f"{row['peak_gib']:.1f}", str(row["workers"])])
        elif name.startswith("ms_per_pair_") and "render_all" in row:
            parts = (f"{row[part]:.2f}" for part in ("probe", "tables_and_shadow", "cast", "shade", "render_all"))
            stages.append([name.removeprefix("ms_per_pair_"), *parts])
    heads = (
        ["size", "sensor", "pairs/s", "peak GiB", "drawing processes"],
        ["size", "probe, ms a pair", "tables and shadows", "cast", "shade", "all"],
    )
    return "\n\n".join(table(head, rows) for head, rows in zip(heads, (rates, stages)) if rows)


SECTIONS = {
    "operator": ("The operator", operator_section),
    "network": ("A network", network_section),
    "predictor": ("What users get", predictor_section),
    "training": ("A training step", training_section),
    "scenes": ("Rendered scenes", scenes_section),
    "peers": ("Beside others", peers_section),
}


def main() -> None:
    paths = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    results = {path.stem: json.loads(path.read_text()) for path in paths}
    draw(results, ROOT / "docs" / "images" / "performance.png")
    parts = []
    for kind, (title, render) in SECTIONS.items():
        for data in (data for stem, data in results.items() if stem.startswith(f"{kind}-")):
            name = f"{title}: {data['network']}" if "network" in data else title
            parts.append(f"### {name}\n\n{where(data)}\n\n{render(data)}")
    page = ROOT / "docs" / "performance.md"
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    body = "\n\n".join(parts) or "No run has been recorded yet."
    with replacing(page) as temporary:
        temporary.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}")
    print(f"{page}: {len(parts)} tables")


if __name__ == "__main__":
    main()
