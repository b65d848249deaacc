"""How the daemon authenticates with a broker: SaslHandshake v1, then SaslAuthenticate v1 till both are content."""

from __future__ import annotations

import secrets
from typing import Final

from msgspec import Struct

from brokers.security.scram import ScramClient, ScramRefused
from brokers.transport import Connection
from brokers.wire.errors import Error, error_name
from brokers.wire.primitives import Malformed
from brokers.wire.sasl import encode_authenticate, encode_handshake, read_authenticated, read_handshaken

PLAIN: Final = "PLAIN"


class AuthenticationFailed(OSError):
    """A broker does not accept who the daemon says to be, or cannot prove that it knows the password itself."""


class Login(Struct, frozen=True):
    """Who the daemon is at brokers."""

    mechanism: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.user})"

    async def authenticate(self, connection: Connection) -> float:
        """Returns the seconds for which that holds, 0 for as long as the connection.

        Raises :class:`AuthenticationFailed` and other OSErrors.
        """
        try:
            offered = read_handshaken(await connection.exchange([encode_handshake(1, self.mechanism)]), 1)
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

    async def _step(self, connection: Connection, number: int, said: bytes) -> tuple[bytes, float]:
        answer = read_authenticated(await connection.exchange([encode_authenticate(number, said)]), number)
        if answer.error != Error.NONE:
            why = answer.message or error_name(answer.error)
            raise AuthenticationFailed(f"SASL {self.mechanism} as {self.user} is refused: {why}")
        return answer.data, answer.lifetime_ms / 1000
