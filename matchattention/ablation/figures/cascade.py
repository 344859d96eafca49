"""Figure 5: from 6x6 windows with full channels to RT, step by step, with the operator's share of the time."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from matchattention.ablation.figures.drawing import BLUE, GREY, ORANGE, chip, picture
from matchattention.ablation.figures.settings import Settings
from matchattention.ablation.paper import CASCADE_SHARE
from matchattention.bench.network import profile_mode, time_mode
from matchattention.bench.scenes import image_pair
from matchattention.errors import first_line
from matchattention.layers.families import MatchAttention
from matchattention.models.config import NetworkConfig
from matchattention.models.flops import count_flops
from matchattention.models.network import MatchNetwork
from matchattention.models.registry import create_model, network_config

SIZE = (736, 1280)
# The paper's order: first the channels, then one window for all scales, then one row of it.
STEPS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("rt-cascade", "6x6 6x6 4x4 4x4, full channels", {}),
    ("rt-cascade", "1/4 of the channels", {"compression": 4}),
    ("rt-2d", "4x4 at every scale", {}),
    ("rt", "1x4: RT", {}),
)


def configs() -> list[tuple[str, NetworkConfig]]:
    """What each step of the cascade runs, in order."""
    return [(words, replace(network_config(name), **changed)) for name, words, changed in STEPS]


def measure(settings: Settings) -> dict[str, Any]:
    """Time, memory, FLOPs and the operator's share of every step; random weights."""
    size, device = settings.size or SIZE, settings.device
    on_gpu = device.type == "cuda"
    precision, mode = ("fp16", "eager-graph") if on_gpu else ("fp32", "eager")
    results: dict[str, Any] = {"size": list(size), "precision": precision, "mode": mode, "steps": []}
    for words, config in configs():
        settings.say(f"{words}:")
        torch.manual_seed(0)
        model = create_model(config).eval()
        row: dict[str, Any] = {"words": words, "flops": count_flops(config, *size)}
        row["timing"] = time_mode(model, size, device, precision, mode, settings.seconds, settings.say)  # type: ignore[arg-type]
        try:
            row["operator_percent"] = _share_on_gpu(model, size, settings) if on_gpu else _share_on_cpu(model, size)
            settings.say(f"  {row['operator_percent']:.1f} % of it in the operator")
        except Exception as error:
            row["operator_failed"] = first_line(error)
        results["steps"].append(row)
        settings.keep(results)
    return results


def _share_on_gpu(model: MatchNetwork, size: tuple[int, int], settings: Settings) -> float:
    found = profile_mode(model, size, settings.device, "fp16", "eager-graph")
    return 100 * found["attention_share"]


def _share_on_cpu(model: MatchNetwork, size: tuple[int, int]) -> float:
    """The operator is called one by one, so that clocks around its calls tell."""
    inside, began = 0.0, 0.0

    def enter(*_: Any) -> None:
        nonlocal began
        began = time.perf_counter()

    def leave(*_: Any) -> None:
        nonlocal inside
        inside += time.perf_counter() - began

    left, right, _ = image_pair(*size, torch.device("cpu"))
    handles = []
    for module in model.modules():
        if isinstance(module, MatchAttention):
            handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    try:
        begin = time.perf_counter()
        with torch.inference_mode():
            model(left.float(), right.float())
        return 100 * inside / (time.perf_counter() - begin)
    finally:
        for handle in handles:
            handle.remove()


def draw(data: dict[str, Any], path: Path, settings: Settings) -> None:
    """Bars: the operator's part and the rest; the paper's two shares beside the ends."""
    steps = [row for row in data["steps"] if "median_ms" in row["timing"]]
    with picture(path, size=(8, 3.2)) as axis:
        times = [row["timing"]["median_ms"] for row in steps]
        inside = [time * row.get("operator_percent", 0.0) / 100 for time, row in zip(times, steps)]
        places = range(len(steps))
        axis.barh(places, inside, color=ORANGE, label="the operator")
        axis.barh(places, [a - b for a, b in zip(times, inside)], left=inside, color=BLUE, label="everything else")
        axis.set_yticks(places, [row["words"] for row in steps])
        axis.invert_yaxis()
        shares = {0: CASCADE_SHARE["rt-cascade"], len(steps) - 1: CASCADE_SHARE["rt"]}
        for place, (time_, row) in enumerate(zip(times, steps)):
            paper = (
                f"; paper's share {'over ' if place == 0 else 'about '}{shares[place]:.0f} %" if place in shares else ""
            )
            share = f", {row['operator_percent']:.0f} % in the operator" if "operator_percent" in row else ""
            axis.annotate(f" {time_:.2f} ms{share}{paper}", (time_, place), va="center", color=GREY)
        axis.set(
            xlim=(0, 1.9 * max(times)),
            xlabel="ms",
            title=f"One pair of {data['size'][1]}x{data['size'][0]}, {data['precision']}; {chip(data)}",
        )
        axis.legend(frameon=False, loc="lower right")
