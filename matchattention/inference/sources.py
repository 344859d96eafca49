"""Where pairs come from: two files, two folders, globs, a list, a tree of scenes, side-by-side images."""

from __future__ import annotations

import glob
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from matchattention.data.datasets.layout import visible
from matchattention.data.images import IMAGE_SUFFIXES
from matchattention.data.pair_lists import read_pair_list
from matchattention.data.reading import is_address
from matchattention.errors import InputError
from matchattention.inference.images import Image, read_pair, read_side_by_side

VIDEO_SUFFIXES = {".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg"}

# How the two views of one scene are told apart: by folder or by a part of the file's name.
_FOLDERS = (
    ("left", "right"),
    ("l", "r"),
    ("image_2", "image_3"),
    ("image_02", "image_03"),
    ("image_0", "image_1"),
    ("cam0", "cam1"),
)
_NAMES = (("left", "right"), ("im0", "im1"), ("view1", "view5"), ("frame1", "frame2"), ("_l", "_r"), ("_0", "_1"))


class Pair(NamedTuple):
    """A pair still on disk.

    Attributes:
        name: for the sub-folder its results go to.
        left: file of the left view, or of both side by side.
        right: file of the right view; None when `left` holds both.
    """

    name: str
    left: Path
    right: Path | None

    def read(self) -> tuple[Image, Image]:
        """Both views as (H, W, 3) uint8."""
        if self.right is None:
            return read_side_by_side(self.left)
        return read_pair(self.left, self.right)


def is_video(source: str) -> bool:
    """Whether a path names a video by its suffix."""
    return Path(source).suffix.lower() in VIDEO_SUFFIXES


def is_one_pair(left: str, right: str | None, side_by_side: bool) -> bool:
    """Whether the arguments name one pair, whose results go straight into the output folder."""
    if right is None:
        return side_by_side and not _is_many(left)
    return not (_is_many(left) or _is_many(right))


def find_pairs(left: str, right: str | None = None, *, side_by_side: bool = False) -> list[Pair]:
    """All pairs that the arguments of `predict` stand for.

    Args:
        left: a file, a folder, a glob; alone also a list of pairs (.txt, .csv) or a folder of scenes.
        right: the right view's file, folder or glob; None with a list, scenes or side-by-side images.
        side_by_side: whether each image holds both views, left half and right half.

    Raises:
        InputError: nothing found, or views that do not pair up.
    """
    for text in (left, right):
        _require_on_disk(text)
    if side_by_side:
        if right is not None:
            raise InputError("Side-by-side images hold both views: give one image, folder or glob.")
        return _named(((path, None) for path in find_images(left)), left)
    if right is not None:
        if not _is_many(left) and not _is_many(right):
            return [Pair(Path(left).stem, Path(left), Path(right))]
        return _named(_paired(find_images(left), find_images(right)), left)
    path = Path(left)
    if path.suffix.lower() in (".txt", ".csv", ".lst"):
        return _named(read_pair_list(path), left)
    if path.is_dir():
        return _named(_scenes(path), left)
    if not path.exists() and not is_glob(left):
        raise InputError(f"{left} does not exist.")
    raise InputError(
        f"{left} is one view: give LEFT and RIGHT, a folder, a list of pairs, or --side-by-side if it holds both."
    )


def _require_on_disk(text: str | None) -> None:
    if text == "":
        raise InputError("An input is empty: give the name of a file or folder.")
    if text is None or Path(text).exists():
        return
    if is_address(text):
        raise InputError(f"{text} is an address: download it first; cameras and streams go to --live.")
    if text.isdecimal() or text.startswith("/dev/video"):
        number = text.removeprefix("/dev/video") or "0"
        raise InputError(f"{text} does not exist; for a camera give its number to --live, such as --live {number}.")


def is_glob(text: str) -> bool:
    """Whether a text is a pattern rather than the name of something that is there."""
    return any(mark in text for mark in "*?[") and not Path(text).exists()


def _is_many(text: str) -> bool:
    return is_glob(text) or Path(text).is_dir()


def find_images(source: str) -> list[Path]:
    """The images of a folder or a pattern in the natural order of their names, or the one file that is named."""
    path = Path(source)
    if is_glob(source):
        found = [Path(name) for name in glob.glob(source, recursive=True)]
    elif path.is_dir():
        found = list(path.iterdir())
    elif path.exists():
        return [path]
    else:
        raise InputError(f"{source} does not exist.")
    # What a killed run or another tool left unfinished has a name that starts with a dot.
    shown = (file for file in found if file.suffix.lower() in IMAGE_SUFFIXES and not file.name.startswith("."))
    images = sorted((file for file in shown if file.is_file()), key=_natural)
    if not images:
        raise InputError(f"There is no image in {source} ({', '.join(sorted(IMAGE_SUFFIXES))}).")
    return images


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """Sorts frame2 before frame10."""
    words = re.split(r"([0-9]+)", str(path))
    return [(0, int(word), "") if word.isdecimal() else (1, 0, word) for word in words]


def _paired(left: list[Path], right: list[Path]) -> list[tuple[Path, Path]]:
    """By name where the names agree (apart from left and right), else in order."""
    by_name = {_neutral(path.stem): path for path in right}
    if len(by_name) == len(right) and all(_neutral(path.stem) in by_name for path in left):
        return [(path, by_name[_neutral(path.stem)]) for path in left]
    if len(left) != len(right):
        missing = next((path.name for path in left if _neutral(path.stem) not in by_name), left[-1].name)
        raise InputError(
            f"{len(left)} left and {len(right)} right images do not pair up (no partner for {missing}): "
            "give both views the same names or the same number of files."
        )
    return list(zip(left, right))


def _neutral(stem: str) -> str:
    """A file's name without what tells left from right."""
    return re.sub(r"(left|right|im0|im1|(?<=[_-])[lr01](?=$|[_-]))", "", stem.lower())


def _scenes(root: Path) -> list[tuple[Path, Path]]:
    """Pairs anywhere under a folder, told apart by their folders' or their files' names."""
    images = (path for path in visible(root, "**/*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    files = sorted(images, key=_natural)
    partner_of: dict[Path, Path] = {}
    free = set(files)
    # Folders first: where they tell left from right, x_0.png and x_1.png are two moments.
    for partners in (_partners_by_folder, _partners_by_name):
        for file in files:
            found = (root / partner for partner in partners(file.relative_to(root)))
            partner = next((path for path in found if path in free), None)
            if file in free and partner is not None:
                partner_of[file] = partner
                free -= {file, partner}
    pairs = [(file, partner_of[file]) for file in files if file in partner_of]
    if not pairs:
        raise InputError(
            f"No pairs were found in {root}: name the views left.png and right.png, im0.png and im1.png, "
            "x_left.png and x_right.png, or put them into folders left and right; or give two folders."
        )
    return pairs


def _partners_by_folder(relative: Path) -> Iterable[Path]:
    parts = relative.parts
    for left, right in _FOLDERS:
        for index, part in enumerate(parts[:-1]):
            if part.lower() == left:
                for name in (parts[-1].replace(part, _like(part, right)), parts[-1]):
                    yield Path(*parts[:index], _like(part, right), *parts[index + 1 : -1], name)


def _partners_by_name(relative: Path) -> Iterable[Path]:
    stem = relative.stem
    for left, right in _NAMES:
        found = [match.start() for match in re.finditer(re.escape(left), stem.lower())]
        for start in found:
            rest = stem[start + len(left) :]
            if rest and (left.startswith("_") or (left[-1].isdigit() and rest[0].isdigit())):
                continue  # "_l" and "_0" count at the end of a name only, "frame1" not in "frame10"
            replaced = stem[:start] + _like(stem[start : start + len(left)], right) + rest
            yield relative.with_name(replaced + relative.suffix)


def _like(original: str, word: str) -> str:
    """`word` with the capitals of `original`."""
    if original.isupper():
        return word.upper()
    return word.capitalize() if original[:1].isupper() else word


def _is_nameless(left: Path, right: Path | None) -> bool:
    """Whether the files are only called left and right, im0 and im1, …: their folder's name tells more."""
    return right is not None and (left.stem.lower(), right.stem.lower()) in _NAMES


def _named(files: Iterable[tuple[Path, Path | None]], source: str) -> list[Pair]:
    """Give every pair a name of its own: the file's, the folder's where files are all called the same, or both."""
    pairs = list(files)
    base = Path(source) if Path(source).is_dir() else None
    makers: list[Callable[[Path, Path | None], str]] = [
        lambda path, other: (path.parent.name or path.stem) if _is_nameless(path, other) else path.stem,
        lambda path, _: path.parent.name or path.stem,
        lambda path, _: f"{path.parent.name}_{path.stem}",
        lambda path, _: "_".join((path.relative_to(base) if base else path).with_suffix("").parts).lstrip("/_"),
    ]
    for maker in makers:
        names = [maker(*views) for views in pairs]
        if not names or max(Counter(names).values()) == 1:
            break
    else:
        names = [f"{index:06d}" for index in range(len(pairs))]
    return [Pair(name, left, right) for name, (left, right) in zip(names, pairs)]
