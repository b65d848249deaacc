"""Who may call as brokers do where nobody says who they are: by certificates and addresses of brokers that were met."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from brokers.listener.controller_listener import ControllerListener
from brokers.listener.envelopes import CarriedCall
from brokers.security.access import KNOWN_MAX, Callers, KnownBrokers, SecureTransport, subject
from brokers.security.tls import Tls
from brokers.transport import TcpTransport, Transport
from brokers.wire.calls import AllocateProducerIdsCall, AlterPartitionCall, ControlledShutdownCall
from brokers.wire.primitives import Reader
from brokers.wire.replies import AllocateProducerIdsReply, AlterPartitionReply, ControlledShutdownReply
from tests.kit.certificates import Authority

SHUTDOWN = bytes.fromhex("0007 0002 00000001 0001 61 00000001 0000000000000001".replace(" ", ""))
UNAUTHORIZED = 31


class Brokerage:
    """Serves every call; ``allowed`` may ClusterAction."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed
        self.asked: list[tuple[str, str]] = []

    async def controlled_shutdown(self, call: ControlledShutdownCall) -> ControlledShutdownReply:
        return ControlledShutdownReply(0)

    async def alter_partition(self, call: AlterPartitionCall) -> AlterPartitionReply:
        raise NotImplementedError

    async def allocate_producer_ids(self, call: AllocateProducerIdsCall) -> AllocateProducerIdsReply:
        raise NotImplementedError

    async def carried(self, call: CarriedCall) -> Any:
        raise NotImplementedError

    def registered(self, broker: int, epoch: int) -> bool:
        return True

    async def admits(self, principal: str, client_host: str) -> bool:
        self.asked.append((principal, client_host))
        return principal in self.allowed


@asynccontextmanager
async def serving(
    handlers: Brokerage | None = None, tls: Tls | None = None, callers: Callers | None = None
) -> AsyncIterator[int]:
    listener = ControllerListener("127.0.0.1", 0, tls=tls, callers=callers)
    await listener.start()
    listener.serve(handlers or Brokerage())
    try:
        yield listener.port
    finally:
        await listener.stop()


async def shut_down(transport: Transport, port: int) -> int:
    """Error of the answer to a ControlledShutdown."""
    connection = await transport.connect("127.0.0.1", port, lambda: None)
    try:
        reader = Reader(await connection.exchange([len(SHUTDOWN).to_bytes(4, "big") + SHUTDOWN]))
        reader.i32()
        return reader.i16()
    finally:
        connection.close()


class Certified:
    """A daemon, a broker and an application, whose certificates one authority has signed."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.daemon, self.broker, self.application = map(self.tls, ("daemon", "broker", "application"))

    def tls(self, name: str) -> Tls:
        return Tls(self.authority.signed(name), None, self.authority.file, require_clients=True)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    return Certified(tmp_path_factory.mktemp("certified"))


async def test_with_certificates_alone_brokers_are_those_that_were_met(certified: Certified) -> None:
    known, role = KnownBrokers(), Brokerage()
    callers = Callers(known, by_subject=True)
    async with serving(tls=certified.broker) as broker, serving(role, certified.daemon, callers) as port:
        assert await shut_down(SecureTransport(certified.broker, None), port) == UNAUTHORIZED, "no broker is known yet"
        await shut_down(SecureTransport(certified.daemon, None, on_connected=known.connected), broker)
        assert await shut_down(SecureTransport(certified.broker, None), port) == 0
        assert await shut_down(SecureTransport(certified.application, None), port) == UNAUTHORIZED
        assert role.asked == [("User:CN=broker", "127.0.0.1"), ("User:CN=application", "127.0.0.1")]


async def test_with_certificates_alone_a_principal_with_cluster_action_is_a_broker(certified: Certified) -> None:
    role = Brokerage("User:CN=broker")
    async with serving(role, certified.daemon, Callers(by_subject=True)) as port:
        assert await shut_down(SecureTransport(certified.broker, None), port) == 0
        assert await shut_down(SecureTransport(certified.application, None), port) == UNAUTHORIZED


async def test_a_list_of_principals_admits_those_alone(certified: Certified) -> None:
    known, role = KnownBrokers(), Brokerage("User:CN=application")
    named = Callers(known, by_subject=True, principals=frozenset({"User:CN=broker"}))
    async with serving(tls=certified.application) as other, serving(role, certified.daemon, named) as port:
        await shut_down(SecureTransport(certified.daemon, None, on_connected=known.connected), other)
        assert await shut_down(SecureTransport(certified.broker, None), port) == 0
        assert await shut_down(SecureTransport(certified.application, None), port) == UNAUTHORIZED
        assert role.asked == []


async def test_without_tls_only_addresses_of_brokers_are_served_where_the_setting_says_so() -> None:
    known = KnownBrokers()
    async with serving() as broker, serving(callers=Callers(known, by_address=True)) as port:
        assert await shut_down(TcpTransport(), port) == UNAUTHORIZED
        await shut_down(TcpTransport(on_connected=known.connected), broker)
        assert await shut_down(TcpTransport(), port) == 0


async def test_without_tls_every_address_is_served_by_default() -> None:
    async with serving(callers=Callers()) as port:
        assert await shut_down(TcpTransport(), port) == 0


class Showing(asyncio.BaseTransport):
    """A connection whose other side has shown a certificate with a subject."""

    def __init__(self, *parts: tuple[tuple[str, str], ...]) -> None:
        super().__init__({"peercert": {"subject": parts} if parts else {}})


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ((), None),
        (((("countryName", "DE"),), (("organizationName", "x"),), (("commonName", "b1"),)), "CN=b1,O=x,C=DE"),
        (((("commonName", "a, b+c"),),), r"CN=a\, b\+c"),
        (((("commonName", "#a "),),), r"CN=\#a\ "),
        (((("commonName", "a"), ("userId", "u")),), "CN=a+UID=u"),
    ],
)
def test_a_subject_is_written_as_brokers_write_it(
    parts: tuple[tuple[tuple[str, str], ...], ...], name: str | None
) -> None:
    assert subject(Showing(*parts)) == name


def test_what_was_met_is_bounded() -> None:
    known = KnownBrokers()
    for number in range(KNOWN_MAX + 1):
        known.connected(Showing((("commonName", str(number)),)))
    assert not known.subject("CN=0")
    assert known.subject("CN=1")
    assert known.subject(f"CN={KNOWN_MAX}")
