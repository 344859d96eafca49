"""Released checkpoints end to end: convert, load, predict, and the exported formulation of the same network."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import matchattention as ma
from matchattention.cli.main import main
from matchattention.exporting.network import ExportedNetwork
from tests.exporting.test_network import as_field
from tests.golden.released import STRIDE, images_of, state_of
from tests.models.test_released import GOLDEN


@pytest.mark.parametrize("task", ["stereo", "flow"])
def test_from_the_authors_file_to_what_is_exported(task, tmp_path):
    with safe_open(GOLDEN, "pt") as file:
        shapes, seeds = (json.loads(file.metadata()[key]) for key in ("shapes", "seeds"))
    truth = load_file(GOLDEN)[f"{task}.field"]
    torch.save({"model": state_of(shapes, seeds[task])}, tmp_path / "released.pth")
    target = tmp_path / "converted.safetensors"
    assert main(["convert", str(tmp_path / "released.pth"), str(target), "--task", task]) == 0
    network = ma.load(str(target), task=task)
    images = [image.float() for image in images_of(seeds[task])]
    with torch.inference_mode():
        found = as_field(ExportedNetwork(network)(*images), task)[:, ::STRIDE, ::STRIDE]
    if task == "stereo":
        left, right = truth[..., 0].chunk(2)
        truth = torch.cat((left.clamp(max=0), right.clamp(min=0)))
    apart = (found - truth).abs()
    assert apart.median() < 1e-3  # fp32 may follow another match where two are equally good; fp64 stored the truth
    assert apart.mean() < 0.01
    left, right = (image[0].permute(1, 2, 0).round().byte().numpy() for image in images)
    result = ma.Predictor(network.float(), "cpu", check=False)(left, right)
    assert np.isfinite(result.flow if task == "flow" else result.disparity).all()
