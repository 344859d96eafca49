"""Who may come in, and how many at once: decided before a body is kept.

Pure ASGI, because only there a body can be counted while it arrives.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from matchattention.serve.errors import Refused
from matchattention.serve.metrics import Metrics
from matchattention.serve.settings import Settings

logger = logging.getLogger(__name__)

_OPEN_TO_ALL = ("/v2/health/live", "/v2/health/ready")  # what a container's probe asks, without the token
_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_RETRY_AFTER_S = "1"


class Gate:
    """Middleware: token, byte limit, room in the queue, time limit, one line of JSON for every refusal.

    Args:
        app: what lies behind.
        settings: the limits.
        metrics: told of every request.
        token: that requests must carry as `Authorization: Bearer …`; None: nobody needs one.
        local: whether requests must be addressed to this machine by name.
    """

    def __init__(
        self, app: ASGIApp, settings: Settings, metrics: Metrics, token: str | None = None, local: bool = False
    ) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._token = token
        self._local = local
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        answer = _Answer(send)
        body = _Body(receive, self._settings.bytes)
        try:
            self._require_local(scope)
            self._require_token(scope)
            if scope["method"] == "POST":
                await self._take(scope, body, answer)
            else:
                await self._app(scope, receive, answer)
        except Refused as refusal:
            await answer.refuse(refusal)
        except Exception:
            logger.exception("%s failed", scope["path"])
            await answer.refuse(Refused(500, "The server failed; its log says why."))
        finally:
            endpoint = _endpoint(scope)
            self._metrics.requests.labels(endpoint, str(answer.status or 499)).inc()
            self._metrics.seconds.labels(endpoint).observe(time.perf_counter() - started)

    async def _take(self, scope: Scope, body: _Body, answer: _Answer) -> None:
        length = _header(scope, b"content-length")
        if length.isdigit() and int(length) > self._settings.bytes:
            raise body.too_large()
        if self._in_flight >= self._settings.queue:
            # The body is read and thrown away: a client that is still sending would see a broken pipe, not the 503.
            try:
                await asyncio.wait_for(body.discard(), self._settings.timeout_s)
            except TimeoutError:
                raise Refused(408, "The request's body did not arrive in time.") from None
            raise Refused(503, "The server is busy: try again in a second.")
        self._in_flight += 1
        self._metrics.in_flight.inc()
        try:
            await asyncio.wait_for(self._app(scope, body, answer), self._settings.timeout_s)
        except TimeoutError:
            if answer.status is not None:
                return  # the head has left; the client is too slow to take the rest, and the connection is cut
            if body.complete:
                raise Refused(504, f"No answer within {self._settings.timeout_s:g} s: the server is busy.") from None
            raise Refused(408, "The request's body did not arrive in time.") from None
        finally:
            self._in_flight -= 1
            self._metrics.in_flight.dec()

    def _require_local(self, scope: Scope) -> None:
        host = _header(scope, b"host").decode("latin-1")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if self._local and name not in _LOCAL:
            raise Refused(400, "This server answers only requests that are addressed to 127.0.0.1 or localhost.")

    def _require_token(self, scope: Scope) -> None:
        if self._token is None or scope["path"] in _OPEN_TO_ALL:
            return
        expected = f"Bearer {self._token}".encode()
        if not hmac.compare_digest(_header(scope, b"authorization"), expected):
            raise Refused(401, "Send the server's token as 'Authorization: Bearer TOKEN'.")


class _Body:
    """A request's body that is counted while it is read."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self._read = 0
        self.complete = False

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            if self._read > self._most:
                raise self.too_large()
            self.complete = not message.get("more_body", False)
        return message

    async def discard(self) -> None:
        while not self.complete and (await self())["type"] == "http.request":
            pass

    def too_large(self) -> Refused:
        return Refused(413, f"A request may have {self._most / 1e6:g} MB: resize the images, or raise --megabytes.")


class _Answer:
    """A response whose status is remembered."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    async def refuse(self, refusal: Refused) -> None:
        if self.status is not None:
            return
        body = json.dumps({"error": refusal.sentence}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if refusal.status == 503:
            headers.append((b"retry-after", _RETRY_AFTER_S.encode()))
        if refusal.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await self({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")


def _endpoint(scope: Scope) -> str:
    """The route's pattern: few values, whatever addresses clients invent."""
    route: Any = scope.get("route")
    return getattr(route, "path", "refused" if scope["method"] == "POST" else "unknown")
