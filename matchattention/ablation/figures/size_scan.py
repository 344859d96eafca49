"""Table S4: RT over the size of the images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matchattention.ablation.figures.drawing import BLUE, GREY, ORANGE, chip, picture
from matchattention.ablation.figures.settings import Settings
from matchattention.ablation.paper import TABLE_S4
from matchattention.bench.network import load_or_create, time_mode, usual_modes
from matchattention.bench.timing import growth_exponent
from matchattention.models.flops import count_flops


def measure(settings: Settings) -> dict[str, Any]:
    """Time of a pair at each of the paper's sizes, in the fastest usual mode and without fused kernels."""
    device = settings.device
    precision = "fp16" if device.type == "cuda" else "fp32"
    model, trained = load_or_create(settings.model)
    modes = usual_modes(model, device, precision)
    modes = modes[:-1] or modes  # the last is eager: where there are others it shows Python's launches
    sizes = [settings.size] if settings.size else [(row.height, row.width) for row in TABLE_S4]
    results: dict[str, Any] = {
        "network": settings.model,
        "trained_weights": trained,
        "precision": precision,
        "modes": modes,
        "sizes": [],
    }
    for height, width in sizes:
        settings.say(f"{width}x{height}:")
        row: dict[str, Any] = {"height": height, "width": width, "flops": count_flops(model.config, height, width)}
        for mode in modes:
            row[mode] = time_mode(model, (height, width), device, precision, mode, settings.seconds, settings.say)
        results["sizes"].append(row)
        settings.keep(results)
    fine = [row for row in results["sizes"] if "median_ms" in row[modes[0]]]
    if len(fine) > 1:
        pixels = [float(row["height"] * row["width"]) for row in fine]
        results["growth_exponent"] = growth_exponent(pixels, [row[modes[0]]["median_ms"] for row in fine])
    return results


def draw(data: dict[str, Any], path: Path, settings: Settings) -> None:
    """Ours and the paper's over pixels, both with a linear line through their first."""
    with picture(path) as axis:
        for mode, colour in zip(data["modes"], (BLUE, "#63a0d4")):
            rows = [row for row in data["sizes"] if "median_ms" in row[mode]]
            if rows:
                _line(
                    axis,
                    [(r["height"] * r["width"], r[mode]["median_ms"]) for r in rows],
                    colour,
                    f"{chip(data)}, {mode}",
                )
        paper = [(row.height * row.width, row.milliseconds) for row in TABLE_S4]
        _line(axis, paper, ORANGE, "paper, Jetson Orin NX")
        axis.set(title=f"{data['network']}, {data['precision']}, one pair", xlabel="megapixels", ylabel="ms")
        axis.legend(frameon=False)


def _line(axis: Any, points: list[tuple[int, float]], colour: str, words: str) -> None:
    pixels = [count / 1e6 for count, _ in points]
    axis.loglog(pixels, [time for _, time in points], "o-", color=colour, label=words)
    axis.loglog(pixels, [points[0][1] * count / pixels[0] for count in pixels], ":", color=GREY)
