"""Put a trained checkpoint into the package, with its card.

    python scripts/ship_weights.py runs/main/model.safetensors rt RESULT.json [RESULT.json ...]

The card travels inside the file: what it was trained on, how, for how long, and what `matchattention evaluate`
measured (the RESULT files). Weights are committed only when they beat the shipped ones on real pairs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import matchattention
from matchattention.models import checkpoint

DATA = (
    "stereo scenes rendered by matchattention.synth (docs/scenes.md), textured with procedural patterns and freely "
    "licensed photographs (docs/photo-bank.md); no pair of any public benchmark was trained on"
)


def measured(path: Path) -> dict[str, object]:
    """What one evaluation says, without its scenes."""
    result = json.loads(path.read_text())
    figures = {
        mask: {name: round(result["mean_over_scenes"][mask][name], 3) for name in ("bad1", "bad2", "bad3", "d1", "epe")}
        for mask in ("noc", "all")
    }
    return {"set": f"{result['dataset']} {result['split'] or ''}".strip(), "mean_over_scenes": figures}


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
        "data": DATA,
        "gpu_minutes": arguments.gpu_minutes,
        "last_run": {key: metadata[key] for key in ("pairs", "steps", "training_seconds", "recipe") if key in metadata},
        "results": [measured(path) for path in arguments.results],
    }
    target = Path(matchattention.__file__).parent / "weights" / f"{arguments.name}.safetensors"
    target.parent.mkdir(exist_ok=True)
    checkpoint.save(checkpoint.read_weights(arguments.source), target, config, card, torch.float16)
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
