"""The plots of docs/performance.md, from the same JSON files as its tables; `performance_page.py` draws them.

Each plot is left out where nobody has measured what it shows on `GPU`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matchattention.data.atomic import replacing

Results = dict[str, dict[str, Any]]
GPU = "nvidia-h200"
BLUE, ORANGE, GREY = "#1f6fb4", "#d9661f", "#9a9a9a"
# A kernel's name contains the left; the right is what a reader calls it.
KINDS = {
    "block_attention": "attention with its projections",
    "match_attention": "attention",
    "contract": "feed-forward contraction",
    "depthwise": "depthwise convolution and gate",
    "sdpa": "global attention at 1/32",
    "convex": "convex upsampling",
    "transport": "initial matching",
    "norm": "norms, with what follows them",
    "statistics": "norms, with what follows them",
    "join": "joining of scales",
    "xmma": "dense convolutions",
    "cutlass__5x": "dense convolutions",
    "first_convolution": "dense convolutions",
    "nvjet": "matrix products",
    "cutlass::": "matrix products",
    "gemm": "matrix products",
}


def kind_of(kernel: str) -> str:
    """What a reader calls a kernel."""
    return next((kind for word, kind in KINDS.items() if word in kernel), "everything else")


def operator_plot(axis: Any, results: Results) -> bool:
    """Time over tokens beside the floor of the bytes."""
    cases = results.get(f"operator-{GPU}", {}).get("cases", [])
    swept = [case for case in cases if case["name"].startswith("s3") and case["positions"] == "smooth"]
    if not swept:
        return False
    for what, colour, label in (("forward", BLUE, "forward"), ("forward_backward", ORANGE, "with backward")):
        timed = [case for case in swept if "median_ms" in case.get(what, {})]
        tokens = [case["shape"][1] * case["shape"][2] for case in timed]
        axis.loglog(tokens, [case[what]["median_ms"] for case in timed], "o-", color=colour, label=label)
        floors = [case[what]["floor_ms"] for case in timed]
        axis.loglog(tokens, floors, "--", color=colour, label="its floor", alpha=0.6)
    axis.set(title="Operator: 256 channels, 4x4 window, fp32", xlabel="tokens", ylabel="ms")
    axis.legend(frameon=False)
    return True


def growth_plot(axis: Any, results: Results) -> bool:
    """RT's time and memory over an image's pixels."""
    data = results.get(f"network-rt-{GPU}", {})
    rows = [row for row in data.get("large", {}).values() if "median_ms" in row]
    if not rows:
        return False
    rows.insert(0, {"shape": data["shape"], **data["modes"][rows[0]["mode"]]})
    pixels = [row["shape"][0] * row["shape"][1] / 1e6 for row in rows]
    times = [row["median_ms"] for row in rows]
    axis.loglog(pixels, times, "o-", color=BLUE, label="ms")
    axis.loglog(pixels, [row["peak_bytes"] / 2**30 for row in rows], "s-", color=ORANGE, label="peak GiB")
    axis.loglog(pixels[1:], [times[1] * count / pixels[1] for count in pixels[1:]], ":", color=GREY, label="linear")
    for count, time, row in zip(pixels, times, rows):
        size = f"{row['shape'][1]}x{row['shape'][0]}"
        axis.annotate(size, (count, time), (-4, 7), textcoords="offset points", ha="right")
    axis.set(title="RT, fp16: one pair", xlabel="megapixels", xlim=(0.1, 60), ylim=(None, 3 * max(times)))
    axis.legend(frameon=False, loc="lower right")
    return True


def share_plot(axis: Any, results: Results) -> bool:
    """Which kinds of kernels a pass is busy with."""
    passes = {
        "RT": results.get(f"network-rt-{GPU}", {}).get("modes", {}).get("fused-graph", {}),
        "XL": results.get(f"network-xl-{GPU}", {}).get("modes", {}).get("eager-graph", {}),
    }
    shares: dict[str, dict[str, float]] = {}
    for name, row in passes.items():
        for kernel in row.get("kernels", []):
            of_kind = shares.setdefault(kind_of(kernel["name"]), dict.fromkeys(passes, 0.0))
            of_kind[name] += 100 * kernel["total_us"] / row["busy_us"]
    if not shares:
        return False
    kinds = sorted(shares, key=lambda kind: (kind != "everything else", sum(shares[kind].values())))
    for offset, (name, colour) in zip((0.2, -0.2), (("RT", BLUE), ("XL", ORANGE))):
        places = [place + offset for place in range(len(kinds))]
        axis.barh(places, [shares[kind][name] for kind in kinds], 0.38, color=colour, label=name)
    axis.set_yticks(range(len(kinds)), kinds)
    axis.set(title="What a pass at 1024x512 is busy with", xlabel="% of the time")
    axis.legend(frameon=False, loc="lower right")
    return True


PLOTS: tuple[Callable[[Any, Results], bool], ...] = (operator_plot, growth_plot, share_plot)


def draw(results: Results, path: Path) -> None:
    """Draw all plots into one picture.

    Args:
        results: contents of the JSON files, by name without ending.
        path: the picture, PNG.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style = {"font.size": 9, "axes.titlesize": 10, "axes.spines.top": False, "axes.spines.right": False}
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(1, len(PLOTS), figsize=(13, 4), layout="constrained")
        for axis, plot in zip(axes, PLOTS):
            axis.set_visible(plot(axis, results))
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", dpi=100)
        pyplot.close(figure)
