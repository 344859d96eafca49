"""What every block of a stereo network contributes, and what goes from scale to scale.

    python benchmarks/look_inside.py middlebury DATA/MiddEval3 --split trainingQ --model rt

Prints the mean end-point error (all known pixels) after the initial blocks, after every attention and at full
resolution: a scale whose blocks change nothing has learned nothing. Then, for each ReLU between two scales, how many
units fire, and mean and deviation of its inputs: a scale behind silent units sees constants. For convex upsamplings
also the mean weight of the strongest neighbour, and which one (row, column of 3 x 3) it is most often for each fine
pixel of a token: at 1 no gradient passes. Last, the strongest hidden unit of each scale's last block: one that is a
large constant moves all tokens with every update of its weights.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.watching import inputs_by_layer, observed, watched
from matchattention.data.datasets.registry import open_dataset
from matchattention.data.datasets.sample import StereoSample
from matchattention.errors import InputError
from matchattention.layers.upsampling import ConvexUpsampling
from matchattention.models import checkpoint
from matchattention.models.network import Matches

SIZE = 32  # images are cropped to multiples of it, so that nothing is padded


def images_of(sample: StereoSample) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Both views (1, 3, H, W) and the left disparity (H, W) px, cropped."""
    height, width = (side // SIZE * SIZE for side in sample.left.shape[:2])
    left, right = (
        torch.from_numpy(view[:height, :width].copy()).permute(2, 0, 1)[None].float()
        for view in (sample.left, sample.right)
    )
    assert sample.disparity is not None
    return left, right, torch.from_numpy(sample.disparity[:height, :width].copy())


def errors_after_blocks(matches: Matches, truth: torch.Tensor) -> dict[str, float]:
    """Mean end-point error of the left view's fields in px, by scale, number and kind."""
    known, found = torch.isfinite(truth), {}
    for number, step in enumerate(matches.steps):
        disparity = -step.position[:1, None, ..., 0] * step.scale
        disparity = F.interpolate(disparity, truth.shape, mode="bilinear", align_corners=False)[0, 0]
        found[f"1/{step.scale} {number} {step.kind}"] = (disparity - truth)[known].abs().mean().item()
    found["full"] = (-matches.field[0, ..., 0] - truth)[known].abs().mean().item()
    return found


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("root", type=Path)
    parser.add_argument("--split")
    parser.add_argument("--model", default="rt")
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    try:
        samples = open_dataset(arguments.dataset, arguments.root, arguments.split)[: arguments.pairs]
        model = checkpoint.load(arguments.model).train()  # a training network returns every field
    except InputError as error:
        parser.exit(2, f"{error}\n")
    pairs = [images_of(sample) for sample in samples]
    sums: dict[str, float] = {}
    for left, right, truth in pairs:
        for name, error in errors_after_blocks(model(left, right), truth).items():
            sums[name] = sums.get(name, 0.0) + error / len(pairs)
    for name, error in sums.items():
        print(f"{name:14s} {error:7.3f} px")
    left, right, _ = pairs[0]
    for passage in watched(model, lambda: model(left, right)):
        first, *_, last = inputs_by_layer(passage).values()
        units = last.amax((0, 2, 3)) > 0
        share, mean, deviation = (last > 0).float().mean(), first.mean((0, 2, 3)), first.std((0, 2, 3))
        print(
            f"{passage.name}: {int(units.sum())} of {len(units)} units fire, on {100 * share:.0f} % of the tokens; "
            f"inputs have means of {mean.abs().mean():.1f} and deviations of {deviation.mean():.1f}"
        )
        if isinstance(passage.module, ConvexUpsampling):
            share, chosen = passage.module.neighbour_weights(passage.inputs[0]).max(-2)
            usual = " ".join(str(divmod(int(pixel), 3)) for pixel in chosen.flatten(0, 2).mode(0).values)
            print(f"{passage.name}: weight of the strongest neighbour {share.mean():.3f}, usually {usual}")
    hidden = observed(model, lambda: model(left, right)).hidden
    for index, stage in enumerate(model.stages):
        name = f"stages.{index}.{len(stage) - 1}.feedforward"  # type: ignore[arg-type]
        units = hidden[name]
        loudest = int(units.strength.argmax())
        print(
            f"{name}: strongest hidden unit {units.mean[loudest]:.1f}, deviation {units.deviation[loudest]:.1f}; "
            f"the median unit has {units.strength.median():.2f}"
        )


if __name__ == "__main__":
    main()
