"""Declares SaslHandshake and SaslAuthenticate, which the endpoint forwards unchanged and reads for the principal."""

from __future__ import annotations

from msgspec import Struct


class SaslHandshakeRequest(Struct, frozen=True):
    """The mechanism that the client requests.

    Version 0 is not offered: bytes without any header follow it, indistinguishable from requests.
    """

    mechanism: str


class SaslHandshakeResponse(Struct, frozen=True):
    """The broker's error code and its mechanisms."""

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
