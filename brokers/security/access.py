"""Applies the settings of ``[security]`` to both directions, and decides which callers without SASL are brokers.

A certificate of the right authority may belong to an application, and an address to any process. So the daemon notes
the certificate's subject and the address whenever it connects to a broker's registered listener. Brokers call with the
same certificate and address.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct

from brokers.security.authentication import Authenticator, Login, read_user, read_users
from brokers.security.tls import Tls
from brokers.transport import RESPONSE_BYTES_MAX, Connection, OnConnected, TcpTransport, Transport
from brokers.wire.frames import FrameConnection
from configs.connections import SecuritySettings
from metadata_store.subjects import subject_of

HOST_BITS: Final = 64
"""Bits of an IPv6 address that one machine can choose freely."""
KNOWN_MAX: Final = 10_000
"""Most subjects, and most addresses, that are remembered; the oldest are forgotten."""
ANONYMOUS: Final = "User:ANONYMOUS"


class KnownBrokers:
    """The certificate subjects and addresses of brokers to which the daemon connected."""

    def __init__(self) -> None:
        self._subjects: dict[str, None] = {}
        self._addresses: dict[str, None] = {}
        self._parties: dict[str, None] = {}

    def connected(self, transport: asyncio.BaseTransport) -> None:
        """Notes the subject and the address of a broker to which the daemon has connected."""
        if (name := subject(transport)) is not None:
            _remember(self._subjects, name)
        if (address := transport.get_extra_info("peername")) is not None:
            _remember(self._addresses, str(address[0]))
            _remember(self._parties, party(str(address[0])))

    def subject(self, name: str) -> bool:
        """Returns whether a broker presented a certificate with this subject."""
        return name in self._subjects

    def address(self, address: str) -> bool:
        """Returns whether the daemon reached a broker at this address."""
        return address in self._addresses

    def party(self, address: str) -> bool:
        """Returns whether the daemon reached a broker in the same network (see :func:`party`)."""
        return address in self._parties


class Callers:
    """Decides which connections of the controller listener belong to brokers.

    ``principals`` are the brokers' own, as Kafka writes them, instead of the noted subjects. ``by_subject``: callers
    present certificates and nothing else. ``by_address``: they present nothing, and only brokers' addresses are served.
    """

    def __init__(
        self,
        known: KnownBrokers | None = None,
        *,
        principals: frozenset[str] = frozenset(),
        by_subject: bool = False,
        by_address: bool = False,
    ) -> None:
        self._brokers = known or KnownBrokers()
        self._principals = principals
        self._by_subject = by_subject
        self._by_address = by_address

    def known(self, address: str) -> bool:
        """Returns whether the daemon reached a broker there; ``address`` is a result of :func:`party`."""
        return self._brokers.party(address)

    async def refused(
        self, transport: asyncio.BaseTransport | None, admits: Callable[[str, str], Awaitable[bool]]
    ) -> str | None:
        """Returns why a caller is no broker, None where it is one; ``admits`` authorizes ClusterAction."""
        peer = transport.get_extra_info("peername") if transport is not None else None
        if transport is None or peer is None or not (self._by_subject or self._by_address):
            return None
        address = str(peer[0])
        if self._by_address:
            return None if self._brokers.address(address) else f"the daemon never reached a broker at {address}"
        name = subject(transport)
        principal = f"User:{name}" if name is not None else ANONYMOUS
        if self._principals:
            return None if principal in self._principals else f"security.broker_principals does not name {principal}"
        if (name is not None and self._brokers.subject(name)) or await admits(principal, address):
            return None
        return f"no broker presents the certificate of {principal}, and no ACL allows it ClusterAction"


def subject(transport: asyncio.BaseTransport) -> str | None:
    """Returns the subject of the peer's certificate in Java's form (RFC 2253); None without a certificate."""
    certificate: dict[str, Any] | None = transport.get_extra_info("peercert")
    return subject_of(certificate) if certificate else None


def _remember(known: dict[str, None], name: str) -> None:
    if name not in known:
        known[name] = None
        if len(known) > KNOWN_MAX:
            del known[next(iter(known))]


def party(address: str) -> str:
    """Returns the address whose connections count together: for IPv6 its /64 network, which may be one machine's."""
    if ":" not in address:
        return address
    found = ipaddress.IPv6Address(address.partition("%")[0])
    return str(found.ipv4_mapped or ipaddress.IPv6Address(int(found) >> HOST_BITS << HOST_BITS))


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
