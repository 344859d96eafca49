"""The render command: scenes on disk, resuming, and one sentence for every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from matchattention.cli.main import main
from matchattention.synth.photos import photo_bank


@pytest.fixture(autouse=True)
def no_bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same scenes and speed on every machine, whether it has a photo bank or not."""
    monkeypatch.delenv(photo_bank.ENVIRONMENT, raising=False)
    monkeypatch.setattr(photo_bank, "DEFAULT_PATH", tmp_path / "no-bank")


def render(output: Path, *extra: str) -> int:
    base = ["render", "--output", str(output), "--preset", "small", "--size", "32x48", "--device", "cpu"]
    return main([*base, "--count", "1", *extra])


def test_renders_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert render(tmp_path / "scenes") == 0
    assert (tmp_path / "scenes" / "000000" / "disp1GT.pfm").is_file()
    assert render(tmp_path / "scenes", "--count", "2") == 0
    assert "there already" in capsys.readouterr().err
    assert (tmp_path / "scenes" / "000001" / "im1.png").is_file()


def test_moving_scenes_are_flow_pairs_not_disparities(tmp_path: Path):
    assert render(tmp_path / "pairs", "--preset", "flow-small") == 0
    names = {"frame1.png", "frame2.png", "flow.flo", "flow_backward.flo", "occlusions.png"}
    assert {path.name for path in (tmp_path / "pairs" / "000000").iterdir()} == names


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--size", "huge"], "HEIGHTxWIDTH"),
        (["--size", "16x16"], "32 to 8192 px a side"),
        (["--count", "0"], "at least 1"),
        (["--preset", "moon"], "choose one of"),
        (["--device", "tpu9"], "device"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], said: str
):
    assert render(tmp_path / "scenes", *extra) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "scenes").exists()


def test_output_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    blocker = tmp_path / "file"
    blocker.write_text("I am not a folder")
    assert render(blocker) == 2
    assert "is a file" in capsys.readouterr().err
    assert render(blocker / "below") == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_other_settings_in_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert render(tmp_path) == 0
    assert render(tmp_path, "--seed", "4") == 2
    assert "choose another folder" in capsys.readouterr().err


def test_missing_options_exit_2(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        main(["render", "--count", "1"])
    assert stopped.value.code == 2
    assert "--output" in capsys.readouterr().err
