"""What the settings of ``[security]`` make of both directions between daemon and brokers."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from brokers.security.callers import Callers, Met
from brokers.security.gate import Gate
from brokers.security.login import Login
from brokers.security.tls import Tls
from brokers.security.users import read_user, read_users
from brokers.transport import ANSWER_BYTES_MAX, Connection, OnMet, TcpTransport, Transport
from brokers.wire.frames import FrameConnection
from configs.security_section import SecuritySettings

SESSION_PART: Final = 0.85
"""Of the time for which an authentication holds: then an idle connection is made anew (KIP-368)."""


class SecureTransport:
    """TCP with TLS, SASL, or both. A connection is there once the broker has accepted who the daemon is."""

    def __init__(
        self,
        tls: Tls | None,
        login: Login | None,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        met: OnMet = lambda _: None,
    ) -> None:
        self._met = met
        self._tls = tls
        self._login = login
        self._max = answer_bytes_max

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
        self._met(made)
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
    """``transport`` to brokers and to daemons (None: plain TCP); ``tls``, ``gate``, ``callers`` of the listener."""

    transport: Transport | None = None
    tls: Tls | None = None
    gate: Gate | None = None
    callers: Callers | None = None


def access_of(security: SecuritySettings, *, only_brokers: bool = False, listens: bool = True) -> Access:
    """Reads the files that the settings name; raises :class:`brokers.security.users.SecurityUnusable`.

    ``only_brokers``: ``listener.only_brokers``; ``listens``: False where brokers' passwords need not be known.
    """
    tls = login = gate = None
    met = Met()
    if security.protocol.endswith("SSL"):
        tls = Tls(
            security.certificate_file,
            security.key_file,
            security.ca_file,
            check_host=security.check_host,
            ask_clients=security.client_certificates == "required",
        )
    if security.protocol.startswith("SASL"):
        assert security.sasl_file is not None, "configs.rules"
        user, password = read_user(security.sasl_file)
        login = Login(security.sasl_mechanism, user, password)
        file = security.sasl_brokers_file
        brokers = read_users(file) if file is not None and listens else {}
        gate = Gate(security.sasl_mechanism, {user: password, **brokers})  # admin endpoints come as the daemon's user
    plain = tls is None and login is None
    callers = Callers(
        met,
        principals=frozenset(name.strip() for name in security.broker_principals.split(";") if name.strip()),
        by_subject=gate is None and tls is not None,
        by_address=plain and only_brokers,
    )
    transport = TcpTransport(met=met.met) if plain else SecureTransport(tls, login, met=met.met)
    return Access(transport, tls, gate, callers)
