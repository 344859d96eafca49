"""Sizes on the command line: always HEIGHTxWIDTH, read in one place."""

from __future__ import annotations

import re

from matchattention.errors import InputError

SMALLEST, LARGEST = 32, 8192  # px a side


def parse_size(text: str, option: str = "--size") -> tuple[int, int]:
    """Height and width of "480x640", px.

    Raises:
        InputError: no such text, or a side that no network takes.
    """
    found = re.fullmatch(r"(\d+)\s*[xX×]\s*(\d+)", text.strip())
    if found is None:
        raise InputError(f"{option} is HEIGHTxWIDTH in px such as 480x640; got '{text}'.")
    height, width = int(found[1]), int(found[2])
    if not (SMALLEST <= height <= LARGEST and SMALLEST <= width <= LARGEST):
        raise InputError(f"{option} is {SMALLEST} to {LARGEST} px a side; got '{text}'.")
    return height, width
