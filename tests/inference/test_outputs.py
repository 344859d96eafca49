"""A folder of results appears whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from matchattention.errors import InputError
from matchattention.inference import outputs
from matchattention.inference.outputs import is_done, require_writable, whole_folder
from matchattention.inference.result_files import RECORD


def tree(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


def test_a_new_folder_appears_whole(tmp_path) -> None:
    with whole_folder(tmp_path / "a" / "b") as stage:
        (stage / "one.txt").write_text("1")
        assert not (tmp_path / "a" / "b").exists()
    assert tree(tmp_path) == {"a/b/one.txt": "1"}
    assert (tmp_path / "a" / "b").stat().st_mode & 0o055  # readable by others, unlike a private temporary folder


def test_an_existing_folder_keeps_its_other_files(tmp_path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "one.txt").write_text("old")
    with whole_folder(tmp_path) as stage:
        (stage / "one.txt").write_text("new")
    assert tree(tmp_path) == {"mine.txt": "mine", "one.txt": "new"}


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_failure_leaves_everything_as_it_was(tmp_path, error: type[BaseException]) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "one.txt").write_text("old")

    def fail_half_way(folder: Path) -> None:
        with whole_folder(folder) as stage:
            (stage / "one.txt").write_text("half")
            raise error

    for folder in (tmp_path / "old", tmp_path / "new" / "deep"):
        with pytest.raises(error):
            fail_half_way(folder)
    assert tree(tmp_path) == {"old/one.txt": "old"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]


def test_a_record_decides_what_is_done(tmp_path) -> None:
    assert not is_done(tmp_path, {"model": "rt"})
    (tmp_path / "disparity.pfm").write_text("1234")
    (tmp_path / RECORD).write_text('{"model": "rt", "files": {"disparity.pfm": 4}}')
    assert is_done(tmp_path, {"model": "rt"})
    assert not is_done(tmp_path, {"model": "xl"})
    (tmp_path / "disparity.pfm").write_text("")
    assert not is_done(tmp_path, {"model": "rt"})
    (tmp_path / "disparity.pfm").unlink()
    assert not is_done(tmp_path, {"model": "rt"})
    (tmp_path / RECORD).write_text('{"model"')
    assert not is_done(tmp_path, {"model": "rt"})


def test_killed_between_renames_is_not_done(tmp_path, monkeypatch) -> None:
    (tmp_path / "disparity.pfm").write_text("old")
    (tmp_path / RECORD).write_text('{"model": "rt", "files": {"disparity.pfm": 3}}')
    real, moved = os.replace, []

    def killed(source, target) -> None:
        if moved:
            raise KeyboardInterrupt
        moved.append(target)
        real(source, target)

    def write() -> None:
        with whole_folder(tmp_path) as stage:
            (stage / "disparity.pfm").write_text("new")
            (stage / RECORD).write_text('{"model": "rt", "files": {"disparity.pfm": 3}}')
            monkeypatch.setattr(outputs.os, "replace", killed)

    with pytest.raises(KeyboardInterrupt):
        write()
    assert (tmp_path / "disparity.pfm").read_text() == "new"
    assert not is_done(tmp_path, {"model": "rt"})


def test_another_pairs_files_and_a_killed_runs_leftovers_go(tmp_path) -> None:
    folder = tmp_path / "result"
    folder.mkdir()
    for name in ("cloud.ply", "evolution.gif", "mine.txt", RECORD):
        (folder / name).write_text("old")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    leftover = tmp_path / f".result.partial-{ended.pid}-abc"
    leftover.mkdir()
    with whole_folder(folder) as stage:
        (stage / "disparity.pfm").write_text("new")
    assert tree(tmp_path) == {"result/disparity.pfm": "new", "result/mine.txt": "old"}
    assert not leftover.exists()


def test_what_no_prediction_has_written_is_not_touched(tmp_path) -> None:
    """A data set's folder may hold a depth.png of its own."""
    (tmp_path / "depth.png").write_text("mine")
    with whole_folder(tmp_path) as stage:  # as rectify does
        (stage / "left.png").write_text("new")
    assert tree(tmp_path) == {"depth.png": "mine", "left.png": "new"}

    def predict() -> None:
        with whole_folder(tmp_path) as stage:
            (stage / "disparity.pfm").write_text("new")
            (stage / RECORD).write_text("{}")

    with pytest.raises(InputError, match=r"depth\.png but no prediction\.json"):
        predict()
    assert tree(tmp_path) == {"depth.png": "mine", "left.png": "new"}


def test_killed_between_renames_stays_ours(tmp_path, monkeypatch) -> None:
    def write(text: str) -> None:
        with whole_folder(tmp_path / "result") as stage:
            for name in ("disparity.pfm", "occlusion.png"):
                (stage / name).write_text(text)
            (stage / RECORD).write_text("{}")

    (tmp_path / "result").mkdir()
    real = os.replace

    def killed(source, target) -> None:
        if Path(target).name == "occlusion.png":
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(outputs.os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            write("old")
    write("new")
    assert tree(tmp_path / "result") == {"disparity.pfm": "new", "occlusion.png": "new", RECORD: "{}"}


def test_a_relative_folder_that_does_not_exist_is_fine(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    require_writable(Path("new/deeper"))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        require_writable(Path("file/deeper"))
