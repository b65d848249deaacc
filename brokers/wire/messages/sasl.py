"""SaslHandshake and SaslAuthenticate: passed on as they are, and read to learn who the client is."""

from __future__ import annotations

from msgspec import Struct


class SaslHandshakeRequest(Struct, frozen=True):
    """Which mechanism the client wants.

    Version 0 is not offered: behind it come bytes without any header, which could not be told from requests.
    """

    mechanism: str


class SaslHandshakeResponse(Struct, frozen=True):
    """Whether it may have it."""

    error_code: int
    mechanisms: tuple[str, ...]


class SaslAuthenticateRequest(Struct, frozen=True):
    """A step of the client."""

    auth_bytes: bytes

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest()"


class SaslAuthenticateResponse(Struct, frozen=True):
    """A step of the broker. ``session_lifetime_ms`` 0: for as long as the connection lives (v1 on; KIP-368)."""

    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int = 0

    def __repr__(self) -> str:
        return f"SaslAuthenticateResponse(error_code={self.error_code})"
