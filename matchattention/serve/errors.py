"""Answers that are no predictions."""

from __future__ import annotations


class Refused(Exception):
    """A request that gets a status and a sentence in place of a prediction.

    Attributes:
        status: HTTP's.
        sentence: what to do about it.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


def too_many_pixels(name: str, width: int, height: int, megapixels: float) -> Refused:
    """The answer to an image that is larger than the server takes."""
    return Refused(
        413,
        f"The {name} image has {width}x{height} = {width * height / 1e6:.1f} megapixels, this server takes "
        f"{megapixels:g}: resize it, or start the server with --megapixels.",
    )
