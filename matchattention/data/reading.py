"""One place where a reader's failure becomes a sentence.

`reads` goes around the function that reads a format. Whatever a malformed file makes the libraries below it raise
(zlib, struct, json, h5py, Pillow, pickle, recursion, memory …) leaves it as an `InputError` that names the file,
what is wrong with it and what to do. The original exception stays its cause, for whoever looks for a fault of ours.
"""

from __future__ import annotations

import codecs
import errno
import json
import math
import os
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from matchattention.errors import InputError

FilePath = str | os.PathLike[str]
P = ParamSpec("P")
T = TypeVar("T")

MOST_PIXELS = 178_956_970  # what Pillow calls a decompression bomb: 13 377 x 13 377
MOST_TEXT = 2**18  # bytes of a calibration: the longest that tools write are a few thousand
_LONGEST_REASON = 200
_FAULTS_OF_OURS = (NameError, ImportError, NotImplementedError)


def reads(
    kind: str, advice: str = "fetch or export it again", most_bytes: int | None = None
) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[Concatenate[Any, P], T]]:
    """Decorate a function whose first argument is the path of the file it reads.

    Args:
        kind: what the file ought to be, as in "… is broken, cut short or not KIND".
        advice: what to do about it, as in "…; ADVICE".
        most_bytes: refuse larger files before they are read.
    """

    def decorate(function: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
        @wraps(function)
        def reader(path: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
            try:
                _require_file(path, most_bytes)
                return function(path, *arguments, **options)
            except (InputError, *_FAULTS_OF_OURS):
                raise
            except MemoryError as error:
                raise InputError(f"{path} takes more memory than this machine has; give a smaller one") from error
            except RecursionError as error:
                raise InputError(f"{path} is broken or not {kind} (nested too deeply); {advice}") from error
            except Exception as error:
                raise InputError(f"{path} is broken, cut short or not {kind} ({_reason(error)}); {advice}") from error

        return reader

    return decorate


def check_pixels(path: FilePath, *shape: int) -> None:
    """Refuse a header that promises no pixels, or more than any image has, before they are made room for."""
    if any(extent <= 0 for extent in shape):
        raise InputError(f"{path} has no pixels by its header ({_times(shape)}); fetch or export it again")
    if math.prod(shape) > 3 * MOST_PIXELS or math.prod(sorted(shape)[-2:]) > MOST_PIXELS:
        raise InputError(f"{path} says it is {_times(shape)}, which no image is; fetch or export it again")


@reads("a text file", "save it as UTF-8 text", MOST_TEXT)
def read_text(path: FilePath) -> str:
    """A small text file: UTF-8, or UTF-16 where it says so in its first bytes, as Windows writes it."""
    content = Path(path).read_bytes()
    encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text that can be read; save it as UTF-8") from None
    if "\0" in text:
        raise InputError(f"{path} is not text but binary; give a text file")
    return text


def read_json(text: str | bytes) -> Any:
    """A JSON document without the words that are not JSON (NaN, Infinity); ValueError where it is none."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no number of JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} in line {error.lineno}") from None


def number(value: Any, name: str) -> float:
    """A finite number of a parsed document, as it stands: neither a boolean nor a text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, not {str(value)[:40]!r}")
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite")
    return value


def is_address(path: FilePath) -> bool:
    """Whether a path is the address of something elsewhere, such as https://…"""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/+", os.fspath(path)) is not None  # pathlib makes one slash of two


def _require_file(path: FilePath, most_bytes: int | None) -> None:
    name = os.fspath(path)
    if is_address(name):
        raise InputError(f"{name} is an address, not a file; download it first")
    path = Path(name)
    try:
        is_file, is_folder, exists = path.is_file(), path.is_dir(), path.exists()
    except (OSError, ValueError) as error:  # a name too long, or with a zero byte
        raise InputError(f"{name[:_LONGEST_REASON]!r} is no path of a file ({_reason(error)[:60]})") from None
    if is_folder:
        raise InputError(f"{path} is a folder, not a file; name the file in it")
    if not exists:
        raise InputError(f"{path} does not exist")
    if not is_file:
        raise InputError(f"{path} is a device, not a file; give a file")
    if most_bytes is not None and path.stat().st_size > most_bytes:
        raise InputError(
            f"{path} has {path.stat().st_size / 1024:.0f} KiB, more than the {most_bytes // 1024} such a file has;"
            " give the right one"
        )


def _reason(error: Exception) -> str:
    """The error's own first line, short enough to stand in a sentence."""
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM):
        return "no permission to read it"
    if isinstance(error, KeyError):
        named = bool(error.args) and isinstance(error.args[0], str)  # a TIFF's parts have numbers
        return f"it lacks {str(error)[:60]}" if named else "a part of it is missing"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    printable = "".join(letter if letter.isprintable() else "?" for letter in lines[0])
    return printable[:_LONGEST_REASON].rstrip(" .,;:")


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(str(extent) if abs(extent) < 10**12 else "far more" for extent in reversed(shape)) + " px"
