"""Checkpoints that do not fit say what is wrong."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from matchattention import InputError, create_model
from matchattention.models import checkpoint
from matchattention.models.config import NetworkConfig

CONFIG = NetworkConfig(channels=(16, 16, 16, 16), encoder_depths=(1, 1, 1, 1), decoder_depths=(1, 1, 1, 1))


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "tiny.safetensors"
    checkpoint.save(create_model(CONFIG), path, CONFIG)
    return path


def test_difference_is_listed(saved):
    other = create_model(replace(CONFIG, gate=False))
    with pytest.raises(InputError, match=r"stages\.0\.0\.cross\.qkvg\.weight is \(16, 18\) in the file, \(12, 18\)"):
        checkpoint.load_weights(other, checkpoint.read_weights(saved), "tiny")
    blind = create_model(replace(CONFIG, initial="softmax"))
    with pytest.raises(InputError, match=r"unknown initial\.bin_score"):
        checkpoint.load_weights(blind, checkpoint.read_weights(saved), "tiny")


def test_half_precision_is_loaded_as_single(tmp_path):
    path = tmp_path / "half.safetensors"
    checkpoint.save(create_model(CONFIG), path, CONFIG, dtype=torch.float16)
    assert checkpoint.read_weights(path)["stages.0.0.beta"].dtype == torch.float16
    assert next(checkpoint.load(path).parameters()).dtype == torch.float32


def test_wrong_task_is_refused(saved):
    with pytest.raises(InputError, match="is a stereo model, but flow was asked for"):
        checkpoint.load(saved, task="flow")


def test_corrupt_and_foreign_files_are_refused(tmp_path, saved):
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(saved.read_bytes()[:100])
    with pytest.raises(InputError, match="not a readable safetensors file"):
        checkpoint.load(broken)
    foreign = tmp_path / "foreign.safetensors"
    save_file({"x": torch.zeros(1)}, foreign)
    with pytest.raises(InputError, match="not a matchattention checkpoint"):
        checkpoint.load(foreign)
    with pytest.raises(InputError, match="neither a shipped model"):
        checkpoint.load("nothing")
    with pytest.raises(InputError, match="No trained weights ship for 'xl'"):
        checkpoint.load("xl")


def test_config_from_the_future_is_refused():
    with pytest.raises(InputError, match="Upgrade matchattention"):
        NetworkConfig.from_dict({"telepathy": True})


def spoilt(saved, change):
    weights = checkpoint.read_weights(saved)
    name = "stages.0.0.beta"
    weights[name] = change(weights[name])
    return weights


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda value: value * float("nan"), "NaN"),
        (lambda value: value.to(torch.complex64), "complex64"),
        (lambda value: value.to_sparse(), "sparse"),
        (lambda value: value.to(torch.int32), "int32"),
    ],
    ids=["nan", "complex", "sparse", "integers"],
)
def test_weights_that_are_no_finite_numbers_are_refused(saved, change, words):
    with pytest.raises(InputError, match=words):
        checkpoint.build(CONFIG, spoilt(saved, change), "tiny")


@pytest.mark.parametrize(
    "values",
    [
        {"channels": [10**9] * 4},
        {"channels": [16, 16]},
        {"encoder_depths": [10**9, 1, 1, 1]},
        {"heads": 0},
        {"heads": True},
        {"gate": "yes"},
        {"windows": 4},
        {"windows": [[1, 4.0]] * 4},
        {"channels": [8192] * 4, "decoder_depths": [128] * 4},
    ],
    ids=str,
)
def test_absurd_configs_are_refused_before_anything_is_allocated(tmp_path, saved, values):
    path = tmp_path / "absurd.safetensors"
    config = json.dumps({**CONFIG.to_dict(), **values})
    save_file(checkpoint.read_weights(saved), path, {"format": checkpoint.FORMAT, "config": config, "metadata": "{}"})
    with pytest.raises(InputError, match="absurd"):
        checkpoint.load(path)


@pytest.mark.parametrize("content", [b"", b"\x80\x02cos\nsystem\n."], ids=["empty", "code"])
def test_a_pth_file_of_anything_else_is_refused_in_our_words(tmp_path, content):
    (tmp_path / "a.pth").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.pth") as caught:
        checkpoint.load(tmp_path / "a.pth")
    assert "weights_only" not in str(caught.value)
