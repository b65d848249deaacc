"""How brokers authenticate at the controller listener: before they have, nothing but SASL is answered."""

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
    Authenticated,
    Handshaken,
    encode_authenticated,
    encode_handshaken,
    read_mechanism,
    read_said,
)
from brokers.wire.versions import Api

FRAME_BYTES_MAX: Final = 65_536
"""Largest request of who has not authenticated yet."""
SALT_BYTES: Final = 24
OFFERED: Final = SERVED | SASL_SERVED
REFUSED: Final = "wrong user name or password"


class Gate:
    """The users that brokers may be, all with one mechanism. Whoever is among them is a broker."""

    def __init__(self, mechanism: str, users: Mapping[str, str]) -> None:
        self.mechanism = mechanism
        self._users = dict(users)
        self._salt, self._nobody = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(SALT_BYTES)
        self._known: dict[str, Credential] = {}
        if mechanism != PLAIN:
            self._known = {name: credential(mechanism, word, self._salted(name)) for name, word in users.items()}

    def _salted(self, name: str) -> bytes:
        return hmac.digest(self._salt, name.encode(), "sha256")[:SALT_BYTES]

    def scram(self) -> ScramServer:
        """One exchange."""
        return ScramServer(self.mechanism, self._credential, secrets.token_urlsafe(24))

    def _credential(self, name: str) -> Credential:
        if (found := self._known.get(name)) is not None:
            return found
        key = hmac.digest(self._nobody, name.encode(), "sha512")
        size = len(next(iter(self._known.values())).stored_key)
        return Credential(self._salted(name), next(iter(self._known.values())).iterations, key[:size], key[:size])

    def plain(self, said: bytes) -> str:
        """The user; raises :class:`ScramRefused`."""
        parts = said.split(b"\0")
        if len(parts) != 3:
            raise ScramRefused("not three parts")
        name = parts[1].decode(errors="replace")
        if parts[0] not in (b"", parts[1]):
            raise ScramRefused("nobody may act for somebody else")
        known = self._users.get(name)
        if not hmac.compare_digest((known or "").encode(), parts[2]) or known is None:
            raise ScramRefused(REFUSED)
        return name


class Admission:
    """What one connection has shown of itself so far."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._scram: ScramServer | None = None
        self._began = False
        self.user: str | None = None
        """Who it is; None until it has authenticated."""
        self.over = False
        """Whether the connection is to be closed after the answer."""

    def answer(self, header: Header, reader: Reader) -> bytes:
        """The framed response; raises :class:`Malformed` where there can be none."""
        if header.api == Api.API_VERSIONS:
            return encode_api_versions(header.correlation, header.version, OFFERED)
        first, last = SASL_SERVED.get(header.api, (0, -1))  # type: ignore[call-overload]
        if not first <= header.version <= last:
            raise Malformed(f"API key {header.api} v{header.version} before it has authenticated")
        if header.api == Api.SASL_HANDSHAKE:
            return self._handshake(header, reader)
        return self._authenticate(header, reader)

    def _handshake(self, header: Header, reader: Reader) -> bytes:
        self._began = read_mechanism(reader) == self._gate.mechanism
        self._scram = None
        self.over = not self._began
        error = Error.NONE if self._began else Error.UNSUPPORTED_SASL_MECHANISM
        return encode_handshaken(header.correlation, Handshaken(error, (self._gate.mechanism,)))

    def _authenticate(self, header: Header, reader: Reader) -> bytes:
        if not self._began:
            raise Malformed("SaslAuthenticate before SaslHandshake")
        try:
            answer = Authenticated(Error.NONE, None, self._step(read_said(reader)), 0)
        except ScramRefused:
            self.over = True
            answer = Authenticated(Error.SASL_AUTHENTICATION_FAILED, f"Authentication failed: {REFUSED}", b"", 0)
        return encode_authenticated(header.correlation, header.version, answer)

    def _step(self, said: bytes) -> bytes:
        if self._gate.mechanism == PLAIN:
            self.user = self._gate.plain(said)
            return b""
        if self._scram is None:
            self._scram = self._gate.scram()
            return self._scram.first(said)
        final = self._scram.final(said)
        self.user = self._scram.user
        return final
