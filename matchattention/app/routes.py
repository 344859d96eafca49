"""Addresses behind the page: files in, files out. Every one begins with the secret of one session."""

from __future__ import annotations

import asyncio
from functools import partial
from urllib.parse import unquote

from fastapi import FastAPI, Request
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import FileResponse, JSONResponse, Response

from matchattention.app.session import CAMERA, PHOTOS, Session, Sessions
from matchattention.app.uploads import Limits, open_camera, open_photo, receive, shown_name
from matchattention.app.worker import Worker
from matchattention.errors import InputError

_PRIVATE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def upload_address(session: Session, slot: str) -> str:
    """Where the page posts the file of a slot: "left", "right" or "camera"."""
    return f"/session/{session.token}/upload/{slot}"


def result_address(session: Session) -> str:
    """Below it lie the files of the session's present result."""
    assert session.result is not None
    return f"/session/{session.token}/{session.result.folder.name}"


def add_routes(app: FastAPI, sessions: Sessions, limits: Limits, worker: Worker) -> None:
    """Serve uploads and results of `sessions`.

    Only requests addressed to this machine are answered: without this a foreign page could point its own name at
    127.0.0.1 and read along (DNS rebinding).
    """
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"])

    @app.post("/session/{token}/upload/{slot}")
    async def upload(token: str, slot: str, request: Request) -> Response:
        session = sessions.get(token)
        if session is None:
            return _refused("This page has been away for too long: reload it.", 404)
        if slot not in (*PHOTOS, CAMERA):
            return _refused("There is no such place for a file.", 404)
        # The header is one that a form of a foreign page cannot send without being asked first.
        name = unquote(request.headers.get("x-file-name", ""))
        try:
            await _take(session, slot, name, request, limits, worker)
        except InputError as error:
            return _refused(str(error), 400)
        except OSError as error:
            return _refused(f"{shown_name(name)} could not be stored: {error.strerror or error}.", 507)
        return JSONResponse({}, headers=_PRIVATE)

    @app.get("/session/{token}/{folder}/{name}")
    async def file(token: str, folder: str, name: str, download: bool = False) -> Response:
        session = sessions.get(token)
        result = None if session is None else session.result
        if result is None or result.folder.name != folder:
            return _refused("This result is no longer there: compute it again.", 404)
        path = result.file(name)
        if path is None:
            return _refused("There is no such file.", 404)
        return FileResponse(path, headers=_PRIVATE, filename=path.name if download else None)


async def _take(session: Session, slot: str, name: str, request: Request, limits: Limits, worker: Worker) -> None:
    """Keep a file that arrives and forget the one it replaces. Files are read in a thread: the page stays alive."""
    path = session.new_path(slot, name)
    try:
        if slot == CAMERA:
            too_large = "a calibration has a few kB, choose another file"
            await receive(request.stream(), path, limits.calibration_megabytes, name, too_large)
            camera = await asyncio.to_thread(open_camera, path, name)
            session.camera, session.camera_name = camera, shown_name(name)
            path.unlink()
            return
        await receive(request.stream(), path, limits.megabytes, name)
        photo = await asyncio.to_thread(open_photo, path, name, limits)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    replaced = session.put(slot, photo)
    if replaced is not None:
        worker.afterwards(partial(replaced.unlink, missing_ok=True))  # a prediction may still read it


def _refused(sentence: str, status: int) -> JSONResponse:
    return JSONResponse({"error": sentence}, status_code=status, headers=_PRIVATE)
