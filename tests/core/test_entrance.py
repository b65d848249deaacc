"""Accepting connections: they count before their TLS handshake, and few handshakes are in progress at a time."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import uvloop

from brokers.listener import entrance
from brokers.listener.controller_listener import ControllerListener
from brokers.listener.handshakes import KEPT_FOR_KNOWN, PAUSE_S, TURN_S, UNDER_WAY_MAX, Handshakes
from brokers.listener.inbound import ListenerLimits
from brokers.security.callers import Callers, KnownBrokers, party
from brokers.security.tls import Tls
from tests.certificates import Authority
from tests.core.virtual_time import in_exact_time
from tests.polling import eventually

Runner = Callable[[Coroutine[object, object, None]], None]
BOTH_LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


@asynccontextmanager
async def secured(
    folder: Path, callers: Callers | None = None, **limits: int
) -> AsyncIterator[tuple[ControllerListener, ssl.SSLContext]]:
    authority = Authority(folder)
    tls = Tls(authority.signed("daemon"), None, authority.file)
    listener = ControllerListener("127.0.0.1", 0, ListenerLimits(**limits), tls=tls, callers=callers)
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
                async with asyncio.timeout(20):
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
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
    ],
)
def test_addresses_that_one_machine_can_choose_count_as_one(address: str, counts_as: str) -> None:
    assert party(address) == counts_as


# -- turns


class Line:
    """Handshakes that take their time in turns, and the time at which each began."""

    def __init__(self, under_way_max: int = 2, kept_for_known: int = 0) -> None:
        self.handshakes = Handshakes(under_way_max, kept_for_known=kept_for_known)
        self.began: list[str] = []
        self.began_s: dict[str, float] = {}
        self.ended: list[str] = []
        self.under_way_max = 0
        self._under_way = 0

    async def shake(self, address: str, takes_s: float, *, known: bool = False) -> float:
        """Shakes hands; returns the seconds from its arrival to its end."""
        arrived_s = now_s()
        try:
            async with self.handshakes.turn(address, known=known):
                self.began.append(address)
                self.began_s[address] = now_s()
                self._under_way += 1
                self.under_way_max = max(self.under_way_max, self._under_way)
                try:
                    await asyncio.sleep(takes_s)
                finally:
                    self._under_way -= 1
        except TimeoutError:
            self.ended.append(address)
        return now_s() - arrived_s


def now_s() -> float:
    return asyncio.get_running_loop().time()


@in_exact_time
async def test_a_crowd_at_one_address_delays_no_other_address() -> None:
    line = Line()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(50):
            tasks.create_task(line.shake("crowd", 60))
        await asyncio.sleep(0)
        assert await line.shake("broker", 0.05) < 3
    assert line.began.index("broker") <= 4
    assert line.ended == ["crowd"] * 48
    assert line.under_way_max == 2


@in_exact_time
async def test_a_crowd_delays_no_later_connection_of_its_own_address() -> None:
    line = Line()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(300):
            tasks.create_task(line.shake("here", 60))
        await asyncio.sleep(0.5)
        assert await line.shake("here", 0.05) < 2


@in_exact_time
async def test_a_crowd_of_unknown_addresses_delays_no_known_address() -> None:
    """Turns by address alone would make a broker wait for all of them."""
    line = Line(under_way_max=8, kept_for_known=2)
    async with asyncio.TaskGroup() as tasks:
        strangers = [tasks.create_task(line.shake(f"stranger {number}", 600)) for number in range(500)]
        await asyncio.sleep(0.5)
        before = list(line.began)
        assert len(before) == 6, "room is reserved"
        for _ in range(20):
            await line.shake("broker", 0.05, known=True)
        assert line.began.count("broker") == 20
        assert line.began[: len(before) + 2] == [*before, "broker", "broker"]
        assert line.under_way_max <= 8
        for stranger in strangers:
            stranger.cancel()


@in_exact_time
async def test_a_crowd_of_known_addresses_delays_no_unknown_address() -> None:
    line = Line(under_way_max=4, kept_for_known=1)
    async with asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(line.shake(f"known {number}", 600, known=True))
        await asyncio.sleep(0.5)
        assert line.under_way_max == 4, "known ones may use all room"
        before = len(line.began)
        await line.shake("new broker", 0.05)
        assert line.began.index("new broker") <= before + 2
        assert line.under_way_max == 4


@pytest.mark.parametrize(("handshakes", "ended"), [(2, 0), (3, 1)])
@in_exact_time
async def test_a_slow_handshake_ends_after_its_time_only_if_another_one_waits(handshakes: int, ended: int) -> None:
    line = Line()
    took_s = await asyncio.gather(*(line.shake(f"peer {number}", 9) for number in range(handshakes)))
    assert len(line.ended) == ended
    assert took_s[0] == (pytest.approx(TURN_S, abs=0.02) if ended else 9)


@in_exact_time
async def test_handshakes_that_waited_begin_with_pauses_between_them() -> None:
    line = Line(under_way_max=4)
    await asyncio.gather(*(line.shake(f"peer {number}", 1) for number in range(4)))
    assert [began_s / PAUSE_S for began_s in line.began_s.values()] == pytest.approx([0, 1, 2, 3])


@in_exact_time
async def test_a_handshake_that_is_cancelled_while_it_waits_takes_no_turn() -> None:
    line = Line(under_way_max=1)
    first = asyncio.create_task(line.shake("a", 0.5))
    await asyncio.sleep(0.1)
    second = asyncio.create_task(line.shake("b", 600))
    third = asyncio.create_task(line.shake("c", 0.1))
    await asyncio.sleep(0.1)
    second.cancel()
    await asyncio.gather(first, third)
    assert line.began == ["a", "c"]
    assert line.began_s["c"] == pytest.approx(0.5)
