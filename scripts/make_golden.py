"""Write the small reference values of tests/golden from the large ones of an independent implementation.

python scripts/make_golden.py FOLDER    # with operator_2d, released_stereo and released_flow .safetensors
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from matchattention.models import checkpoint
from matchattention.models.network import MatchNetwork
from matchattention.models.released import convert_state, infer_config
from tests.golden.released import STRIDE, images_of, state_of

ROOT = Path(__file__).resolve().parents[1]
TOLERANCE = 2e-3  # px between this package in fp64 and the authors' implementation in fp32
SEEDS = {"stereo": 3, "flow": 4}


def network(state: dict[str, torch.Tensor], task: str) -> MatchNetwork:
    state = {name: value.double() for name, value in state.items()}
    built = checkpoint.build(infer_config(state, task), convert_state(state), "golden")
    return built.double().eval()


def write_operator(source: Path, target: Path) -> None:
    """One image, two heads of the 4x4 window; one head of the 6x6 window."""
    kept = {"w3": (slice(0, 1), slice(0, 2)), "w5": (slice(0, 1), slice(0, 1))}
    values = {}
    for name, tensor in load_file(source).items():
        images, heads = kept[name.split(".")[0]]
        values[name] = tensor[images, :, :, heads].contiguous()
    save_file(values, target)


@torch.no_grad()
def write_released(folder: Path, target: Path) -> None:
    values, shapes = {}, {}
    for task, seed in SEEDS.items():
        golden = load_file(folder / f"released_{task}.safetensors")
        state = {name.removeprefix("sd."): value for name, value in golden.items() if name.startswith("sd.")}
        field = network(state, task)(golden["image0"].double(), golden["image1"].double()).field
        apart = (field - golden["field_up"]).abs().max().item()
        if apart > TOLERANCE:
            raise SystemExit(f"{task}: {apart:.4f} px from the authors' values; nothing is written")
        shapes = {name: list(value.shape) for name, value in state.items()}
        matches = network(state_of(shapes, seed), task)(*images_of(seed))
        values[f"{task}.initial"] = matches.initial.position
        for index, step in enumerate(matches.steps):
            values[f"{task}.step.{index:02}.{step.kind}"] = step.position[:, ::2, ::2].contiguous().float()
        values[f"{task}.field"] = matches.field[:, ::STRIDE, ::STRIDE].contiguous().float()
    save_file(values, target, {"shapes": json.dumps(shapes), "seeds": json.dumps(SEEDS)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    golden = parser.parse_args().folder
    write_operator(golden / "operator_2d.safetensors", ROOT / "tests/golden/operator_2d.safetensors")
    write_released(golden, ROOT / "tests/golden/released.safetensors")
