"""Frames of videos and live cameras, by OpenCV."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from matchattention.data.opencv import opencv
from matchattention.errors import InputError, InputWarning
from matchattention.inference.images import Image, split_side_by_side


class FrameSource:
    """Stereo frames of one side-by-side or two separate videos, cameras or URLs.

    Args:
        left: a video file, an OpenCV device number ("0") or a URL; of both views when `right` is None.
        right: the right view's, or None.
    """

    def __init__(self, left: str, right: str | None = None) -> None:
        cv2 = opencv("A video or camera")
        self._names = [left] if right is None else [left, right]
        self._captures: list[Any] = []
        for name in self._names:
            live = name.isdigit() or "://" in name
            if not live and not Path(name).is_file():
                self.close()
                raise InputError(f"{name} does not exist.")
            capture = cv2.VideoCapture(int(name) if name.isdigit() else name)
            self._captures.append(capture)
            if not capture.isOpened():
                self.close()
                raise InputError(
                    f"{name} cannot be opened: "
                    + (
                        "check that the camera is connected and free."
                        if live
                        else "it is not a video that OpenCV reads."
                    )
                )
        counts = [int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) for capture in self._captures]
        self.count: int | None = min(counts) if min(counts) > 0 else None
        if self.count is not None and max(counts) != self.count:
            warnings.warn(
                f"The two videos differ in length ({counts[0]} and {counts[1]} frames): the first {self.count} are "
                "matched; check that they start at the same moment.",
                InputWarning,
                stacklevel=2,
            )
        rate = float(self._captures[0].get(cv2.CAP_PROP_FPS))
        self.frames_per_second = rate if 1 <= rate <= 240 else 25.0

    def __iter__(self) -> Iterator[tuple[Image, Image]]:
        """Left and right (H, W, 3) uint8 RGB until a video ends."""
        while True:
            # All cameras grab first and decode afterwards, so that the two views are as simultaneous as can be.
            if not all([capture.grab() for capture in self._captures]):
                return
            images = []
            for capture in self._captures:
                fine, frame = capture.retrieve()
                if not fine:
                    return
                images.append(np.ascontiguousarray(frame[..., ::-1]))
            if len(images) == 1:
                yield split_side_by_side(images[0], self._names[0])
            else:
                yield images[0], images[1]

    def close(self) -> None:
        """Let go of the cameras."""
        for capture in self._captures:
            capture.release()

    def __enter__(self) -> FrameSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class VideoFile:
    """A video being written; opened with the first frame, whose size all others share.

    Args:
        path: where; the suffix chooses the container (.mp4, .avi).
        frames_per_second: of the result.
    """

    def __init__(self, path: Path, frames_per_second: float) -> None:
        self.path = path
        self.frames_per_second = frames_per_second
        self._writer: Any = None

    def add(self, picture: Image) -> None:
        """Append (H, W, 3) RGB; odd sizes lose their last row or column, which most codecs cannot hold."""
        cv2 = opencv("A video or camera")
        height, width = (size // 2 * 2 for size in picture.shape[:2])
        if self._writer is None:
            code = cv2.VideoWriter_fourcc(*("MJPG" if self.path.suffix.lower() == ".avi" else "mp4v"))
            self._writer = cv2.VideoWriter(str(self.path), code, self.frames_per_second, (width, height))
            if not self._writer.isOpened():
                raise InputError(f"OpenCV cannot write {self.path.suffix} videos here: try .avi or .mp4.")
        self._writer.write(np.ascontiguousarray(picture[:height, :width, ::-1]))

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.release()
            self._writer = None
