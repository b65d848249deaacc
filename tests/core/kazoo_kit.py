"""The adapter on kazoo's client without a connection: the test plays kazoo's thread, so every order can be had."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from unittest import mock

from kazoo.protocol.states import KeeperState

from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.kazoo_adapter.kazoo_client import Call, Client
from metadata_store.port import ConnectionState

SESSION_MS = 18_000
CONNECT_S = 5.0


class Header(NamedTuple):
    """Header of an answer."""

    xid: int
    zxid: int
    err: int


class Wire:
    """What kazoo's thread would do for the newest session of ``zk``; ``sent``: opcodes and bodies, in order."""

    def __init__(self, zk: KazooZooKeeper) -> None:
        self.zk = zk
        self.sent: list[tuple[int, bytes]] = []
        self.cuts: list[float] = []
        self.zxid = 100

    @property
    def client(self) -> Client:
        """Kazoo's client."""
        assert self.zk._transport is not None
        return self.zk._transport._client

    def enter(self, state: str) -> None:
        """Kazoo's thread enters a state."""
        self.client._session_callback(state)

    def up(self, *, session_id: int = 7, granted_ms: int = SESSION_MS) -> None:
        """A connection with a session."""
        client = self.client
        if client._state in (KeeperState.CLOSED, KeeperState.EXPIRED_SESSION, KeeperState.AUTH_FAILED):
            self.enter(KeeperState.CONNECTING)
        client.granted_ms, client._session_id = granted_ms, session_id
        client._connection._xid = 0
        self.enter(KeeperState.CONNECTED)

    def write(self) -> int:
        """Writes what is queued; returns how many requests are under way then."""
        connection = self.client._connection
        connection._read_sock = mock.Mock()
        connection._submit = lambda request, _timeout, _xid: self.sent.append((request.type, request.serialize()))
        connection._send_request(10.0, 10.0)
        return len(self.client._pending)

    def under_way(self) -> Call:
        """The oldest request that waits for its answer."""
        call: Call = self.client._pending[0][1]
        return call

    def answer(self, body: bytes = b"", *, err: int = 0, zxid: int | None = None, xid: int | None = None) -> None:
        """Answers the oldest request."""
        self.zxid += 1
        at = self.client._pending[0][2] if xid is None else xid
        self.client._connection._read_response(Header(at, self.zxid if zxid is None else zxid, err), body, 0)

    async def answer_all(self, body: bytes = b"") -> None:
        """Answers until nothing is asked any more."""
        await turns()
        while self.zk._transport is not None and self.write():
            self.answer(body)
            await turns()


async def turns(count: int = 5) -> None:
    """Lets the loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)


class Recorded:
    """States and watch events, as the adapter reports them."""

    def __init__(self, zk: KazooZooKeeper) -> None:
        self.states: list[ConnectionState] = []
        self.flags: list[ConnectionState] = []
        self.events: list[tuple[str, str]] = []
        zk.on_state = self.states.append
        zk.on_state_thread = self.flags.append
        zk.on_watch = lambda event: self.events.append((event.path, event.kind.name))


@asynccontextmanager
async def no_thread() -> AsyncIterator[list[float]]:
    """Keeps kazoo from starting its thread; yields the times at which connections were cut."""
    cuts: list[float] = []

    def cut(_: Client) -> None:
        cuts.append(asyncio.get_running_loop().time())

    def start(client: Client) -> None:
        client._stopped.clear()

    with (
        mock.patch.object(Client, "start_async", start),
        mock.patch.object(Client, "release"),
        mock.patch.object(Client, "cut", cut),
        mock.patch("metadata_store.kazoo_adapter.kazoo_client._Connection.wake"),
    ):
        yield cuts


@asynccontextmanager
async def adapter(hosts: str = "a:1,b:2", **options: Any) -> AsyncIterator[tuple[KazooZooKeeper, Wire, Recorded]]:
    """A connected adapter; nothing of the handshake is left in ``sent``."""
    zk = KazooZooKeeper(hosts, **{"session_timeout_ms": SESSION_MS, "multi_read": True, **options})
    wire, recorded = Wire(zk), Recorded(zk)
    async with no_thread() as cuts:
        wire.cuts = cuts
        await begun(wire)
        wire.sent.clear()
        yield zk, wire, recorded


async def begun(wire: Wire, *, session_id: int = 7, granted_ms: int = SESSION_MS) -> None:
    """Connects ``wire.zk``."""
    connecting = asyncio.ensure_future(wire.zk.connect(CONNECT_S))
    await turns()
    wire.up(session_id=session_id, granted_ms=granted_ms)
    await wire.answer_all()
    await connecting
