"""A training's whole state on disk: written whole with a checksum, the newest two kept, damage noticed.

A process may be killed at any moment. The new state is written beside the old ones and flushed, then the last one is
renamed to ``state-previous.pt`` and the new one takes its place: at every moment one of the two names is a whole state.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from matchattention.errors import InputError
from matchattention.training.optimizer import Updater
from matchattention.training.sharding import assign, whole

STATE_FILE = "state.pt"
PREVIOUS_FILE = "state-previous.pt"
_MARK = b"MASTATE1"  # then the SHA-256 of everything before it
_FOOTER = len(_MARK) + 32
_PIECE = 1 << 22


@dataclass
class Counters:
    """How far a training has come, over all its runs.

    Attributes:
        steps: Updates made.
        samples: Pairs drawn from the source by all processes.
        seconds: Time spent training.
        average_steps: Updates the weight average has seen since it last began.
        restarted_at: Step at which the optimizer's moments were last empty.
        silenced: Samples whose ground truth or images were unusable.
        skipped: Updates left out because a gradient was not finite.
    """

    steps: int = 0
    samples: int = 0
    seconds: float = 0.0
    average_steps: int = 0
    restarted_at: int = 0
    silenced: int = 0
    skipped: int = 0


def state_content(model: nn.Module, updater: Updater, counters: Counters, recipe: dict[str, Any]) -> dict[str, Any]:
    """Everything that an exact continuation needs; sharded tensors are gathered, so every process must call it."""
    random = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state()
    spread = dict(zip(updater.names, updater.originals))
    return {
        "counters": asdict(counters),
        "recipe": json.dumps(recipe),
        "model": {name: whole(value, value) for name, value in model.state_dict().items()},
        "average": {name: whole(value, spread[name]) for name, value in updater.averaged().items()},
        "moments": {
            name: {key: whole(value, spread[name]) for key, value in moments.items()}
            for name, moments in updater.moments().items()
        },
        "random": random,
    }


def write_state(folder: Path, content: dict[str, Any]) -> None:
    """Make ``content`` the folder's state; the one before it is kept as ``state-previous.pt``."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"{STATE_FILE}.partial"  # one writer a folder: a killed one's leftover is simply overwritten
    torch.save(content, new)
    with new.open("r+b") as file:
        digest = _digest(file, new.stat().st_size)
        file.seek(0, os.SEEK_END)
        file.write(_MARK + digest)
        file.flush()
        os.fsync(file.fileno())
    if (folder / STATE_FILE).exists():
        os.replace(folder / STATE_FILE, folder / PREVIOUS_FILE)
    os.replace(new, folder / STATE_FILE)
    _flush_folder(folder)


def has_state(folder: Path) -> bool:
    """Whether a run in this folder can be continued, if its files are whole."""
    return any((folder / name).is_file() for name in (STATE_FILE, PREVIOUS_FILE))


def read_state(folder: Path, warn: Callable[[str], None]) -> dict[str, Any]:
    """The newest whole state of a run's folder; what had to be passed over is told to ``warn``.

    Raises:
        InputError: There is none.
    """
    if not has_state(folder):
        raise InputError(f"{folder} holds no training state: give the folder of a run")
    faults = []
    for name in (STATE_FILE, PREVIOUS_FILE):
        path = folder / name
        if not path.is_file():
            continue
        fault = _fault(path)
        if fault:
            faults.append(f"{path} {fault}")
            continue
        content = _load(path)
        for text in faults:
            warn(f"{text}: continuing with {path}, saved at step {content['counters']['steps']}")
        return content
    raise InputError(f"{'; '.join(faults)}: start over with --fresh, or --start from the run's model.safetensors")


@torch.no_grad()
def load_state(
    folder: Path, model: nn.Module, updater: Updater, warn: Callable[[str], None] = lambda text: None
) -> Counters:
    """Continue from the newest whole state; tensors are copied in place, so captured graphs stay valid.

    Raises:
        InputError: There is no whole state, or it belongs to another network.
    """
    content = read_state(folder, warn)
    _check_names(folder, model, content["model"])
    for name, value in model.state_dict().items():
        assign(value, content["model"][name], value)
    spread = dict(zip(updater.names, updater.originals))
    for name, average in updater.averaged().items():
        assign(average, content["average"][name], spread[name])
    counters = Counters(**content["counters"])
    for name, moments in updater.moments().items():
        kept = content["moments"].get(name, {})
        if moments.keys() != kept.keys():  # another optimizer from here on: its moments begin empty
            counters.restarted_at = counters.steps
            continue
        for key, moment in moments.items():
            assign(moment, kept[key], spread[name])
    torch.set_rng_state(content["random"]["cpu"])
    if torch.cuda.is_available() and "cuda" in content["random"]:
        torch.cuda.set_rng_state(content["random"]["cuda"])
    return counters


def _digest(file: Any, length: int) -> bytes:
    digest = hashlib.sha256()
    file.seek(0)
    while length:
        piece = file.read(min(length, _PIECE))
        if not piece:
            break
        digest.update(piece)
        length -= len(piece)
    return digest.digest()


def _fault(path: Path) -> str:
    """What is wrong with a state's file, before anything of it is unpacked; empty if nothing."""
    length = path.stat().st_size - _FOOTER
    if length <= 0:
        return "is cut short"
    with path.open("rb") as file:
        file.seek(length)
        footer = file.read(_FOOTER)
        if not footer.startswith(_MARK):
            return "is cut short or not a training state of this version"
        return "" if _digest(file, length) == footer[len(_MARK) :] else "is damaged (its checksum does not fit)"


def _load(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        Counters(**content["counters"])
        if not {"model", "average", "moments", "random"} <= content.keys():
            raise KeyError
    except Exception:
        # PyTorch's own text advises to unpickle whatever the file holds, which would run a stranger's code.
        raise InputError(
            f"{path} holds something else than a training's tensors and numbers and was not opened: "
            "continue runs of your own only, or start over with --fresh"
        ) from None
    return content


def _check_names(folder: Path, model: nn.Module, weights: dict[str, Tensor]) -> None:
    expected = model.state_dict()
    fits = expected.keys() == weights.keys() and all(expected[n].shape == w.shape for n, w in weights.items())
    if not fits:
        raise InputError(f"The state in {folder} belongs to another network: continue it with the preset it began with")


def _flush_folder(folder: Path) -> None:
    """Make renames outlast a power cut, where the system lets a folder be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
