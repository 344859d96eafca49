"""Looking around in a dataset's folders, with sentences that name what was expected."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matchattention.data.png import check_png_size
from matchattention.data.reading import reads
from matchattention.errors import InputError


def require_folder(*candidates: Path) -> Path:
    """The first of ``candidates`` that is a folder."""
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise InputError(f"Expected the folder {' or '.join(str(folder) for folder in candidates)}")


def split_folder(root: Path, split: str, *parents: str) -> Path:
    """The folder of a split below ``root`` or one of its ``parents`` there; ``root`` itself if it is the split's."""
    if root.name == split:
        return require_folder(root)
    return require_folder(root / split, *(root / parent / split for parent in parents))


def require_file(*candidates: Path) -> Path:
    """The first of ``candidates`` that is a file."""
    for file in candidates:
        if file.is_file():
            return file
    raise InputError(f"Expected the file {' or '.join(str(file) for file in candidates)}")


def optional_file(*candidates: Path) -> Path | None:
    """The first of ``candidates`` that is a file, or None."""
    return next((file for file in candidates if file.is_file()), None)


def folders(parent: Path) -> list[Path]:
    """The folders in ``parent`` by name; hidden ones are skipped."""
    return sorted(path for path in parent.iterdir() if path.is_dir() and not path.name.startswith("."))


def files(parent: Path, pattern: str) -> list[Path]:
    """The files of ``parent`` that match, by name; at least one."""
    found = visible(parent, pattern)
    if not found:
        raise InputError(f"Expected files like {parent / pattern}")
    return found


def visible(root: Path, pattern: str) -> list[Path]:
    """What matches below ``root``, by name, without hidden files and what lies in hidden folders.

    Systems, and writers that were killed, leave such things behind; they are nobody's pairs.
    """
    return sorted(
        path for path in root.glob(pattern) if not any(part.startswith(".") for part in path.relative_to(root).parts)
    )


def same_length(*lists: list[Path]) -> None:
    """Refuse lists that belong together but differ in length."""
    if len({len(files) for files in lists}) > 1:
        counts = ", ".join(f"{len(files)} in {files[0].parent}" for files in lists)
        raise InputError(f"Files that belong together differ in number: {counts}")


@reads("a mask")
def read_grey(path: Path) -> NDArray[np.uint8]:
    """A mask as its 8-bit values ``(H, W)``."""
    from PIL import Image

    with Image.open(path) as image:
        check_png_size(path)
        return np.asarray(image.convert("L") if image.mode != "P" else image).copy()


def mask_equal(path: Path, value: int) -> NDArray[np.bool_]:
    """Pixels of a mask file with exactly this value."""
    return read_grey(path) == value


def mask_zero(*paths: Path) -> NDArray[np.bool_]:
    """Pixels that are zero in every one of the mask files."""
    return np.logical_and.reduce([read_grey(path) == 0 for path in paths])


def mask_nonzero(path: Path) -> NDArray[np.bool_]:
    """Pixels of a mask file that are not zero."""
    return read_grey(path) != 0
