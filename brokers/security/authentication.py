"""Authenticates brokers at the controller listener and the daemon with brokers by SASL, with users from files."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from brokers.security.scram import Credential, ScramClient, ScramRefused, ScramServer, credential
from brokers.transport import Connection
from brokers.wire.calls import SERVED, Header
from brokers.wire.errors import Error, error_name
from brokers.wire.primitives import BadMessage, Reader
from brokers.wire.replies import encode_api_versions
from brokers.wire.sasl import (
    SASL_SERVED,
    AuthenticateResponse,
    HandshakeResponse,
    encode_authenticate,
    encode_authenticate_response,
    encode_handshake,
    encode_handshake_response,
    read_auth_bytes,
    read_authenticate_response,
    read_handshake_response,
    read_mechanism,
)
from brokers.wire.versions import Api

PLAIN: Final = "PLAIN"


class AuthenticationFailed(OSError):
    """Raised where a broker does not authenticate the daemon, or cannot prove that it knows the password itself."""


class Login(Struct, frozen=True):
    """The daemon's user at brokers."""

    mechanism: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.user})"

    async def authenticate(self, connection: Connection) -> float:
        """Authenticates a connection; returns the seconds for which it holds, 0 for the connection's whole life.

        Raises :class:`AuthenticationFailed` and other OSErrors.
        """
        try:
            offered = read_handshake_response(await connection.exchange([encode_handshake(1, self.mechanism)]), 1)
            if offered.error != Error.NONE:
                raise AuthenticationFailed(
                    f"SASL {self.mechanism} is not offered, but {', '.join(offered.mechanisms) or 'nothing'}: "
                    f"set security.sasl_mechanism ({error_name(offered.error)})"
                )
            if self.mechanism == PLAIN:
                _, lifetime_s = await self._step(connection, 2, f"\0{self.user}\0{self.password}".encode())
                return lifetime_s
            return await self._scram(connection)
        except (BadMessage, ScramRefused) as error:
            raise AuthenticationFailed(f"SASL {self.mechanism} as {self.user}: {error}") from error

    async def _scram(self, connection: Connection) -> float:
        client = ScramClient(self.mechanism, self.user, self.password, secrets.token_urlsafe(24))
        first, _ = await self._step(connection, 2, client.first())
        final, lifetime_s = await self._step(connection, 3, client.final(first))
        client.verify(final)
        return lifetime_s

    async def _step(self, connection: Connection, number: int, message: bytes) -> tuple[bytes, float]:
        frame = await connection.exchange([encode_authenticate(number, message)])
        response = read_authenticate_response(frame, number)
        if response.error != Error.NONE:
            why = response.message or error_name(response.error)
            raise AuthenticationFailed(f"SASL {self.mechanism} as {self.user} is refused: {why}")
        return response.data, response.lifetime_ms / 1000


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
        """Returns the framed response; raises :class:`BadMessage` where there can be none."""
        if header.api == Api.API_VERSIONS:
            return encode_api_versions(header.correlation, header.version, OFFERED)
        first, last = SASL_SERVED.get(header.api, (0, -1))  # type: ignore[call-overload]
        if not first <= header.version <= last:
            raise BadMessage(f"API key {header.api} v{header.version} before it has authenticated")
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
            raise BadMessage("SaslAuthenticate before SaslHandshake")
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


USERS_MAX: Final = 10_000


class SecurityUnusable(OSError):
    """Raised where a file of ``[security]`` cannot be used; the text names the file and the remedy."""


def read_users(path: Path) -> dict[str, str]:
    """Returns passwords by user name, at least one; raises :class:`SecurityUnusable`."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SecurityUnusable(
            f"{path} cannot be read: {why}; give a file that the daemon's user may read, one user:password in each line"
        ) from error
    users: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, colon, password = line.strip().partition(":")
        if not line.strip() or line.startswith("#"):
            continue
        if not (name and colon and password) or len(users) >= USERS_MAX:
            raise SecurityUnusable(f"{path}, line {number}, is not user:password")
        users[name] = password
    if not users:
        raise SecurityUnusable(f"{path} contains no user: write user:password into it")
    return users


def read_user(path: Path) -> tuple[str, str]:
    """Returns the only user of a file; raises :class:`SecurityUnusable`."""
    users = read_users(path)
    if len(users) != 1:
        raise SecurityUnusable(f"{path} contains {len(users)} users: the daemon needs one line user:password")
    return next(iter(users.items()))
