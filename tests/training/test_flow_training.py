"""Flow trains: on moving scenes from the command line, from stereo weights, and on files of frames."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from matchattention.cli.main import main
from matchattention.data.formats import write_flo
from matchattention.models import checkpoint
from matchattention.training.build import build_model
from matchattention.training.presets import PRESETS
from matchattention.training.sources import ShiftedCards
from matchattention.training.validation import Validator

TINY_FLOW = PRESETS["tiny-flow-smoke"].model


def entries_of(run: Path, kind: str) -> list[dict]:
    lines = (run / "log.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]


@pytest.fixture(scope="module")
def frames(tmp_path_factory) -> Path:
    """A folder of frames with their flow, as people have them."""
    from PIL import Image

    root = tmp_path_factory.mktemp("frames")
    batch = ShiftedCards(3).batch(0, 4, 64, 96)
    for index in range(4):
        folder = root / f"pair{index}"
        folder.mkdir()
        for name, image in (("frame1", batch.image0[index]), ("frame2", batch.image1[index])):
            Image.fromarray(image.permute(1, 2, 0).to(torch.uint8).numpy()).save(folder / f"{name}.png")
        write_flo(folder / "flow.flo", batch.field0[index].numpy())
    return root


@pytest.fixture(scope="module")
def smoke(tmp_path_factory, frames) -> Path:
    """A short training from scratch on cards, watched on the frames."""
    run = tmp_path_factory.mktemp("runs") / "smoke"
    arguments = ["train", "tiny-flow-smoke", "--device", "cpu", "--steps", "40", "--source", "cards"]
    arguments += ["--validate", f"folder-flow:{frames}", "--output", str(run), "--log-seconds", "0"]
    arguments += ["--size", "64x96:2", "--validation-pairs", "0"]
    assert main(arguments) == 0
    return run


def test_the_loss_falls_and_real_flow_pairs_are_measured(smoke):
    losses = [entry["loss"] for entry in entries_of(smoke, "train")]
    assert np.mean(losses[-10:]) < 0.75 * np.mean(losses[:5])
    validation = entries_of(smoke, "validation")[-1]
    for name in ("epe", "d1", "bad1"):
        assert np.isfinite(validation[f"folder-flow-all/{name}"])
    network = checkpoint.load(smoke / "model.safetensors", task="flow")
    assert network.config == TINY_FLOW


def test_fine_tuning_on_frames_goes_on_from_the_checkpoint(smoke, frames, tmp_path, capsys):
    run, weights = tmp_path / "tuned", str(smoke / "model.safetensors")
    common = ["--device", "cpu", "--size", "64x96:2", "--validation-pairs", "0", "--start", weights]
    common += ["--data", f"folder-flow:{frames}", "--output", str(run), "--log-seconds", "0"]
    assert main(["train", "rt-flow", *common, "--steps", "2"]) == 2
    assert "do not fit this network" in capsys.readouterr().err
    assert main(["train", "tiny-flow-smoke", *common, "--source", "cards", "--steps", "3"]) == 0
    assert checkpoint.load(run / "model.safetensors").config == TINY_FLOW
    first = entries_of(run, "train")[0]["loss"]
    assert first < 0.8 * entries_of(smoke, "train")[0]["loss"]  # it does not begin from nothing


def test_rt_flow_starts_from_the_shipped_stereo_weights():
    stereo = checkpoint.load("rt")
    model, config = build_model(PRESETS["rt-flow-synth"], torch.device("cpu"), weights=True)
    assert config.task == "flow"
    assert config == replace(stereo.config, task="flow", windows=((4, 4),) * 4)
    taken = dict(model.named_parameters())
    same = [name for name, value in stereo.named_parameters() if torch.equal(value, taken[name].detach())]
    assert len(same) > 0.7 * len(taken)
    # On a pair whose matches stay on their rows it begins with what stereo knows, not from nothing.
    batch = ShiftedCards(5, largest=0.12).batch(0, 2, 128, 192)
    random_start, _ = build_model(replace(PRESETS["rt-flow-synth"], start=None), torch.device("cpu"), weights=False)
    epe = [
        Validator(network, [batch], []).measure(dict(network.named_parameters()))["rendered/epe"]
        for network in (model, random_start)
    ]
    assert epe[0] < 0.6 * epe[1]
