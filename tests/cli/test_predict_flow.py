"""Optical flow from the command line: pairs, folders of frames, videos; each frame to the next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from matchattention.cli import predict_video
from matchattention.cli.main import main
from matchattention.data.formats import read_flo
from matchattention.inference.predictor import Predictor


def frames(count: int, size: tuple[int, int] = (64, 96)) -> list[np.ndarray]:
    """A texture that goes 3 px to the right a frame."""
    height, width = size
    noise = np.random.default_rng(0).integers(96, 160, (height // 4 + 1, width // 4 + 9, 3), np.uint8)
    canvas = np.repeat(np.repeat(noise, 4, 0), 4, 1)[:height]
    return [np.ascontiguousarray(canvas[:, 32 - 3 * t : 32 - 3 * t + width]) for t in range(count)]


def write_frames(folder: Path, count: int = 4) -> str:
    folder.mkdir()
    for number, image in enumerate(frames(count), start=8):  # 8, 9, 10: natural order, not that of the letters
        Image.fromarray(image).save(folder / f"f{number}.png")
    return str(folder)


@pytest.fixture
def starts(monkeypatch) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """The first frame of every match and the field it started from."""
    calls = []
    real = Predictor.match

    def match(self, first, second, *, initial=None, **options):
        calls.append((first, None if initial is None else initial.relative_position))
        return real(self, first, second, initial=initial, **options)

    monkeypatch.setattr(Predictor, "match", match)
    return calls


def test_a_folder_of_frames_goes_from_each_to_the_next(tmp_path, flow_checkpoint, starts, capsys) -> None:
    folder, out = write_frames(tmp_path / "frames"), tmp_path / "out"
    arguments = ["predict", folder, "--task", "flow", "--output", str(out), "--model", flow_checkpoint]
    assert main(arguments) == 0
    assert sorted(path.name for path in out.iterdir()) == ["f10", "f8", "f9"]
    for expected, (first, start), last in zip(frames(3), starts, (None, "f8", "f9")):
        np.testing.assert_array_equal(first, expected)
        if last is None:
            assert start is None
        else:  # the motion back from this frame, turned round
            np.testing.assert_array_equal(start, -read_flo(out / last / "flow_backward.flo"))
    assert "3 frames are in" in capsys.readouterr().out
    assert main(arguments) == 0
    assert capsys.readouterr().err.count("already there") == 3


def test_after_frames_that_were_there_already_nothing_is_carried(tmp_path, flow_checkpoint, starts) -> None:
    folder, out = write_frames(tmp_path / "frames", 5), tmp_path / "out"
    arguments = ["predict", folder, "--task", "flow", "--output", str(out), "--model", flow_checkpoint]
    assert main([*arguments, "--frames", "3"]) == 0
    (out / "f9" / "prediction.json").unlink()
    starts.clear()
    assert main(arguments) == 0
    assert [start is None for _, start in starts] == [True, True]  # f9 and f11, each after one that was skipped


def test_a_video_becomes_a_video(tmp_path, flow_checkpoint, starts) -> None:
    cv2 = pytest.importorskip("cv2")
    source, out = tmp_path / "walk.avi", tmp_path / "flow.avi"
    writer = cv2.VideoWriter(str(source), cv2.VideoWriter_fourcc(*"MJPG"), 10.0, (96, 64))
    for image in frames(4):
        writer.write(np.ascontiguousarray(image[..., ::-1]))
    writer.release()
    assert main(["predict", str(source), "--task", "flow", "--output", str(out), "--model", flow_checkpoint]) == 0
    capture = cv2.VideoCapture(str(out))
    assert int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) == 3
    assert int(capture.get(cv2.CAP_PROP_FRAME_WIDTH)) == 192
    assert len({first.tobytes() for first, _ in starts}) == 3


def test_two_videos_are_refused(tmp_path, flow_checkpoint, capsys) -> None:
    out = tmp_path / "out"
    arguments = ["predict", "a.mp4", "b.mp4", "--task", "flow", "--output", str(out), "--model", flow_checkpoint]
    assert main(arguments) == 2
    assert "give one" in capsys.readouterr().err
    assert not out.exists()


def test_one_live_camera(tmp_path, flow_checkpoint, monkeypatch) -> None:
    class Camera:
        count, frames_per_second = None, 10.0

        def __init__(self, name: str) -> None:
            assert name == "0"

        def __enter__(self) -> Camera:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def __iter__(self):
            images = frames(4)
            return iter(list(zip(images, images[1:])))

    monkeypatch.setattr(predict_video, "ConsecutiveFrames", Camera)
    out = tmp_path / "out"
    arguments = ["predict", "--live", "0", "--task", "flow", "--output", str(out), "--model", flow_checkpoint]
    assert main([*arguments, "--frames", "2"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["frame_000000", "frame_000001"]
    assert (
        main(["predict", "--live", "0", "1", "--task", "flow", "--output", str(out), "--model", flow_checkpoint]) == 2
    )


def test_without_weights_the_message_says_what_to_do(tmp_path, capsys) -> None:
    folder = write_frames(tmp_path / "frames", 2)
    assert main(["predict", folder, "--task", "flow", "--model", "xl-flow", "--output", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert "matchattention train rt-flow-synth" in message
    assert ".safetensors" in message


def test_frames_of_different_sizes_and_single_ones_are_refused(tmp_path, flow_checkpoint, capsys) -> None:
    folder = Path(write_frames(tmp_path / "frames", 2))
    Image.fromarray(frames(1, (64, 64))[0]).save(folder / "f10.png")
    out = ["--task", "flow", "--output", str(tmp_path / "out"), "--model", flow_checkpoint]
    assert main(["predict", str(folder), *out]) == 2
    assert "size" in capsys.readouterr().err
    assert main(["predict", str(folder / "f8.*"), *out]) == 2
    assert "at least two frames" in capsys.readouterr().err


def test_the_python_stream_carries_too(flow_checkpoint, starts) -> None:
    from itertools import pairwise

    from matchattention.inference.video import VideoPredictor
    from matchattention.models.checkpoint import load

    torch.manual_seed(0)
    video = VideoPredictor(Predictor(load(flow_checkpoint, task="flow")))
    results = list(video.frames(pairwise(frames(3))))
    assert [start is None for _, start in starts[:2]] == [True, False]
    assert results[1].flow.shape == (64, 96, 2)


def test_the_example_needs_no_camera(tmp_path, flow_checkpoint, capsys) -> None:
    out, rest = tmp_path / "out", ["--task", "flow", "--model", flow_checkpoint]
    assert main(["predict", "--example", "--only", "flow", "--output", str(out), *rest]) == 0
    assert read_flo(out / "flow.flo").shape == (396, 704, 2)
    for options, said in (
        (["--baseline", "0.1"], "--baseline belongs to a calibration"),
        (["--only", "depth"], "no depth"),
        (["--camera", "camera.json"], "a flow model has none"),
    ):
        assert main(["predict", "--example", "--output", str(tmp_path / "other"), *options, *rest]) == 2
        assert said in capsys.readouterr().err
    assert main(["predict", "--example", "donkey", "--output", str(tmp_path / "other"), *rest]) == 2
    assert "choose drive" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
