"""A ZooKeeper that responds from a table, and brokers that respond at once: the rest is the daemon's own CPU.

Replies to bulk reads are made once per request and kept, so a second failover on the same table costs only the CPU
of the adapter and of the layers above it. Writes get the reply of an applied one and change nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, cast

from benchmarks.datasets import DataSet
from benchmarks.znodes import creates
from brokers.wire.versions import Api
from metadata_store import paths
from metadata_store.codecs.cluster import encode_broker
from metadata_store.errors import Code
from metadata_store.kazoo_adapter import KazooZooKeeper, jute
from metadata_store.kazoo_adapter.jute import Reply
from metadata_store.kazoo_adapter.transport import Transport
from metadata_store.port import ConnectionState, Create
from state_machines.model.types import Broker, Endpoint
from testing.znodes import PERSISTENT_WITH_PARENTS

BROKER_ZXID: Final = 100
_INT: Final = Struct("!i")
_HEAD: Final = Struct("!iBi")
_STAT: Final = Struct("!qqqqiiiqiiq")
_READ_HEAD: Final = 9
"""Bytes of a header in a MultiRead."""


class Table:
    """Znodes of a cluster by path, and the replies that were made so far."""

    def __init__(self, data: DataSet) -> None:
        self.topics = data.topics
        self.brokers = list(data.brokers)
        self.nodes: dict[bytes, bytes | None] = {path.encode(): None for path in PERSISTENT_WITH_PARENTS}
        for op in creates(data):
            assert isinstance(op, Create)
            self.nodes[op.path.encode()] = op.data
        for broker in self.brokers:
            registration = encode_broker(_broker(broker), timestamp_ms=0)
            self.nodes[paths.broker(broker).encode()] = registration
        self._replies: dict[bytes, bytes] = {}

    def forget_replies(self) -> None:
        """Drops the kept replies, because znodes changed."""
        self._replies.clear()

    def answer(self, opcode: int, body: bytes) -> Reply:
        """Returns the reply to one request."""
        if opcode == jute.MULTI_READ:
            kept = self._replies.get(body)
            if kept is None:
                kept = self._replies[body] = self._multi_read(body)
            return Reply(0, 1, kept, 0)
        if opcode in (jute.GET_DATA, jute.EXISTS, jute.GET_CHILDREN2):
            return self._read(opcode, body)
        if opcode == jute.MULTI:
            return Reply(0, 1, _HEAD.pack(jute.SET_DATA, 0, 0) + _stat(), 0)
        return Reply(0, 1, b"", 0)

    def _multi_read(self, body: bytes) -> bytes:
        parts: list[bytes] = []
        offset = 0
        while _HEAD.unpack_from(body, offset)[0] != -1:
            path, offset = _path(body, offset + _READ_HEAD)
            data = self.nodes.get(path, b"")
            if path not in self.nodes:
                parts.append(_HEAD.pack(-1, 0, Code.NO_NODE) + _INT.pack(Code.NO_NODE))
            else:
                parts += (_HEAD.pack(jute.GET_DATA, 0, 0), jute.blob(data), _stat())
            offset += 1
        return b"".join(parts)

    def _read(self, opcode: int, body: bytes) -> Reply:
        path, _ = _path(body, 0)
        if path not in self.nodes:
            return Reply(Code.NO_NODE, 1, b"", 0)
        if opcode == jute.GET_CHILDREN2:
            names = {paths.TOPICS: self.topics, paths.BROKER_IDS: list(map(str, self.brokers))}.get(path.decode(), [])
            return Reply(0, 1, _INT.pack(len(names)) + b"".join(map(jute.text, names)) + _stat(), 0)
        return Reply(0, 1, (jute.blob(self.nodes[path]) if opcode == jute.GET_DATA else b"") + _stat(), 0)


def _broker(broker: int) -> Broker:
    return Broker(broker, BROKER_ZXID, (Endpoint("INTERNAL", "127.0.0.1", 10_000 + broker),))


def _path(body: bytes, offset: int) -> tuple[bytes, int]:
    (length,) = _INT.unpack_from(body, offset)
    return body[offset + 4 : offset + 4 + length], offset + 4 + length


def _stat() -> bytes:
    return _STAT.pack(BROKER_ZXID, BROKER_ZXID, 0, 0, 0, 0, 0, 0, 0, 0, BROKER_ZXID)


class _CannedTransport:
    """Replaces :class:`metadata_store.kazoo_adapter.transport.Transport`."""

    state = ConnectionState.CONNECTED
    connected = True
    session_id = 1
    session_timeout_ms = 18_000
    last_zxid = 1
    connection = 1

    def __init__(self, table: Table) -> None:
        self._table = table

    def send(self, opcode: int, body: bytes, *, writes: bool) -> asyncio.Future[Reply]:
        """Delivers the reply in the next turn of the loop."""
        del writes
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        loop.call_soon(_finish, future, self._table.answer(opcode, body))
        return future


def _finish(future: asyncio.Future[Reply], reply: Reply) -> None:
    if not future.done():
        future.set_result(reply)


class CannedZooKeeper(KazooZooKeeper):
    """The real adapter without its session: it encodes requests and decodes replies as always."""

    def __init__(self, table: Table) -> None:
        super().__init__("127.0.0.1:1", session_timeout_ms=18_000, multi_read=True)
        self._transport = cast("Transport", _CannedTransport(table))


class NullBrokers:
    """A transport to brokers that respond at once with success."""

    def __init__(self) -> None:
        self.requests = 0
        self.bytes = 0

    async def connect(self, host: str, port: int, on_lost: Callable[[], None]) -> NullConnection:
        """Returns a connection at once."""
        return NullConnection(self)


class NullConnection:
    """A connection to such a broker."""

    closed = False

    def __init__(self, brokers: NullBrokers) -> None:
        self._brokers = brokers

    async def exchange(self, parts: Sequence[bytes]) -> bytes:
        """Counts a request, and responds in the next turn of the loop."""
        self._brokers.requests += 1
        self._brokers.bytes += sum(map(len, parts))
        head = parts[0]
        await asyncio.sleep(0)
        metadata = int.from_bytes(head[4:6], "big") == Api.UPDATE_METADATA
        return head[8:12] + b"\0" + b"\0\0" + (b"\0" if metadata else b"\1\0")

    def close(self) -> None:
        """Ends the connection."""
        self.closed = True
