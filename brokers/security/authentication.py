"""Authenticates brokers at the controller listener by SASL; before that, it serves only ApiVersions and SASL."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from typing import Final

from brokers.security.login import PLAIN
from brokers.security.scram import Credential, ScramRefused, ScramServer, credential
from brokers.wire.calls import SERVED, Header
from brokers.wire.errors import Error
from brokers.wire.primitives import Malformed, Reader
from brokers.wire.replies import encode_api_versions
from brokers.wire.sasl import (
    SASL_SERVED,
    AuthenticateResponse,
    HandshakeResponse,
    encode_authenticate_response,
    encode_handshake_response,
    read_auth_bytes,
    read_mechanism,
)
from brokers.wire.versions import Api

FRAME_BYTES_MAX: Final = 65_536
"""Largest request before authentication."""
SALT_BYTES: Final = 24
OFFERED: Final = SERVED | SASL_SERVED
REFUSED: Final = "wrong user name or password"


class Authenticator:
    """The users of brokers, all with one mechanism. Each authenticated user counts as a broker."""

    def __init__(self, mechanism: str, users: Mapping[str, str]) -> None:
        self.mechanism = mechanism
        self._users = dict(users)
        self._salt, self._unknown = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(SALT_BYTES)
        self._known: dict[str, Credential] = {}
        if mechanism != PLAIN:
            self._known = {name: credential(mechanism, word, self._salted(name)) for name, word in users.items()}

    def _salted(self, name: str) -> bytes:
        return hmac.digest(self._salt, name.encode(), "sha256")[:SALT_BYTES]

    def scram(self) -> ScramServer:
        """Returns the server's side of one exchange."""
        return ScramServer(self.mechanism, self._credential, secrets.token_urlsafe(24))

    def _credential(self, name: str) -> Credential:
        if (found := self._known.get(name)) is not None:
            return found
        key = hmac.digest(self._unknown, name.encode(), "sha512")
        size = len(next(iter(self._known.values())).stored_key)
        return Credential(self._salted(name), next(iter(self._known.values())).iterations, key[:size], key[:size])

    def plain(self, message: bytes) -> str:
        """Returns the user of a PLAIN message; raises :class:`ScramRefused`."""
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise ScramRefused("not three parts")
        name = parts[1].decode(errors="replace")
        if parts[0] not in (b"", parts[1]):
            raise ScramRefused("a user may not act for another one")
        known = self._users.get(name)
        if not hmac.compare_digest((known or "").encode(), parts[2]) or known is None:
            raise ScramRefused(REFUSED)
        return name


class Authentication:
    """The state of one connection's authentication."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._scram: ScramServer | None = None
        self._began = False
        self.user: str | None = None
        """The authenticated user; None before."""
        self.over = False
        """Whether the connection ends after the response."""

    def respond(self, header: Header, reader: Reader) -> bytes:
        """Returns the framed response; raises :class:`Malformed` where there can be none."""
        if header.api == Api.API_VERSIONS:
            return encode_api_versions(header.correlation, header.version, OFFERED)
        first, last = SASL_SERVED.get(header.api, (0, -1))  # type: ignore[call-overload]
        if not first <= header.version <= last:
            raise Malformed(f"API key {header.api} v{header.version} before it has authenticated")
        if header.api == Api.SASL_HANDSHAKE:
            return self._handshake(header, reader)
        return self._authenticate(header, reader)

    def _handshake(self, header: Header, reader: Reader) -> bytes:
        self._began = read_mechanism(reader) == self._authenticator.mechanism
        self._scram = None
        self.over = not self._began
        error = Error.NONE if self._began else Error.UNSUPPORTED_SASL_MECHANISM
        return encode_handshake_response(header.correlation, HandshakeResponse(error, (self._authenticator.mechanism,)))

    def _authenticate(self, header: Header, reader: Reader) -> bytes:
        if not self._began:
            raise Malformed("SaslAuthenticate before SaslHandshake")
        try:
            response = AuthenticateResponse(Error.NONE, None, self._step(read_auth_bytes(reader)), 0)
        except ScramRefused:
            self.over = True
            why = f"Authentication failed: {REFUSED}"
            response = AuthenticateResponse(Error.SASL_AUTHENTICATION_FAILED, why, b"", 0)
        return encode_authenticate_response(header.correlation, header.version, response)

    def _step(self, message: bytes) -> bytes:
        if self._authenticator.mechanism == PLAIN:
            self.user = self._authenticator.plain(message)
            return b""
        if self._scram is None:
            self._scram = self._authenticator.scram()
            return self._scram.first(message)
        final = self._scram.final(message)
        self.user = self._scram.user
        return final
