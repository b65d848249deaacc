"""Where connections come in: counted before their TLS handshake, of which few are under way at a time."""

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

from brokers.listener.controller_listener import ControllerListener
from brokers.listener.handshakes import KEPT_FOR_KNOWN, UNDER_WAY_MAX, Handshakes
from brokers.listener.inbound import ListenerLimits
from brokers.security.callers import Callers, KnownBrokers, party
from brokers.security.tls import Tls
from tests.certificates import Authority
from tests.core.virtual_time import in_virtual_time
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
    """A connection that begins no handshake."""
    return socket.create_connection(("127.0.0.1", listener.port), 5, (address, 0))


def hung_up(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


async def greeted(listener: ControllerListener, tls: ssl.SSLContext, address: str = "127.0.0.1") -> None:
    """A connection through its handshake, which is asked for versions."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=tls, local_addr=(address, 0))
    writer.write(bytes.fromhex("0000000a0012000000000001ffff"))
    assert await reader.readexactly(8)
    writer.transport.abort()


@BOTH_LOOPS
def test_connections_are_counted_before_their_handshake_and_one_that_never_comes_has_an_end(
    run: Runner, tmp_path: Path
) -> None:
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
def test_a_crowd_without_handshakes_makes_room_for_those_that_come(run: Runner, tmp_path: Path) -> None:
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
def test_handshakes_that_strangers_never_finish_keep_no_broker_out(run: Runner, tmp_path: Path, stranger: str) -> None:
    """None of them has had its time before the test is over."""

    async def main() -> None:
        brokers = KnownBrokers()
        brokers.connected(AtBroker("127.0.0.3"))
        async with secured(tmp_path, Callers(brokers), frame_timeout_ms=600_000) as (listener, tls):
            listener._entrance._handshakes._turn_s = 600
            crowd = [silent(listener, stranger.format(1 + number)) for number in range(2 * UNDER_WAY_MAX)]
            strangers = listener._entrance._handshakes._unknown
            await eventually(lambda: len(strangers.under_way) == UNDER_WAY_MAX - KEPT_FOR_KNOWN)
            for _ in range(3):
                async with asyncio.timeout(20):
                    await greeted(listener, tls, "127.0.0.3")
            assert not any(map(hung_up, crowd)), "nobody had to give way"
            for connection in crowd:
                connection.close()

    run(main())


class AtBroker(asyncio.Transport):
    """A connection that the daemon made to a broker."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 9092)})


@BOTH_LOOPS
def test_what_is_no_handshake_ends_its_connection(run: Runner, tmp_path: Path) -> None:
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
def test_connections_of_one_machine_count_together(address: str, counts_as: str) -> None:
    assert party(address) == counts_as


# -- turns


class Line:
    """Those who wait for a turn, and when each began."""

    def __init__(self, under_way_max: int = 2, kept_for_known: int = 0) -> None:
        self.handshakes = Handshakes(under_way_max, kept_for_known=kept_for_known)
        self.began: list[str] = []
        self.ended: list[str] = []
        self.under_way_max = 0
        self._under_way = 0

    async def comes(self, address: str, takes_s: float, *, known: bool = False) -> None:
        try:
            async with self.handshakes.turn(address, known=known):
                self.began.append(address)
                self._under_way += 1
                self.under_way_max = max(self.under_way_max, self._under_way)
                await asyncio.sleep(takes_s)
        except TimeoutError:
            self.ended.append(address)
        finally:
            self._under_way -= 1


@in_virtual_time
async def test_a_crowd_at_one_address_keeps_no_other_waiting() -> None:
    line = Line()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(50):
            tasks.create_task(line.comes("crowd", 60))
        await asyncio.sleep(0)
        broker = tasks.create_task(line.comes("broker", 0.05))
        began_s = asyncio.get_running_loop().time()
        await broker
        assert asyncio.get_running_loop().time() - began_s < 3
    assert line.began.index("broker") <= 4
    assert line.ended == ["crowd"] * 48
    assert line.under_way_max == 2


@in_virtual_time
async def test_a_crowd_keeps_no_newcomer_at_its_own_address_waiting() -> None:
    line = Line()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(300):
            tasks.create_task(line.comes("here", 60))
        await asyncio.sleep(0.5)
        began_s = asyncio.get_running_loop().time()
        await line.comes("here", 0.05)
        assert asyncio.get_running_loop().time() - began_s < 2


@in_virtual_time
async def test_strangers_without_number_keep_no_known_address_waiting() -> None:
    """Each comes from an address of its own, so turns by address alone would make it wait for all of them."""
    line = Line(under_way_max=8, kept_for_known=2)
    async with asyncio.TaskGroup() as tasks:
        strangers = [tasks.create_task(line.comes(f"stranger {number}", 600)) for number in range(500)]
        await asyncio.sleep(0.5)
        before = list(line.began)
        assert len(before) == 6, "room is kept"
        for _ in range(20):
            await line.comes("broker", 0.05, known=True)
        assert line.began.count("broker") == 20
        assert line.began[: len(before) + 2] == [*before, "broker", "broker"]
        assert line.under_way_max <= 8
        for stranger in strangers:
            stranger.cancel()


@in_virtual_time
async def test_a_crowd_at_known_addresses_keeps_no_stranger_waiting() -> None:
    line = Line(under_way_max=4, kept_for_known=1)
    async with asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(line.comes(f"known {number}", 600, known=True))
        await asyncio.sleep(0.5)
        assert line.under_way_max == 4, "known ones may have all room"
        before = len(line.began)
        await line.comes("new broker", 0.05)
        assert line.began.index("new broker") <= before + 2
        assert line.under_way_max == 4


@in_virtual_time
async def test_a_slow_handshake_has_its_time_while_nobody_waits() -> None:
    line = Line()
    await asyncio.gather(line.comes("a", 9), line.comes("b", 9))
    assert line.ended == []


@in_virtual_time
async def test_whoever_gives_up_waiting_takes_no_turn() -> None:
    line = Line(under_way_max=1)
    first = asyncio.create_task(line.comes("a", 0.5))
    await asyncio.sleep(0.1)
    second = asyncio.create_task(line.handshakes._turn_of(line.handshakes._unknown, "b"))
    third = asyncio.create_task(line.comes("c", 0.1))
    await asyncio.sleep(0.1)
    second.cancel()
    await asyncio.wait({second})
    assert list(line.handshakes._unknown.waiting) == ["c"]
    await asyncio.gather(first, third)
    assert line.handshakes._unknown.waiting == {}
    assert line.began == ["a", "c"]
