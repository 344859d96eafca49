"""The command line of training: what it changes in a preset, what it refuses, how it continues."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from matchattention.cli.main import main
from matchattention.data.formats import write_pfm
from matchattention.data.png import write_png16
from matchattention.models.checkpoint import read_header
from matchattention.training import clock
from matchattention.training.presets import PRESETS

CARDS = ["--source", "cards", "--size", "32x64:2", "--device", "cpu"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "choose one of rt-synth"),
        (["rt-synth", "--size", "320"], "HEIGHTxWIDTH"),
        (["rt-synth", "--size", "100x200"], "multiples of 32"),
        (["rt-synth", "--source", "films"], "choose scenes, photos, moving-photos or cards"),
        (["rt-synth", "--source", "cards=-1"], "above zero"),
        (["rt-synth", "--source", "scenes:moon", "--dry-run"], "Unknown scenes 'moon'"),
        (["rt-synth", "--source", "scenes:flow-rolling"], "--model rt-flow"),
        (["rt", "--data", "pairs"], "folder:pairs"),
        (["rt"], "--data folder:PATH"),
        (["tiny-smoke", *CARDS, "--resume", "missing"], "no training state"),
        (["tiny-smoke", *CARDS, "--start", "missing.safetensors"], "missing.safetensors"),
        (["tiny-smoke", *CARDS, "--validate", "folder:missing"], "there is no such folder"),
        (["tiny-smoke", *CARDS, "--validate", "shards:missing"], "matchattention shard DATASET ROOT"),
        (["tiny-smoke", *CARDS, "--minutes", "0"], "above zero"),
        (["tiny-smoke", *CARDS, "--minutes", "0.001"], "no model written"),
        (["tiny-smoke", *CARDS, "--accumulate", "3"], "does not divide into 3 micro-batches"),
        (["tiny-smoke", *CARDS, "--shard"], "torchrun"),
        (["tiny-smoke", *CARDS, "--left", "*/l.png"], "--data folder:PATH"),
        (["tiny-smoke", *CARDS, "--ema-horizon", "0"], "at least 1"),
        (["tiny-smoke", *CARDS, "--rate", "1e-3", "--scale-rate", "sqrt"], "not both"),
        (["rt-synth", "--model", "huge"], "Unknown network 'huge'"),
        (["rt-synth", "--source", "moving-photos"], "--model rt-flow"),
        (["rt", "--data", "sintel:x"], "for optical flow"),
        (["rt", "--data", "folder:x", "--augment", "blur=1"], "Unknown augmentation 'blur'"),
        (["rt", "--data", "folder:x", "--augment", "scale=1"], "scale=-0.2,0.4"),
        (["paper-mix"], "--data-root DIR"),
        (["paper-mix", "--dry-run", "--processes", "64"], "does not divide into 64 processes"),
        (["paper-ablation", "--data", "fsd/shards:nowhere"], "matchattention shard DATASET ROOT"),
        (["paper-kitti", "--data-root", "nowhere"], "--start"),
        (["paper-kitti", "--data-root", "nowhere", "--start", "rt"], "nowhere/vkitti2"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_mistakes_are_one_sentence(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert error.count("\n") == 0


def test_a_second_run_continues_and_fresh_begins_anew(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["train", "tiny-smoke", *CARDS, "--validate-minutes", "0"]
    assert main([*command, "--steps", "2"]) == 0
    assert (tmp_path / "runs/tiny-smoke/model.safetensors").is_file()
    assert main([*command, "--steps", "3"]) == 0
    output = capsys.readouterr().out
    assert "continuing runs/tiny-smoke at step 2" in output
    assert "3 steps, 6 pairs" in output
    monkeypatch.setattr(clock, "process_age", lambda: 0.0)  # that of the tests, else
    assert main([*command, "--steps", "1", "--minutes", "5", "--fresh"]) == 0
    assert "continuing" not in capsys.readouterr().out
    recipe = read_header("runs/tiny-smoke/model.safetensors")[1]["recipe"]
    assert (recipe["steps"], recipe["minutes"]) == (1, 5.0)


def test_start_takes_weights_only(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["train", "tiny-smoke", *CARDS, "--validate-minutes", "0"]
    assert main([*command, "--steps", "2", "--output", "a"]) == 0
    assert main([*command, "--steps", "1", "--output", "b", "--start", "a/model.safetensors"]) == 0
    output = capsys.readouterr().out
    assert "starting from the weights of a/model.safetensors" in output
    assert "1 steps, 2 pairs" in output


def _pairs(root: Path, count: int, truth: str = "disp0GT.pfm", left: str = "im0.png", right: str = "im1.png") -> None:
    dice = np.random.default_rng(0)
    for number in range(count):
        folder = root / f"scene{number}"
        folder.mkdir(parents=True)
        wall = dice.integers(0, 256, (48, 80, 3), np.uint8)
        Image.fromarray(wall[:, :72]).save(folder / left)
        Image.fromarray(wall[:, 4:76]).save(folder / right)
        disparity = np.full((48, 72), 4, np.float32)
        if truth.endswith(".png"):
            write_png16(folder / truth, (disparity * 100).astype(np.uint16))
        else:
            write_pfm(folder / truth, disparity)


TUNE = ["train", "tiny-smoke", "--size", "32x64:2", "--device", "cpu", "--validate-minutes", "0", "--steps", "2"]


def test_fine_tuning_measures_pairs_it_never_sees_before_and_after(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _pairs(tmp_path / "pairs", 5, truth="d.png", left="l.png", right="r.png")
    layout = ["--left", "*/l.png", "--right", "*/r.png", "--truth", "*/d.png", "--png-scale", "100"]
    command = [*TUNE, "--source", "cards", "--data", "folder:pairs", *layout, "--validation-pairs", "0"]
    assert main(command) == 0
    output = capsys.readouterr()
    assert "before training, held-out folder-all: epe" in output.out
    assert "before, " in output.out
    assert " after" in output.out
    assert "read as KITTI's" not in output.err
    card = read_header("runs/tiny-smoke/model.safetensors")[1]
    assert card["validation_before"]["held-out folder-all/epe"] > 0
    assert card["validation"]["held-out folder-all/epe"] > 0
    assert "Apache-2.0" not in card["license"]
    assert card["data"] == {"cards": "Apache-2.0 (rendered)", "folder:pairs": "not stated: ask the data's owner"}
    assert card["photo_bank"] == "not used"
    # The scale counts: 4 px truth, read as it was written.
    from matchattention.training.file_source import open_samples

    patterns = {"left": "*/l.png", "right": "*/r.png", "truth": "*/d.png", "png_scale": 100.0}
    assert np.all(open_samples("folder:pairs", patterns)[0].disparity == 4)


def test_the_card_names_licences_and_a_missing_photo_bank(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MATCHATTENTION_PHOTO_BANK", str(tmp_path / "none"))
    monkeypatch.setattr("matchattention.synth.photos.photo_bank.load", lambda *a, **k: None)
    _pairs(tmp_path / "pairs", 2)
    command = [*TUNE, "--source", "scenes:small", "--validation-pairs", "0"]
    assert main([*command, "--output", "own"]) == 0
    card = read_header("own/model.safetensors")[1]
    assert card["license"] == "Apache-2.0"
    assert card["photo_bank"].startswith("absent")
    assert main([*command, "--data", "folder:pairs", "--data-license", "mine", "--output", "b"]) == 0
    assert read_header("b/model.safetensors")[1]["license"].endswith("folder:pairs (mine)")
    assert main([*TUNE, "--source", "cards", "--start", "b/model.safetensors", "--output", "c"]) == 0
    assert "starting weights model.safetensors" in read_header("c/model.safetensors")[1]["license"]


def test_too_little_time_leaves_no_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(clock, "process_age", lambda: 0.0)
    assert main(["train", "tiny-smoke", "--device", "cpu", "--minutes", "0.002"]) == 2
    assert "give more --minutes" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.safetensors"))
    assert not list(tmp_path.rglob("*.pt"))


def test_options_change_the_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _pairs(tmp_path / "pairs", 3)
    options = ["--batch", "8", "--scale-rate", "linear", "--ema-horizon", "50", "--accumulate", "4", "--seed", "3"]
    augment = ["--augment", "scale=0,0.5", "--augment", "eraser_probability=0", "--held-out", "0"]
    command = [*TUNE, "--source", "cards=3", "--data", "folder:pairs=1", *options, *augment]
    assert main([*command, "--checkpoint-activations", "--steps", "1", "--validation-pairs", "0"]) == 0
    recipe = read_header("runs/tiny-smoke/model.safetensors")[1]["recipe"]
    assert recipe["schedule"]["peak"] == pytest.approx(4e-3)  # of a batch of 4
    assert recipe["optimizer"]["average_decay"] == pytest.approx(0.98)
    assert (recipe["accumulate"], recipe["recompute"]) == (4, True)
    data = recipe["sources"][1]
    assert (data["preset"], data["augmentation"]["scale"], data["held_out"]) == ("folder:pairs", [0.0, 0.5], 0.0)


def test_every_preset_has_a_plan(capsys):
    for name in ("paper-kitti", "tiny-smoke"):
        assert main(["train", name, "--dry-run", "--processes", "2"]) == 0
    output = capsys.readouterr().out
    assert "100000 steps" in output
    assert "GiB a GPU" in output
    assert "GPU days" in output


def test_a_preset_dataset_takes_its_place_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ["paper-kitti", "--dry-run", "--data", "kitti2015:/k15", "--data-root", "/all", "--model", "rt-2d"]
    assert main(["train", *arguments]) == 0
    output = capsys.readouterr().out
    assert "kitti2015/training:/k15" in output
    assert "vkitti2:/all/vkitti2" in output
    assert "network    rt-2d" in output


def test_a_preset_dataset_takes_its_weight_from_the_command_line(capsys):
    data = ["--data", "vkitti2:/v=1", "--data", "kitti2012:/k12", "--data", "kitti2015:/k15=5"]
    assert main(["train", "paper-kitti", "--dry-run", *data]) == 0
    shares = [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("source")]
    assert shares == ["12.5", "25.0", "62.5"]  # of 1, the preset's 2, and 5


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_say_what_they_are(name):
    preset = PRESETS[name]
    assert preset.summary
    json.dumps(preset.to_dict())
    if name.startswith("paper"):
        assert (preset.stages[0].height, preset.stages[0].width, preset.stages[0].batch) == (512, 768, 32)
        assert (preset.optimizer.kind, preset.optimizer.weight_decay, preset.schedule.kind) == (
            "adamw",
            0.05,
            "one-cycle",
        )


# Section 4.2 and supplement S2.2.
_FSD_MIX = {"fsd", "crestereo", "wmgstereo", "irs", "sceneflow", "sintel-stereo", "instereo2k"}
PAPER_REGIMES = {
    "paper-scene-flow": (200_000, {"sceneflow"}),
    "paper-mix": (1_000_000, _FSD_MIX),
    "paper-ablation": (200_000, {"fsd"}),
    "paper-middlebury": (100_000, _FSD_MIX | {"middlebury"}),
    "paper-kitti": (100_000, {"kitti2012", "kitti2015", "vkitti2"}),
    "paper-flow": (100_000, {"sceneflow-flow"}),
    "paper-flow-mix": (100_000, {"sceneflow-flow", "sintel", "kitti2015-flow", "hd1k"}),
}


def test_the_papers_regimes_have_its_steps_and_datasets():
    found = {
        name: (preset.steps, {source.dataset for source in preset.sources})
        for name, preset in PRESETS.items()
        if name.startswith("paper")
    }
    assert found == PAPER_REGIMES
