"""Frames of one camera one after another: each with the next, for optical flow."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import TracebackType

import numpy as np

from matchattention.errors import InputError
from matchattention.inference.frames import FrameSource
from matchattention.inference.images import Image, read_pair
from matchattention.inference.sources import find_images, is_glob

FOLDER_RATE = 25.0  # frames a second of a video made of single images


def holds_sequence(source: str) -> bool:
    """Whether a path is a folder that holds images itself, or a pattern of them: frames to follow one another."""
    if is_glob(source):
        return True
    if not Path(source).is_dir():
        return False
    try:
        return len(find_images(source)) > 1
    except InputError:
        return False


class ImageSequence:
    """Consecutive images of a folder or a glob, in the natural order of their names.

    Args:
        source: the folder or pattern.

    Attributes:
        count: pairs.
        names: of each pair: its first image's.
    """

    frames_per_second = FOLDER_RATE

    def __init__(self, source: str) -> None:
        self._files = find_images(source)
        if len(self._files) < 2:
            raise InputError(f"{source} holds one image: flow needs at least two frames.")
        self.count = len(self._files) - 1
        self.names = [file.stem for file in self._files[:-1]]

    def __iter__(self) -> Iterator[tuple[Image, Image]]:
        """Frame t and t + 1 (H, W, 3) uint8; a frame is read twice rather than kept."""
        for first, second in pairwise(self._files):
            yield read_pair(first, second)

    def __enter__(self) -> ImageSequence:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to let go of."""


class ConsecutiveFrames(FrameSource):
    """Frames t and t + 1 of one video, camera or URL."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        if self.count is not None:
            self.count -= 1

    def __iter__(self) -> Iterator[tuple[Image, Image]]:
        capture = self._captures[0]
        last: Image | None = None
        while True:
            fine, frame = capture.read()
            if not fine:
                return
            image = np.ascontiguousarray(frame[..., ::-1])
            if last is not None:
                yield last, image
            last = image
