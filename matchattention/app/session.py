"""What one open page has given and got. Nobody else can reach it: its address is a secret of that page."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from functools import cached_property
from pathlib import Path

from matchattention.app.flow_result import FlowResult
from matchattention.app.result import Result
from matchattention.app.uploads import CAMERA_SUFFIXES, Photo, known_suffix
from matchattention.data.images import PHOTO_SUFFIXES
from matchattention.geometry.camera import StereoCamera

PHOTOS = ("left", "right")
CAMERA = "camera"


class Session:
    """One open page.

    Attributes:
        token: unguessable name of this session in addresses.
        photos: what was given as "left" and "right".
        camera: calibration, None without one.
        camera_name: what the client calls its file.
        result: the latest one, None before it.
    """

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(24)
        self.photos: dict[str, Photo] = {}
        self.camera: StereoCamera | None = None
        self.camera_name: str | None = None
        self.result: Result | FlowResult | None = None
        self._files = 0

    @cached_property
    def folder(self) -> Path:
        """Private to this process, made when first needed."""
        return Path(tempfile.mkdtemp(prefix="matchattention-app-"))

    def new_path(self, slot: str, name: str) -> Path:
        """Where to keep a file for a slot; only its kind is taken from the client's name.

        Raises:
            InputError: the kind is not known.
        """
        suffix = known_suffix(name, CAMERA_SUFFIXES if slot == CAMERA else PHOTO_SUFFIXES)
        self._files += 1
        return self.folder / f"{slot}-{self._files}{suffix}"

    def new_folder(self) -> Path:
        """Where to write the next result."""
        self._files += 1
        return self.folder / f"result-{self._files}"

    def swap(self) -> None:
        """Exchange the left and the right photo."""
        self.photos = {PHOTOS[1 - PHOTOS.index(side)]: photo for side, photo in self.photos.items()}

    def put(self, side: str, photo: Photo) -> Path | None:
        """Take a photo; returns the file of the one before it where that was made for this session, to be deleted."""
        replaced = self.photos.get(side)
        self.photos[side] = photo
        ours = replaced is not None and "folder" in self.__dict__ and replaced.path.parent == self.folder
        return replaced.path if replaced is not None and ours else None

    def remove(self) -> None:
        """Delete every file of this session."""
        if "folder" in self.__dict__:
            shutil.rmtree(self.folder, ignore_errors=True)


class Sessions:
    """The open pages by their tokens."""

    def __init__(self) -> None:
        self._open: dict[str, Session] = {}

    def new(self) -> Session:
        session = Session()
        self._open[session.token] = session
        return session

    def get(self, token: str) -> Session | None:
        return self._open.get(token)

    def close(self, session: Session) -> None:
        """Forget a session; its addresses answer no more. Its files are the caller's to `remove`."""
        self._open.pop(session.token, None)

    def remove_all(self) -> None:
        """Delete the files of every session, when the server ends."""
        for session in list(self._open.values()):
            self.close(session)
            session.remove()
