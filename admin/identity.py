"""Derives a client's principal from the SASL exchange with a broker, which passes through the endpoint.

Names are those of Kafka's default principal builder. The principal stays unknown where the exchange does not contain
its name (delegation tokens, OAUTHBEARER, GSSAPI).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from brokers.wire.errors import Error
from brokers.wire.messages import security

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a connection without authentication (``KafkaPrincipal.ANONYMOUS``)."""

PLAIN: Final = "PLAIN"
SCRAM: Final = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"})
_SERVER_FINAL: Final = b"v="
_BY_DELEGATION: Final = "tokenauth=true"


class Identity:
    """The principal of one connection, None until a broker has found it and after its session has run out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mechanism = ""
        self._claimed: str | None = None
        self._began = False
        self._found: str | None = None
        self._until_s = 0.0
        self.authenticated = False
        """Whether a broker has authenticated the client, with a known principal or not."""

    @property
    def principal(self) -> str | None:
        """Returns ``User:name``."""
        return self._found if self._clock() < self._until_s else None

    def observe(self, request: Struct, response: Struct) -> None:
        """Takes one request of the client and the broker's response into account."""
        match request, response:
            case security.SaslHandshakeRequest(mechanism=wanted), security.SaslHandshakeResponse(error_code=Error.NONE):
                self._mechanism, self._claimed, self._began = wanted, None, False
            case (
                security.SaslAuthenticateRequest(auth_bytes=message),
                security.SaslAuthenticateResponse(error_code=Error.NONE) as granted,
            ):
                self._step(message, granted)
            case _:
                self._mechanism, self._found, self.authenticated = "", None, False

    def _step(self, message: bytes, response: security.SaslAuthenticateResponse) -> None:
        if not self._began:
            self._began, self._claimed = True, _claimed(self._mechanism, message)
        if self._mechanism in SCRAM and not response.auth_bytes.startswith(_SERVER_FINAL):
            return
        if self._mechanism not in SCRAM and response.auth_bytes:  # a step, or OAUTHBEARER's reason to refuse the token
            return
        self.authenticated = True
        if self._mechanism not in (PLAIN, *SCRAM):
            return
        self._found = f"User:{self._claimed}" if self._claimed else None
        lifetime_s = response.session_lifetime_ms / 1000
        self._until_s = self._clock() + lifetime_s if lifetime_s > 0 else float("inf")
        self._mechanism = ""


def _claimed(mechanism: str, first: bytes) -> str | None:
    """Returns the user name in the first message of a client."""
    try:
        text = first.decode()
    except UnicodeDecodeError:
        return None
    if mechanism == PLAIN:
        parts = text.split("\0")
        return parts[1] if len(parts) == 3 else None
    return _scram_name(text) if mechanism in SCRAM else None


def _scram_name(text: str) -> str | None:
    """Reads ``n,[a=authzid],n=name,r=nonce[,extensions]`` (RFC 5802); None for a delegation token (KIP-48)."""
    parts = text.split(",")
    if len(parts) < 4 or not parts[2].startswith("n=") or _BY_DELEGATION in map(str.lower, parts[4:]):
        return None
    return parts[2].removeprefix("n=").replace("=2C", ",").replace("=3D", "=") or None
