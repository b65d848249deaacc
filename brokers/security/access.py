"""Applies the settings of ``[security]`` to both directions between daemon and brokers."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from brokers.security.authentication import Authenticator, Login, read_user, read_users
from brokers.security.callers import Callers, KnownBrokers
from brokers.security.tls import Tls
from brokers.transport import RESPONSE_BYTES_MAX, Connection, OnConnected, TcpTransport, Transport
from brokers.wire.frames import FrameConnection
from configs.security_section import SecuritySettings

SESSION_PART: Final = 0.85
"""Fraction of an authentication's lifetime after which an idle connection is replaced (KIP-368)."""


class SecureTransport:
    """TCP with TLS, SASL, or both. It returns a connection once the broker has authenticated the daemon."""

    def __init__(
        self,
        tls: Tls | None,
        login: Login | None,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        on_connected: OnConnected = lambda _: None,
    ) -> None:
        self._on_connected = on_connected
        self._tls = tls
        self._login = login
        self._max = response_bytes_max

    async def connect(self, host: str, port: int, on_lost: Callable[[], None]) -> Connection:
        """See :class:`brokers.transport.Transport`."""
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []

        def lost() -> None:
            for timer in timers:
                timer.cancel()
            on_lost()

        try:
            made, connection = await loop.create_connection(
                lambda: FrameConnection(self._max, lost),
                host,
                port,
                ssl=self._tls.client() if self._tls is not None else None,
            )
        except UnicodeError as error:  # raised for labels that are empty or longer than 63 characters
            raise OSError(errno.EINVAL, f"{host!r} is not a host name") from error
        self._on_connected(made)
        if self._login is None:
            return connection
        try:
            holds_s = await self._login.authenticate(connection)
        except BaseException:
            connection.close()
            raise
        if holds_s > 0 and not connection.closed:
            timers.append(loop.call_later(SESSION_PART * holds_s, connection.retire))
        return connection


class Access(Struct, frozen=True):
    """The ``transport`` to brokers and daemons (None: plain TCP), and the listener's security."""

    transport: Transport | None = None
    tls: Tls | None = None
    authenticator: Authenticator | None = None
    callers: Callers | None = None


def access_of(security: SecuritySettings, *, only_brokers: bool = False, listens: bool = True) -> Access:
    """Reads the files that the settings name; raises :class:`brokers.security.authentication.SecurityUnusable`.

    ``only_brokers`` is ``listener.only_brokers``; ``listens`` is False for a process that needs no brokers' passwords.
    """
    tls = login = authenticator = None
    known = KnownBrokers()
    if security.protocol.endswith("SSL"):
        tls = Tls(
            security.certificate_file,
            security.key_file,
            security.ca_file,
            check_host=security.check_host,
            require_clients=security.client_certificates == "required",
        )
    if security.protocol.startswith("SASL"):
        assert security.sasl_file is not None, "configs.rules"
        user, password = read_user(security.sasl_file)
        login = Login(security.sasl_mechanism, user, password)
        file = security.sasl_brokers_file
        brokers = read_users(file) if file is not None and listens else {}
        users = {user: password, **brokers}  # admin endpoints log in as the daemon's user
        authenticator = Authenticator(security.sasl_mechanism, users)
    plain = tls is None and login is None
    callers = Callers(
        known,
        principals=frozenset(name.strip() for name in security.broker_principals.split(";") if name.strip()),
        by_subject=authenticator is None and tls is not None,
        by_address=plain and only_brokers,
    )
    noted = known.connected
    transport = TcpTransport(on_connected=noted) if plain else SecureTransport(tls, login, on_connected=noted)
    return Access(transport, tls, authenticator, callers)
