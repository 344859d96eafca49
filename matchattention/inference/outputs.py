"""What `predict` leaves behind: a folder of files that appears whole or not at all."""

from __future__ import annotations

import glob
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from matchattention.data.atomic import replacing
from matchattention.data.reading import is_address
from matchattention.errors import InputError
from matchattention.geometry.camera import StereoCamera
from matchattention.inference.prediction import Prediction
from matchattention.inference.result_files import MEANINGS, RECORD, files_of

# Whoever gives such a name as a folder means one file.
_FILES = {
    ".png",
    ".jpg",
    ".jpeg",
    ".tif",
    ".tiff",
    ".gif",
    ".bmp",
    ".exr",
    ".npy",
    ".npz",
    ".pfm",
    ".flo",
    ".ply",
    ".json",
}


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder to write into; its files move to `folder` when the block ends well, else nothing stays.

    An existing `folder` keeps what is not ours, and loses what an earlier prediction left there. The record goes first
    and comes last: a folder whose writing was cut off in the middle never counts as done. Folders made on the way are
    removed again after a failure.
    """
    made = _make_parents(folder)
    _remove_leftovers(folder)
    try:
        stage = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-{os.getpid()}-", dir=folder.parent))
        try:
            yield stage
            stage.chmod(0o777 & ~_umask())  # mkdtemp made it private
            if folder.is_dir():
                new = {file.name for file in stage.iterdir()}
                for name in [RECORD, *sorted(set(MEANINGS) - new)]:
                    (folder / name).unlink(missing_ok=True)
                for name in sorted(new - {RECORD}) + [RECORD] * (RECORD in new):
                    os.replace(stage / name, folder / name)
            else:
                os.rename(stage, folder)
        finally:
            if stage.exists():
                shutil.rmtree(stage, ignore_errors=True)
    except BaseException:
        for parent in reversed(made):
            with suppress(OSError):
                parent.rmdir()
        raise


def require_writable(folder: Path) -> None:
    """Refuse an output that can only fail after the work is done."""
    if is_address(folder):
        raise InputError(f"{folder} is an address: give a folder of this computer as --output.")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: give a folder as --output.")
    if folder.suffix.lower() in _FILES and not folder.exists():
        raise InputError(f"{folder} has the name of a file, but several are written: give a folder as --output.")
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise InputError(f"{existing} is a file: {folder} cannot be made in it.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"Nothing can be written into {existing}: choose another --output or change its permissions.")


def write_prediction(
    folder: Path,
    prediction: Prediction,
    record: dict[str, Any],
    camera: StereoCamera | None = None,
    **options: Any,
) -> list[Path]:
    """Write everything about one pair into `folder`.

    Args:
        folder: made if need be.
        prediction: what to write.
        record: what `is_done` compares; stored as JSON.
        camera: adds depth, its error and the point cloud.
        options: as in `files_of`: which files, which points, which colours.

    Returns:
        the files, most useful first.
    """
    with whole_folder(folder) as stage:
        for name, write in files_of(prediction, camera, **options).items():
            write(stage / name)
        sizes = {file.name: file.stat().st_size for file in stage.iterdir()}
        with replacing(stage / RECORD) as temporary:
            temporary.write_text(json.dumps({**record, "files": sizes}, indent=2, sort_keys=True) + "\n")
        names = {*sizes, RECORD}
    return [folder / name for name in MEANINGS if name in names]


def is_done(folder: Path, record: dict[str, Any]) -> bool:
    """Whether `folder` holds the results that `record` describes, each file as long as it was written."""
    try:
        stored = json.loads((folder / RECORD).read_text())
        sizes = stored.pop("files")
        whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return False
    return whole and stored == json.loads(json.dumps(record))


def _remove_leftovers(folder: Path) -> None:
    """Remove what runs that were killed while writing `folder` left beside it."""
    for stage in folder.parent.glob(f".{glob.escape(folder.name)}.partial-*"):
        process = stage.name.rsplit(".partial-", 1)[1].split("-")[0]
        if not (process.isdecimal() and _is_alive(int(process))):
            shutil.rmtree(stage, ignore_errors=True)


def _is_alive(process: int) -> bool:
    if os.name != "posix" or process == os.getpid():
        return True  # elsewhere asking for a process can end it; a hidden folder that stays does no harm
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _make_parents(folder: Path) -> list[Path]:
    """Make the folders above `folder`; returns those that were missing, outermost first."""
    missing = [parent for parent in folder.absolute().parents if not parent.exists()][::-1]
    for parent in missing:
        parent.mkdir(exist_ok=True)
    return missing


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
