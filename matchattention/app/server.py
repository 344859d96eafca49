"""Starts the page, for this machine only."""

from __future__ import annotations

import socket

from nicegui import app, core, ui

from matchattention.app.flow_page import FlowPage
from matchattention.app.page import Page, style_sheet
from matchattention.app.routes import add_routes
from matchattention.app.session import Sessions
from matchattention.app.uploads import Limits
from matchattention.app.worker import Worker
from matchattention.errors import InputError
from matchattention.inference.predictor import Predictor

HOST = "127.0.0.1"
_RECONNECT_SECONDS = 120.0  # a phone that slept, a laptop that was closed for a moment
_ICON = (
    '<svg viewBox="0 0 32 32" xmlns="http://www.w3.org/2000/svg"><rect width="32" height="32" rx="7" fill="#15171c"/>'
    '<circle cx="12.5" cy="16" r="7" fill="none" stroke="#ff7a59" stroke-width="3"/>'
    '<circle cx="19.5" cy="16" r="7" fill="none" stroke="#ffd08a" stroke-width="3"/></svg>'
)


def require_free_port(port: int) -> None:
    """Refuse a port that cannot be listened on, before a model is loaded.

    Raises:
        InputError: it is in use, reserved or no port at all.
    """
    if not 1 <= port <= 65535:
        raise InputError(f"{port} is no port: choose one between 1024 and 65535 with --port.")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise InputError(f"Port {port} cannot be used ({error.strerror}): choose another with --port.") from None


def own_origins(port: int) -> list[str]:
    """The pages whose scripts may talk to this one: its own. NiceGUI would answer every website that is open."""
    return [f"http://{host}:{port}" for host in (HOST, "localhost")]


def serve(predictor: Predictor, model: str, port: int, *, browser: bool, limits: Limits | None = None) -> None:
    """Serve the page until Ctrl-C.

    Args:
        predictor: of a stereo or a flow network.
        model: its name, to show.
        port: of 127.0.0.1.
        browser: whether to open the page in the browser.
        limits: of uploads; None: the usual ones.
    """
    sessions, worker = Sessions(), Worker()
    limits = limits or Limits()
    add_routes(app, sessions, limits, worker)
    core.sio.eio.cors_allowed_origins = own_origins(port)
    ui.add_css(style_sheet(), shared=True)

    @ui.page("/", title="MatchAttention")
    def page() -> None:
        kind = FlowPage if predictor.task == "flow" else Page
        kind(predictor, model, sessions, worker, limits).build()

    @app.on_shutdown
    def end() -> None:
        worker.stop()
        sessions.remove_all()

    print(f"The page is at http://{HOST}:{port} (this machine only). Ctrl-C ends it.", flush=True)
    ui.run(
        host=HOST, port=port, title="MatchAttention", favicon=_ICON, dark=True, language="en-US",
        show=browser, reload=False, reconnect_timeout=_RECONNECT_SECONDS, show_welcome_message=False,
        gzip_middleware_factory=None,  # nothing leaves this machine: packing would only cost time
    )  # fmt: skip
