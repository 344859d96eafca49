"""What the server takes, and how much of it at once."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, fields

from matchattention.errors import InputError


@dataclass(frozen=True)
class Settings:
    """Limits of the server.

    Attributes:
        queue: requests under way at once, those being received included; the next one is answered 503.
        largest_batch: pairs of one size that go through the network together.
        batch_wait_ms: how long the oldest request waits for others of its size.
        timeout_s: from a request's arrival to its answer; later it is answered 504.
        megabytes: of one request's body.
        megapixels: of one image; known before an image file is decoded.
    """

    queue: int = 32
    largest_batch: int = 4
    batch_wait_ms: float = 2.0
    timeout_s: float = 60.0
    megabytes: float = 64.0
    megapixels: float = 4.2

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0 and not (field.name == "batch_wait_ms" and value == 0):
                raise InputError(f"--{field.name.replace('_', '-')} must be positive, not {value:g}.")

    @property
    def bytes(self) -> int:
        """Of one request's body."""
        return int(self.megabytes * 1e6)

    @property
    def pixels(self) -> int:
        """Of one image."""
        return int(self.megapixels * 1e6)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_token(host: str, token: str | None) -> None:
    """Refuse to be open to a network without a token.

    Raises:
        InputError: there is none, or it is too short to be a secret.
    """
    if token is not None and len(token) < 16:
        raise InputError("The token has fewer than 16 characters: make one with `openssl rand -hex 24`.")
    if token is None and not is_loopback(host):
        raise InputError(
            f"Other machines can reach {host}: set MATCHATTENTION_TOKEN or give --token-file, or stay on 127.0.0.1."
        )
