"""Draw the reliability diagram of docs/confidence.md from the files of `evaluate --calibration`.

python benchmarks/reliability_plot.py benchmarks/results/calibration-*.json --output docs/images/reliability.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

LEAST_PIXELS = 2000  # fewer are noise


def main() -> None:
    """One panel a file: what is claimed against what is true, for the head and for left-right agreement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(arguments.reports), figsize=(4.6 * len(arguments.reports), 4.4), squeeze=False
    )
    for axis, path in zip(axes[0], sorted(arguments.reports, reverse=True)):
        report = json.loads(path.read_text())
        axis.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        labels = {"confidence": "confidence head", "agreement": "left-right agreement"}
        for (name, label), colour in zip(labels.items(), ("tab:blue", "tab:orange")):
            table = report["reliability"][name]
            points = [
                (claimed, observed)
                for claimed, observed, pixels in zip(table["claimed"], table["observed"], table["pixels"])
                if pixels >= LEAST_PIXELS
            ]
            error = report["calibration_error"][name]
            axis.plot(*zip(*points), "o-", markersize=4, color=colour, label=f"{label} (error {error:.3f})")
        axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence claimed", ylabel="share within 1 px")
        axis.set_title(f"{report['dataset']}, {len(report['scenes'])} pairs, zero-shot", fontsize=10)
        axis.legend(loc="upper left", fontsize=8, frameon=False)
        axis.set_aspect("equal")
    figure.tight_layout()
    figure.savefig(arguments.output, dpi=110)


if __name__ == "__main__":
    main()
