"""Connections that end before anybody has served them: none leaves its socket open."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from admin.listener import AdminListener
from admin.streams import Watched
from brokers.listener.connection_slots import ConnectionSlot, ConnectionSlots
from brokers.listener.entrance import Entrance
from tests.kit.admin_kit import Addresses, FakeController
from tests.kit.polling import eventually

Runner = Callable[[Coroutine[object, object, None]], None]
Hook = Callable[[ConnectionSlot], object]
BOTH_LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
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
