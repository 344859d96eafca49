"""The bundled pairs are complete, small, licensed and in order."""

from pathlib import Path

import pytest

import matchattention.examples as examples
from matchattention.errors import InputError
from matchattention.geometry import StereoCamera, judge_pair
from matchattention.inference.images import read_pair

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


def test_they_are_small_and_carry_their_notice() -> None:
    assert len(examples.list_examples()) == 2
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 1.5e6
    assert "Nicolas Burrus" in (FOLDER / "LICENSE").read_text()


def test_unknown_name() -> None:
    with pytest.raises(InputError, match="donkey, workbench"):
        examples.example("lenna")
