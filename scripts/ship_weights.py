"""Put a trained checkpoint into the package, with its card.

    python scripts/ship_weights.py runs/main/model.safetensors rt RESULT.json [RESULT.json ...]

The card travels inside the file: what it was trained on, how, for how long, and what `matchattention evaluate`
measured (the RESULT files). Weights are committed only when they beat the shipped ones on real pairs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this tree's package, whichever is installed

from matchattention.models import checkpoint

ROOT = Path(__file__).resolve().parents[1]
_PHOTOS = (
    "textured with procedural patterns and freely licensed photographs (docs/photo-bank.md); no pair of any public "
    "benchmark was trained on"
)
DATA = {
    "stereo": f"stereo scenes rendered by matchattention.synth (docs/scenes.md), {_PHOTOS}",
    "flow": f"moving scenes and moving photographs rendered by matchattention.synth (docs/flow.md), {_PHOTOS}; "
    "started from the stereo weights of rt",
}
METRICS = {"stereo": ("bad1", "bad2", "bad3", "d1", "epe"), "flow": ("bad1", "bad3", "fl", "epe")}


def measured(path: Path) -> dict[str, object]:
    """What one evaluation says, without its scenes."""
    result = json.loads(path.read_text())
    means = result["mean_over_scenes"]
    figures = {
        mask: {name: round(means[mask][name], 3) for name in METRICS[result["kind"]]}
        for mask in ("noc", "all")
        if mask in means
    }
    place = result["root"] if result["dataset"].startswith("folder") else result["split"]
    return {"set": f"{result['dataset']} {place or ''}".strip(), "mean_over_scenes": figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("name")
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--gpu-minutes", type=float, required=True, help="training so far, over all runs")
    arguments = parser.parse_args()
    config, metadata = checkpoint.read_header(arguments.source)
    card = {
        "license": "Apache-2.0",
        "data": DATA[config.task],
        "gpu_minutes": arguments.gpu_minutes,
        "last_run": {key: metadata[key] for key in ("pairs", "steps", "training_seconds", "recipe") if key in metadata},
        "results": [measured(path) for path in arguments.results],
    }
    target = ROOT / "matchattention" / "weights" / f"{arguments.name}.safetensors"
    target.parent.mkdir(exist_ok=True)
    checkpoint.save(checkpoint.read_weights(arguments.source), target, config, card, torch.float16)
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
