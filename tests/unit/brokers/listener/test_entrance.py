"""Accepting connections: they count before their handshake, few run at a time, and early ends leave no socket."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from admin.endpoint import AdminListener
from admin.streams import Watched
from brokers.listener import entrance
from brokers.listener.connection_slots import ConnectionSlot, ConnectionSlots
from brokers.listener.controller_listener import ControllerListener
from brokers.listener.entrance import Entrance
from brokers.listener.handshakes import KEPT_FOR_KNOWN, UNDER_WAY_MAX, Handshakes
from brokers.listener.inbound import ListenerLimits
from brokers.security.access import Callers, KnownBrokers, party
from brokers.security.tls import Tls
from tests.kit.admin import Addresses, FakeController
from tests.kit.certificates import Authority
from tests.kit.deadlines import eventually
from tests.kit.listener import PATIENT

Runner = Callable[[Coroutine[object, object, None]], None]
BOTH_LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


@asynccontextmanager
async def secured(
    folder: Path, callers: Callers | None = None, **limits: int
) -> AsyncIterator[tuple[ControllerListener, ssl.SSLContext]]:
    authority = Authority(folder)
    tls = Tls(authority.signed("daemon"), None, authority.file)
    listener = ControllerListener("127.0.0.1", 0, ListenerLimits(**PATIENT | limits), tls=tls, callers=callers)
    await listener.start()
    try:
        yield listener, ssl.create_default_context(cafile=authority.file)
    finally:
        await listener.stop()
    await eventually(lambda: listener.connections == 0)


def silent(listener: ControllerListener, address: str = "127.0.0.1") -> socket.socket:
    """Opens a connection that begins no handshake."""
    return socket.create_connection(("127.0.0.1", listener.port), 5, (address, 0))


def hung_up(connection: socket.socket) -> bool:
    """Returns whether the listener has closed the connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


async def greeted(listener: ControllerListener, tls: ssl.SSLContext, address: str = "127.0.0.1") -> None:
    """Opens a connection with a handshake, and requests versions."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=tls, local_addr=(address, 0))
    writer.write(bytes.fromhex("0000000a0012000000000001ffff"))
    assert await reader.readexactly(8)
    writer.transport.abort()


@BOTH_LOOPS
def test_connections_count_before_their_handshake_and_end_without_one(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        async with secured(tmp_path, frame_timeout_ms=4_000) as (listener, tls):
            crowd = [silent(listener) for _ in range(20)]
            await eventually(lambda: listener.connections == 20)
            await greeted(listener, tls, "127.0.0.2")
            await eventually(lambda: listener.connections == 0)
            await eventually(lambda: all(map(hung_up, crowd)))
            for connection in crowd:
                connection.close()

    run(main())


@BOTH_LOOPS
def test_a_crowd_without_handshakes_gives_way_to_new_connections(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        async with secured(tmp_path, connections_max=10, connections_per_address_max=6) as (listener, tls):
            crowd = [silent(listener, f"127.0.0.{1 + number % 3}") for number in range(60)]
            await eventually(lambda: sum(map(hung_up, crowd)) == 50)
            assert listener.connections == 10
            await greeted(listener, tls, "127.0.0.9")
            for connection in crowd:
                connection.close()

    run(main())


@BOTH_LOOPS
@pytest.mark.parametrize("stranger", ["127.0.0.2", "127.0.1.{}"], ids=["one address", "an address for each"])
def test_unfinished_handshakes_of_strangers_keep_no_broker_out(
    run: Runner, tmp_path: Path, stranger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their time does not run out in this test."""
    begun = list[str]()

    class Recorded(Handshakes):
        @asynccontextmanager
        async def turn(self, address: str, *, known: bool = False) -> AsyncIterator[None]:
            async with super().turn(address, known=known):
                begun.append(address)
                yield

    monkeypatch.setattr(entrance, "Handshakes", partial(Recorded, turn_s=600))

    async def main() -> None:
        brokers = KnownBrokers()
        brokers.connected(AtBroker("127.0.0.3"))
        async with secured(tmp_path, Callers(brokers), frame_timeout_ms=600_000) as (listener, tls):
            crowd = [silent(listener, stranger.format(1 + number)) for number in range(2 * UNDER_WAY_MAX)]
            await eventually(lambda: len(begun) == UNDER_WAY_MAX - KEPT_FOR_KNOWN)
            for _ in range(3):
                async with asyncio.timeout(60):
                    await greeted(listener, tls, "127.0.0.3")
            assert not any(map(hung_up, crowd)), "no connection had to give way"
            for connection in crowd:
                connection.close()

    run(main())


class AtBroker(asyncio.Transport):
    """A connection of the daemon to a broker."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 9092)})


@BOTH_LOOPS
def test_bytes_that_are_no_handshake_end_their_connection(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        async with secured(tmp_path) as (listener, tls):
            for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05" + bytes(5)):
                connection = silent(listener)
                connection.sendall(garbage)
                await eventually(partial(hung_up, connection))
                connection.close()
            await eventually(lambda: listener.connections == 0)
            await greeted(listener, tls)

    run(main())


async def test_an_accept_that_fails_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop, failed = asyncio.get_running_loop(), list[bool]()
    real = loop.sock_accept

    async def accept(listening: socket.socket) -> tuple[socket.socket, object]:
        if not failed:
            failed.append(True)
            raise OSError(24, "Too many open files")
        return await real(listening)

    monkeypatch.setattr(loop, "sock_accept", accept)
    listener = ControllerListener("127.0.0.1", 0)
    with caplog.at_level(logging.WARNING):
        await listener.start()
        connection = silent(listener)
        await eventually(lambda: listener.connections == 1)
    connection.close()
    await listener.stop()
    assert "cannot accept connections for the moment: Too many open files" in caplog.text


@pytest.mark.parametrize(
    ("address", "counts_as"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:3:ffff:4:5:6", "2001:db8:1:3::"),
        ("fe80::1%eth0", "fe80::"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
    ],
)
def test_addresses_that_one_machine_can_choose_count_as_one(address: str, counts_as: str) -> None:
    assert party(address) == counts_as


Hook = Callable[[ConnectionSlot], object]
COUNT = 20


def open_sockets() -> int:
    """Sockets of this process."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found += str(descriptor.readlink()).startswith("socket:")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return found


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


class Meeting:
    """Clients of an endpoint: ``first`` is called before one is there, ``then`` after, in the same turn of the loop."""

    def __init__(self) -> None:
        self.listener = AdminListener("127.0.0.1", 0, Addresses([]), FakeController())
        self.before = open_sockets()

    async def comes(self, *, first: Hook = lambda _: None, then: Hook = lambda _: None) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        slot = self.listener.slots.enter("10.0.0.1", lambda: None)
        assert slot is not None
        protocol = partial(self._protocol, slot, first, then)
        await asyncio.get_running_loop().connect_accepted_socket(protocol, ours)
        await eventually(lambda: ended(theirs))
        theirs.close()

    def _protocol(self, slot: ConnectionSlot, first: Hook, then: Hook) -> Watched:
        protocol = self.listener._accept(slot)
        made = protocol.connection_made

        def there(transport: Any) -> None:
            first(slot)
            made(transport)
            then(slot)

        protocol.connection_made = there  # type: ignore[method-assign]
        return protocol

    async def over(self) -> None:
        """Nothing is left."""
        await eventually(lambda: open_sockets() == self.before)
        assert self.listener._clients == set()
        assert self.listener.connections == 0


@BOTH_LOOPS
def test_a_client_that_gives_way_as_soon_as_it_is_there_is_closed(run: Runner) -> None:
    async def main() -> None:
        meeting = Meeting()
        for _ in range(COUNT):
            await meeting.comes(then=meeting.listener.slots._end)
        await meeting.over()

    run(main())


@BOTH_LOOPS
def test_a_client_whose_place_is_gone_when_it_is_there_is_closed(run: Runner) -> None:
    async def main() -> None:
        meeting = Meeting()
        await meeting.comes(first=meeting.listener.slots._end)
        await meeting.over()

    run(main())


@BOTH_LOOPS
def test_an_endpoint_that_stops_closes_clients_that_have_just_come(run: Runner) -> None:
    async def main() -> None:
        meeting, stops = Meeting(), list[asyncio.Task[None]]()
        await meeting.comes(first=lambda _: stops.append(asyncio.create_task(meeting.listener.stop())))
        await asyncio.gather(*stops)
        await meeting.over()

    run(main())


@BOTH_LOOPS
def test_a_connection_that_gives_way_in_the_turn_of_its_accept_is_closed(run: Runner) -> None:
    async def main() -> None:
        entrance = Entrance(ConnectionSlots(1, 1, 0), lambda _: asyncio.Protocol(), lambda _: None)
        pairs = [socket.socketpair() for _ in range(COUNT)]
        for ours, _ in pairs:
            ours.setblocking(False)
            entrance._arrived(ours, "10.0.0.1")
        await eventually(lambda: [ours.fileno() for ours, _ in pairs[:-1]] == [-1] * (COUNT - 1))
        await entrance.close()
        for ours, theirs in pairs:
            ours.close()
            theirs.close()

    run(main())


@BOTH_LOOPS
def test_a_connection_that_cannot_be_let_in_is_closed_and_the_next_one_is_let_in(
    run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    refused = list[str]()

    def full(peer: str) -> None:
        refused.append(peer)
        if len(refused) == 1:
            raise LookupError("a mistake")

    async def main() -> None:
        entrance = Entrance(ConnectionSlots(0, 1, 0), lambda _: asyncio.Protocol(), full)
        await entrance.open("127.0.0.1", 0)
        made = [socket.create_connection(("127.0.0.1", entrance.port or 0)) for _ in range(2)]
        await eventually(lambda: all(map(ended, made)))
        for theirs in made:
            theirs.close()
        await entrance.close()

    run(main())
    assert len(refused) == 2
    [line] = [record for record in caplog.records if record.exc_info]
    assert "could not be accepted" in line.getMessage()
