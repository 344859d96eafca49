"""Weights go into the tree the script stands in, with what was measured of them."""

from __future__ import annotations

import json

import pytest

from matchattention.models import checkpoint, create_model
from matchattention.training.presets import TINY
from tests.scripts.loading import load_script

RESULT = {
    "kind": "stereo",
    "dataset": "middlebury",
    "split": "trainingQ",
    "root": "anywhere",
    "mean_over_scenes": {"noc": {"bad1": 1.0, "bad2": 2.03456, "bad3": 3.0, "d1": 4.0, "epe": 0.5, "seconds": 1.0}},
}


def test_a_checkpoint_gets_its_card(tmp_path, monkeypatch, capsys):
    script = load_script("ship_weights")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    (tmp_path / "matchattention").mkdir()
    trained = tmp_path / "model.safetensors"
    card = {"pairs": 32, "steps": 2, "training_seconds": 1.0, "recipe": {"seed": 7}}
    checkpoint.save(create_model(TINY).state_dict(), trained, TINY, card)
    result = tmp_path / "result.json"
    result.write_text(json.dumps(RESULT))
    monkeypatch.setattr("sys.argv", ["ship_weights.py", str(trained), "tiny", str(result), "--gpu-minutes", "3"])
    script.main()
    shipped = tmp_path / "matchattention" / "weights" / "tiny.safetensors"
    assert str(shipped) in capsys.readouterr().out
    config, metadata = checkpoint.read_header(shipped)
    assert config == TINY
    assert metadata["license"] == "Apache-2.0"
    assert metadata["last_run"]["recipe"] == {"seed": 7}
    (measured,) = metadata["results"]
    assert measured["set"] == "middlebury trainingQ"
    assert measured["mean_over_scenes"]["noc"] == pytest.approx(
        {"bad1": 1.0, "bad2": 2.035, "bad3": 3.0, "d1": 4.0, "epe": 0.5}
    )
