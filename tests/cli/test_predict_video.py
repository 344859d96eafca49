"""Videos and cameras: frames to folders or a video, with steady colours."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from matchattention.cli import predict_video
from matchattention.cli.main import main
from tests.cli.conftest import write_pair
from tests.geometry.pictures import pair

cv2 = pytest.importorskip("cv2")


def write_video(path: Path, side_by_side: bool = True, frames: int = 4, view: int = 0) -> str:
    left, right, _ = pair(96, 160, far=4, near=10)
    picture = np.concatenate([left, right], axis=1) if side_by_side else (left, right)[view]
    height, width = picture.shape[:2]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 10.0, (width, height))
    assert writer.isOpened()
    for _ in range(frames):
        writer.write(np.ascontiguousarray(picture[..., ::-1]))
    writer.release()
    return str(path)


def frames_of(path: Path) -> list[np.ndarray]:
    capture = cv2.VideoCapture(str(path))
    frames = []
    while True:
        fine, frame = capture.read()
        if not fine:
            return frames
        frames.append(frame)


def test_a_side_by_side_video_becomes_a_video(tmp_path, checkpoint, capsys) -> None:
    video, out = write_video(tmp_path / "stereo.avi"), tmp_path / "depth.mp4"
    assert main(["predict", video, "--side-by-side", "--output", str(out), "--model", checkpoint]) == 0
    frames = frames_of(out)
    assert len(frames) == 4
    assert frames[0].shape == (96, 320, 3)
    assert "4 frames are in" in capsys.readouterr().out


def test_two_videos_become_folders_and_resume(tmp_path, checkpoint, capsys) -> None:
    left = write_video(tmp_path / "left.avi", side_by_side=False, view=0)
    right = write_video(tmp_path / "right.avi", side_by_side=False, view=1)
    out = tmp_path / "frames"
    arguments = ["predict", left, right, "--output", str(out), "--model", checkpoint]
    assert main([*arguments, "--frames", "2"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["frame_000000", "frame_000001"]
    assert main(arguments) == 0
    assert sorted(path.name for path in out.iterdir()) == [f"frame_{index:06d}" for index in range(4)]
    assert (out / "frame_000003" / "disparity.pfm").is_file()
    assert capsys.readouterr().err.count("already there") == 2


def test_ctrl_c_leaves_no_half_video(tmp_path, checkpoint, monkeypatch) -> None:
    video, out = write_video(tmp_path / "stereo.avi"), tmp_path / "depth.mp4"
    real = predict_video.VideoPredictor.__call__
    calls = []

    def interrupted(self, *images):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, *images)

    monkeypatch.setattr(predict_video.VideoPredictor, "__call__", interrupted)
    assert main(["predict", video, "--side-by-side", "--output", str(out), "--model", checkpoint]) == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stereo.avi"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["VIDEO"], "one video: give the right one too"),
        (["VIDEO", "VIDEO", "--side-by-side"], "give one file"),
        (["VIDEO", "view.png"], "give two videos or two images"),
        (["nowhere.mp4", "--side-by-side"], "does not exist"),
        (["VIDEO", "--side-by-side", "--frames", "0"], "at least 1"),
        (["VIDEO", "--side-by-side", "--explain"], "one pair at a time"),
    ],
)
def test_mistakes(tmp_path, checkpoint, capsys, arguments: list[str], message: str) -> None:
    video = write_video(tmp_path / "stereo.avi")
    arguments = [video if word == "VIDEO" else word for word in arguments]
    assert main(["predict", *arguments, "--output", str(tmp_path / "out"), "--model", checkpoint]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_images_do_not_become_a_video(tmp_path, checkpoint, capsys) -> None:
    out = str(tmp_path / "out.mp4")
    assert main(["predict", *write_pair(tmp_path), "--output", out, "--model", checkpoint]) == 2
    assert "give a folder" in capsys.readouterr().err


class FakeCamera:
    """Two views of the same scene for ever, as OpenCV's capture gives them."""

    opened: ClassVar[list] = []

    def __init__(self, name) -> None:
        self.name = name
        left, right, _ = pair(96, 160, far=4, near=10)
        self.frame = {0: left, 1: right}[name][..., ::-1]
        FakeCamera.opened.append(name)

    def isOpened(self) -> bool:
        return True

    def get(self, what) -> float:
        return 0.0

    def grab(self) -> bool:
        return True

    def retrieve(self):
        return True, self.frame

    def release(self) -> None:
        FakeCamera.opened.remove(self.name)


def test_live_cameras_fill_a_video_and_are_let_go(tmp_path, checkpoint, monkeypatch) -> None:
    monkeypatch.setattr(cv2, "VideoCapture", FakeCamera)
    monkeypatch.setattr(predict_video, "why_no_window", lambda: "there is no display")
    out = tmp_path / "live.mp4"
    assert main(["predict", "--live", "0", "1", "--frames", "3", "--output", str(out), "--model", checkpoint]) == 0
    monkeypatch.undo()
    assert len(frames_of(out)) == 3
    assert FakeCamera.opened == []


def test_live_stops_when_the_window_closes(tmp_path, checkpoint, monkeypatch) -> None:
    shown = []

    class Window:
        open = True

        def __init__(self, title: str) -> None: ...

        def show(self, picture: np.ndarray) -> None:
            shown.append(picture.shape)
            self.open = len(shown) < 2

        def close(self) -> None:
            shown.append("closed")

    monkeypatch.setattr(cv2, "VideoCapture", FakeCamera)
    monkeypatch.setattr(predict_video, "why_no_window", lambda: None)
    monkeypatch.setattr(predict_video, "LiveView", Window)
    assert main(["predict", "--live", "0", "1", "--model", checkpoint]) == 0
    assert shown == [(96, 320, 3), (96, 320, 3), "closed"]


def test_live_needs_somewhere_to_show(checkpoint, capsys, monkeypatch) -> None:
    monkeypatch.setattr(predict_video, "why_no_window", lambda: "there is no display")
    assert main(["predict", "--live", "0", "--model", checkpoint]) == 2
    assert "there is no display" in capsys.readouterr().err


def test_a_camera_that_is_not_there(tmp_path, checkpoint, capsys) -> None:
    assert main(["predict", "--live", "97", "--output", str(tmp_path / "out.mp4"), "--model", checkpoint]) == 2
    assert "cannot be opened" in capsys.readouterr().err


def test_rerun_is_asked_for_kindly_or_used(tmp_path, checkpoint, capsys, monkeypatch) -> None:
    import sys

    pair_files = write_pair(tmp_path)
    monkeypatch.setitem(sys.modules, "rerun", None)
    assert main(["predict", *pair_files, "--rerun", "--model", checkpoint]) == 2
    assert "matchattention[rerun]" in capsys.readouterr().err


def test_rerun_saves_a_recording(tmp_path, checkpoint) -> None:
    pytest.importorskip("rerun")
    recording = tmp_path / "pair.rrd"
    arguments = ["predict", *write_pair(tmp_path), "--rerun", str(recording), "--model", checkpoint]
    assert main([*arguments, "--camera", "fx=200,baseline=0.1"]) == 0
    assert recording.stat().st_size > 10_000


def test_videos_of_different_lengths_are_told(tmp_path, checkpoint, capsys) -> None:
    left = write_video(tmp_path / "left.avi", side_by_side=False, view=0, frames=3)
    right = write_video(tmp_path / "right.avi", side_by_side=False, view=1, frames=2)
    assert main(["predict", left, right, "--output", str(tmp_path / "out"), "--model", checkpoint]) == 0
    said = capsys.readouterr()
    assert "differ in length (3 and 2 frames)" in said.err
    assert "2 frames are in" in said.out


@pytest.mark.parametrize("black", [0, 2])
def test_a_black_frame_is_told_and_does_not_end_the_video(tmp_path, checkpoint, capsys, black: int) -> None:
    left, right, _ = pair(96, 160, far=4, near=10)
    both = np.concatenate([left, right], axis=1)
    writer = cv2.VideoWriter(str(tmp_path / "a.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10.0, (320, 96))
    for index in range(3):
        writer.write(np.ascontiguousarray(both[..., ::-1]) if index != black else np.zeros((96, 320, 3), np.uint8))
    writer.release()
    out = tmp_path / "out"
    command = ["predict", str(tmp_path / "a.avi"), "--side-by-side", "--output", str(out), "--model", checkpoint]
    assert main(command) == 0
    assert f"frame_00000{black}: the left view is one colour" in capsys.readouterr().err
    assert len(list(out.iterdir())) == 3
