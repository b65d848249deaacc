"""Authenticates the daemon with a broker: SaslHandshake v1, then SaslAuthenticate v1 until the exchange is complete."""

from __future__ import annotations

import secrets
from typing import Final

from msgspec import Struct

from brokers.security.scram import ScramClient, ScramRefused
from brokers.transport import Connection
from brokers.wire.errors import Error, error_name
from brokers.wire.primitives import Malformed
from brokers.wire.sasl import encode_authenticate, encode_handshake, read_authenticate_response, read_handshake_response

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
        except (Malformed, ScramRefused) as error:
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
