"""Lists of pairs: a text file with a left and a right path on each line."""

from __future__ import annotations

import csv
from pathlib import Path

from matchattention.data.reading import read_text, reads
from matchattention.errors import InputError

_LONGEST_PATH = 4096  # characters, as systems have it


@reads("a list of pairs", "give a left and a right path on each line, as UTF-8 text")
def read_pair_list(path: Path) -> list[tuple[Path, Path]]:
    """Pairs of a list: two paths a line, separated by blanks or a comma, relative to the list's folder.

    Empty lines, comments (``#``) and a first line that only says ``left,right`` are skipped.
    """
    path = Path(path)
    pairs: list[tuple[Path, Path]] = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if len(line) > 2 * _LONGEST_PATH:
            raise InputError(f"{path}, line {number} is too long for two paths: give a left and a right path.")
        delimiter = "," if "," in line else " "
        words = [word.strip() for word in next(csv.reader([line.strip()], delimiter=delimiter)) if word.strip()]
        if not pairs and [word.lower() for word in words[:2]] == ["left", "right"]:
            continue
        if len(words) != 2:
            raise InputError(f"{path}, line {number}: give a left and a right path, not {len(words)} word(s).")
        pairs.append((path.parent / words[0], path.parent / words[1]))
    if not pairs:
        raise InputError(f"{path} lists no pairs: give a left and a right path on each line.")
    return pairs
