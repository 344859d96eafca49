"""The authors' released networks, through `convert`, against what their implementation computed."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from matchattention.cli.main import main
from matchattention.models import checkpoint
from tests.golden.released import STRIDE, images_of, state_of
from tests.shared import shared

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "released.safetensors"

TOLERANCE = 2e-3  # px; the stored float32 values are within 5e-4 of float64


@pytest.mark.parametrize("task", ["stereo", "flow"])
def test_a_released_kind_of_network_keeps_its_fields(task, tmp_path):
    """Against values stored when the authors' own were reproduced; in fp64, where rounding decides nothing."""
    with safe_open(GOLDEN, "pt") as file:
        shapes, seeds = (json.loads(file.metadata()[key]) for key in ("shapes", "seeds"))
    golden = {
        name.removeprefix(f"{task}."): value for name, value in load_file(GOLDEN).items() if name.startswith(task)
    }
    torch.save({"model": state_of(shapes, seeds[task])}, tmp_path / "released.pth")
    target = tmp_path / "converted.safetensors"
    assert main(["convert", str(tmp_path / "released.pth"), str(target), "--task", task]) == 0
    network = checkpoint.load(target, task).double()
    with torch.no_grad():
        matches = network(*images_of(seeds[task]))
    torch.testing.assert_close(matches.initial.position, golden["initial"], rtol=0, atol=1e-9)
    names = [name for name in sorted(golden) if name.startswith("step")]
    assert [name.split(".")[-1] for name in names] == [step.kind for step in matches.steps]
    for name, step in zip(names, matches.steps):
        torch.testing.assert_close(step.position[:, ::2, ::2].float(), golden[name], rtol=0, atol=1e-4, msg=name)
    torch.testing.assert_close(matches.field[:, ::STRIDE, ::STRIDE].float(), golden["field"], rtol=0, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@pytest.mark.parametrize("task", ["stereo", "flow"])
def test_converted_network_reproduces_every_field(task, dtype, tmp_path):
    golden = load_file(shared(f"golden/released_{task}.safetensors"))
    state = {name.removeprefix("sd."): value for name, value in golden.items() if name.startswith("sd.")}
    state["encoder.head.weight"] = torch.zeros(1000, 40)
    torch.save({"model": state}, tmp_path / "released.pth")
    target = tmp_path / "converted.safetensors"
    assert main(["convert", str(tmp_path / "released.pth"), str(target), "--task", task]) == 0

    # One token of the flow pair matches 7e-6 from an integer, where the weights' layout jumps: fp64 tells whether
    # a failure is a different formula or only a different rounding.
    network = checkpoint.load(target, task).to(dtype)
    golden = {name: value.to(dtype) for name, value in golden.items()}
    with torch.no_grad():
        matches = network(golden["image0"], golden["image1"])
    names = [
        f"field.{index:02}.{kind}"
        for index in range(29)
        for kind in ("self", "cross")
        if f"field.{index:02}.{kind}" in golden
    ]
    assert len(names) == len(matches.steps)
    torch.testing.assert_close(matches.initial.position, golden["init"], rtol=0, atol=TOLERANCE / 32)
    for name, step in zip(names, matches.steps):
        assert name.endswith(step.kind)
        torch.testing.assert_close(step.position, golden[name], rtol=0, atol=TOLERANCE / step.scale, msg=name)
    torch.testing.assert_close(matches.self_position.mean(-2), golden["self_rpos"], rtol=0, atol=TOLERANCE / 4)
    torch.testing.assert_close(matches.field, golden["field_up"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model": {"something.else": torch.zeros(1)}}, "not a released MatchAttention network"),
        ({"model": 3}, "no weights under the key 'model'"),
        ({"model": {"a": torch.zeros(1), 3: torch.zeros(1)}}, "no weights under the key 'model'"),
    ],
)
def test_other_files_are_refused(content, message, tmp_path, capsys):
    torch.save(content, tmp_path / "other.pth")
    target = tmp_path / "out.safetensors"
    assert main(["convert", str(tmp_path / "other.pth"), str(target)]) == 2
    assert message in capsys.readouterr().err
    assert not target.exists()


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path, capsys):
    (tmp_path / "noise.pth").write_bytes(b"not a pickle at all")
    assert main(["convert", str(tmp_path / "noise.pth"), str(tmp_path / "out.safetensors")]) == 2
    assert "not a PyTorch checkpoint" in capsys.readouterr().err
