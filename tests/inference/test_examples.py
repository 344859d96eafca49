"""The bundled pairs are complete, small, licensed and in order."""

from pathlib import Path

import pytest

import matchattention.examples as examples
from matchattention.errors import InputError
from matchattention.geometry import StereoCamera, judge_pair
from matchattention.inference.images import read_pair
from matchattention.inference.predictor import Predictor

FOLDER = Path(examples.__file__).parent


@pytest.mark.parametrize("name", examples.list_examples())
def test_pairs_are_in_order(name: str, recwarn) -> None:
    files = examples.example(name)
    left, right = read_pair(files.left, files.right)
    report = judge_pair(left, right)
    assert report.conclusive
    assert len(recwarn) == 0
    camera = StereoCamera.from_file(files.camera)
    camera.check_size(left.shape[1], left.shape[0])
    assert camera.baseline == 0.075


def test_the_moving_pair_moves_as_it_was_drawn() -> None:
    """The car at the right goes to the right, the truck at the left to the left, and what the car hides is told."""
    files = examples.example(task="flow")
    result = Predictor("rt-flow", "cpu")(files.left, files.right)
    assert result.flow.shape == (396, 704, 2)
    car, truck = result.flow[215:230, 520:600, 0], result.flow[250:300, 60:120, 0]
    assert 10 < car.mean() < 80
    assert -60 < truck.mean() < -10
    assert result.occlusion[190:200, 585:615].mean() > 0.5
    assert 0.05 < result.occlusion.mean() < 0.35


def test_they_are_small_and_carry_their_notice() -> None:
    assert examples.list_examples() == ["donkey", "workbench"]
    assert examples.list_examples("flow") == ["drive"]
    assert examples.example() == examples.example("donkey")
    frames = examples.example("drive", "flow")
    assert frames.camera is None
    assert sum(path.stat().st_size for path in frames[:2]) < 4e5
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 1.5e6
    assert "Nicolas Burrus" in (FOLDER / "LICENSE").read_text()


@pytest.mark.parametrize(
    ("name", "task", "said"),
    [
        ("lenna", "stereo", "donkey or workbench"),
        ("drive", "stereo", "donkey or workbench"),
        ("donkey", "flow", "drive"),
    ],
)
def test_unknown_name(name: str, task: str, said: str) -> None:
    with pytest.raises(InputError, match=f"no {task} example '{name}': choose {said}"):
        examples.example(name, task)
