"""Lists of pairs: a text file with a left and a right path on each line."""

from __future__ import annotations

import csv
from pathlib import Path

from matchattention.data.reading import is_address, read_text, reads
from matchattention.errors import InputError

_LONGEST_PATH = 4096  # characters, as systems have it


@reads("a list of pairs", "give a left and a right path on each line, as UTF-8 text")
def read_pair_list(path: Path) -> list[tuple[Path, Path]]:
    """Pairs of a list: two paths a line, relative to the list's folder, with a comma, semicolon, tab or blanks between.

    Empty lines, comments (``#``) and a first line of titles such as ``left,right`` are skipped.
    """
    path = Path(path)
    pairs: list[tuple[Path, Path]] = []
    first = True
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if len(line) > 2 * _LONGEST_PATH:
            raise InputError(f"{path}, line {number} is too long for two paths: give a left and a right path.")
        delimiter = next((mark for mark in ",;\t" if mark in line), " ")
        words = [word.strip() for word in next(csv.reader([line.strip()], delimiter=delimiter)) if word.strip()]
        begins, first = first, False
        if begins and _are_titles(words):
            continue
        address = next((word for word in words if is_address(word)), None)
        if address is not None:
            raise InputError(f"{path}, line {number}: {address[:80]} is an address, not a file: download it first.")
        if len(words) != 2:
            raise InputError(f"{path}, line {number}: give a left and a right path, not {len(words)} word(s).")
        pairs.append((path.parent / words[0], path.parent / words[1]))
    if not pairs:
        raise InputError(f"{path} lists no pairs: give a left and a right path on each line.")
    return pairs


def _are_titles(words: list[str]) -> bool:
    """Whether two words head the columns: left and right, or left_image and right_image, but no files."""
    return (
        len(words) == 2
        and not any(Path(word).suffix for word in words)
        and words[0].lower().startswith("left")
        and words[1].lower().startswith("right")
    )
