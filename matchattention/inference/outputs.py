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
from matchattention.inference.result_files import KINDS, MEANINGS, RECORD, files_of

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

    An existing `folder` keeps what is not ours, and loses what an earlier prediction left there. Its record becomes
    invalid first and valid last: a folder whose writing was cut off in the middle never counts as done. Folders made on
    the way are removed again after a failure.

    Raises:
        InputError: a prediction would replace files that none has written.
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
                ours = _is_result(folder)
                if RECORD in new:
                    require_own_results(folder)
                if ours or RECORD in new:
                    (folder / RECORD).write_text('{"unfinished": true}\n')
                if ours:
                    for name in sorted(set(MEANINGS) - new - {RECORD}):
                        (folder / name).unlink(missing_ok=True)
                for name in sorted(new - {RECORD}) + [RECORD] * (RECORD in new):
                    os.replace(stage / name, folder / name)
                if RECORD not in new:
                    (folder / RECORD).unlink(missing_ok=True)
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


def require_own_results(folder: Path) -> None:
    """Refuse a folder with files called like results that no prediction has written: a camera's depth.png, say."""
    if _is_result(folder):
        return
    foreign = [name for name in MEANINGS if (folder / name).exists()]
    if foreign:
        raise InputError(
            f"{folder} holds {', '.join(foreign)} but no {RECORD}, so they are not ours to replace: "
            "give another folder as --output."
        )


def _is_result(folder: Path) -> bool:
    """Whether a prediction was written here: its record is there, or where that was deleted all files of some kind."""
    kinds = (names for names in KINDS.values() if len(names) > 1)
    return (folder / RECORD).exists() or any(all((folder / name).exists() for name in names) for names in kinds)


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
