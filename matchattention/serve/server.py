"""Starts the server and ends it without losing an answer."""

from __future__ import annotations

import socket

import uvicorn

from matchattention.errors import InputError
from matchattention.inference.predictor import Predictor
from matchattention.serve.application import make_application
from matchattention.serve.settings import Settings, is_loopback, require_token


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound before a model is loaded, so that a port in use is said at once.

    Raises:
        InputError: it cannot be used.
    """
    if not 0 <= port <= 65535:
        raise InputError(f"{port} is no port: choose one between 1024 and 65535 with --port.")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InputError(
            f"{host} port {port} cannot be used ({error.strerror}): choose others with --host and --port."
        ) from None
    return listener


def serve(
    predictor: Predictor, name: str, listener: socket.socket, settings: Settings, *, token: str | None = None
) -> None:
    """Answer until Ctrl-C or SIGTERM; requests that were taken are answered before the end.

    Args:
        predictor: of the network to serve.
        name: of the model, in its addresses.
        listener: from `listen`.
        settings: the limits.
        token: that requests must carry.
    """
    host, port = listener.getsockname()[:2]
    require_token(host, token)
    app = make_application(
        predictor.match_together,
        name,
        predictor.task,
        settings,
        token=token,
        local=is_loopback(host),
    )
    config = uvicorn.Config(
        app,
        log_level="warning",
        log_config=None,  # uvicorn's own would close the handlers of everything else in this process
        # Whatever waits has an answer or a 504 by then.
        timeout_graceful_shutdown=int(settings.timeout_s) + 5,
        timeout_keep_alive=30,
        server_header=False,
    )
    listener.listen(config.backlog)  # who reads the line below may connect at once, before the event loop is there
    print(f"Serving {name} at http://{host}:{port}/v2/models/{name} (Ctrl-C ends it).", flush=True)
    uvicorn.Server(config).run(sockets=[listener])
