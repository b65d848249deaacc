"""The adapter on kazoo's client without a connection: the test plays kazoo's thread, so every order can be had.

This is the one place that looks into kazoo's client.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar
from unittest import mock

import pytest
from kazoo.protocol.states import KeeperState

from metadata_store.kazoo_adapter import KazooZooKeeper, jute
from metadata_store.kazoo_adapter.call import Call
from metadata_store.kazoo_adapter.kazoo_client import Client
from metadata_store.kazoo_adapter.transport import Transport
from metadata_store.port import ConnectionState

T = TypeVar("T")
SESSION_MS = 18_000
CONNECT_S = 5.0
STAT = bytes(68)
"""Body of a reply with a stat of zeros."""
_HEAD = struct.Struct("!iBii")


class Header(NamedTuple):
    """Header of a reply."""

    xid: int
    zxid: int
    err: int


def now_s() -> float:
    """Returns the time of the loop."""
    return asyncio.get_running_loop().time()


async def turns(count: int = 5) -> None:
    """Lets the loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)


def multi_read_reply(*codes: int) -> bytes:
    """Encodes the reply to a MultiRead of znodes that cannot be read."""
    return b"".join(_HEAD.pack(-1, 0, code, code) for code in codes)


def multi_reply(opcode: int, body: bytes = STAT) -> bytes:
    """Encodes the reply to a multi of one operation."""
    return struct.pack("!iBi", opcode, 0, 0) + body


class Wire:
    """Kazoo's thread for the newest session of ``zk``. ``sent``: opcodes and bodies; ``cuts``: times of cuts."""

    def __init__(self, zk: KazooZooKeeper) -> None:
        self.zk = zk
        self.sent: list[tuple[int, bytes]] = []
        self.cuts: list[float] = []
        self.zxid = 100
        self._transport: Transport | None = None

    @property
    def transport(self) -> Transport:
        """The transport of the session, or of the last one."""
        self._transport = self.zk._transport or self._transport
        assert self._transport is not None
        return self._transport

    @property
    def client(self) -> Client:
        """Kazoo's client."""
        return self.transport._client

    @property
    def connection(self) -> Any:
        """Kazoo's connection."""
        return self.client._connection

    @property
    def queued(self) -> int:
        """Number of requests that wait to be sent."""
        return len(self.client._queue)

    @property
    def opens_no_other_session(self) -> bool:
        """Whether kazoo is kept from connecting again after the end of a session."""
        return bool(self.client._stopped.is_set())

    # -- states

    def enter(self, *states: str) -> None:
        """Has kazoo's thread enter states."""
        for state in states:
            self.client._session_callback(state)

    def up(self, *, session_id: int = 7, granted_ms: int = SESSION_MS) -> None:
        """Connects with a session."""
        client = self.client
        if client._state in (KeeperState.CLOSED, KeeperState.EXPIRED_SESSION, KeeperState.AUTH_FAILED):
            self.enter(KeeperState.CONNECTING)
        client.granted_ms, client._session_id = granted_ms, session_id
        self.connection._xid = 0
        self.enter(KeeperState.CONNECTED)

    async def reconnect(self, **granted: int) -> None:
        """Loses the connection and gets it back."""
        self.enter(KeeperState.CONNECTING)
        self.up(**granted)
        await turns()

    # -- requests

    async def begin(self, request: Coroutine[Any, Any, T], *, sends: bool = True) -> asyncio.Task[T]:
        """Begins a request, and writes it to the server where it ``sends``."""
        task = asyncio.ensure_future(request)
        await turns()
        if sends:
            self.write()
        return task

    def write(self) -> int:
        """Writes the queued requests to the server; returns how many are under way then."""
        connection = self.connection
        connection._read_sock = mock.Mock()
        connection._submit = lambda request, _timeout, _xid: self.sent.append((request.type, request.serialize()))
        connection._send_request(10.0, 10.0)
        return len(self.client._pending)

    def under_way(self) -> Call:
        """Returns the oldest request that waits for its reply."""
        call: Call = self.client._pending[0][1]
        return call

    def reply(self, body: bytes = b"", *, err: int = 0, zxid: int | None = None, xid: int | None = None) -> None:
        """Replies to the oldest request."""
        self.zxid += 1
        number = self.client._pending[0][2] if xid is None else xid
        self.connection._read_response(Header(number, self.zxid if zxid is None else zxid, err), body, 0)

    async def reply_all(self, body: bytes = b"", *, err: int = 0) -> None:
        """Replies until no request is left."""
        await turns()
        while self.zk._transport is not None and self.write():
            self.reply(body, err=err)
            await turns()

    def fire(self, kind: int, path: str) -> None:
        """Sends a watch event (1 created, 2 deleted, 3 changed, 4 child)."""
        self.connection._read_watch_event(struct.pack("!ii", kind, 3) + jute.text(path), 0)


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
async def no_thread(wire: Wire) -> AsyncIterator[None]:
    """Keeps kazoo from starting its thread, and notes when connections are cut."""

    def start(client: Client) -> None:
        client._stopped.clear()

    def cut(_: Client) -> None:
        wire.cuts.append(now_s())

    with (
        mock.patch.object(Client, "start_async", start),
        mock.patch.object(Client, "release"),
        mock.patch.object(Client, "cut", cut),
        mock.patch("metadata_store.kazoo_adapter.kazoo_client._Connection.wake"),
    ):
        yield


@asynccontextmanager
async def unconnected(hosts: str = "a:1", **options: Any) -> AsyncIterator[tuple[KazooZooKeeper, Wire, Recorded]]:
    """Yields an adapter that was not connected yet."""
    zk = KazooZooKeeper(hosts, **{"session_timeout_ms": SESSION_MS, "multi_read": True, **options})
    wire, recorded = Wire(zk), Recorded(zk)
    async with no_thread(wire):
        yield zk, wire, recorded


@asynccontextmanager
async def adapter(hosts: str = "a:1,b:2", **options: Any) -> AsyncIterator[tuple[KazooZooKeeper, Wire, Recorded]]:
    """Yields a connected adapter; nothing of the handshake is left in ``sent``."""
    async with unconnected(hosts, **options) as (zk, wire, recorded):
        await connect(wire)
        wire.client.servers.round([(host, host, port) for host, port in wire.client.hosts])
        wire.sent.clear()
        yield zk, wire, recorded


async def connect(wire: Wire, *, session_id: int = 7, granted_ms: int = SESSION_MS) -> None:
    """Connects ``wire.zk``."""
    connecting = await wire.begin(wire.zk.connect(CONNECT_S), sends=False)
    wire.up(session_id=session_id, granted_ms=granted_ms)
    await wire.reply_all()
    await connecting


def stuck(caplog: pytest.LogCaptureFixture) -> list[int]:
    """Returns the levels of the lines about threads that did not end with their session."""
    return [record.levelno for record in caplog.records if "is stuck in a connect" in record.getMessage()]
