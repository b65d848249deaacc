"""Implements the ZooKeeper port on a real ensemble."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from metadata_store.acl import Acl
from metadata_store.errors import Code, ZkError
from metadata_store.kazoo_adapter import jute
from metadata_store.kazoo_adapter.jute import Reply
from metadata_store.kazoo_adapter.limits import answers, multi_reads, single_reads, watch_chunks
from metadata_store.kazoo_adapter.session import Session, checked, of_session
from metadata_store.port import (
    IN_FLIGHT_MAX,
    READ_PATHS_MAX,
    Create,
    Created,
    Delete,
    Node,
    Op,
    OpResult,
    SetAcls,
    SetData,
    Stat,
    Write,
    surrounded,
)

JAVA_ANSWER_BYTES_MAX: Final = 1_048_575
"""Larger replies are refused by ZooKeeper's Java client as shipped (its own ``jute.maxbuffer``)."""
ENOUGH_BYTES: Final = 4 * 1024 * 1024

_log = logging.getLogger("regent.metadata_store")


class Listings:
    """Remembers the paths that it warned of: once each."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def read(self, path: str, size: int) -> None:
        """Warns where brokers could not read the children of ``path``, which came in ``size`` bytes."""
        if size <= JAVA_ANSWER_BYTES_MAX or path in self._warned:
            return
        self._warned.add(path)
        _log.warning(
            "the children of %s take %d bytes, and brokers list at most %d by default: start them with "
            "KAFKA_OPTS=-Djute.maxbuffer=%d before one of them gets the controller role",
            path,
            size,
            JAVA_ANSWER_BYTES_MAX,
            ENOUGH_BYTES,
        )


listings: Final = Listings()
"""Those of the process."""


SILENT_SESSIONS: Final = 1 / 3
"""Longest silence, in session timeouts: the rest of the lease is enough for a few other servers."""
LOOKS: Final = 4
"""Looks during that time. After this process itself stood still, one look is late, and the others wait for replies."""


class Leaving(Protocol):
    """A connection that can be given up."""

    @property
    def received(self) -> int:
        """Grows with each message of the server."""

    def leave(self, silent_s: float) -> bool:
        """Closes the connection, if there is another server: requests under way fail then."""


async def answered_or_left(connection: Leaving, answer: asyncio.Future[Reply], session_s: float) -> Reply:
    """Returns the reply to a heartbeat; raises NotConnected where the server was left."""
    received, silent = connection.received, 0
    try:
        while silent < LOOKS:
            await asyncio.wait({answer}, timeout=session_s * SILENT_SESSIONS / LOOKS)
            if answer.done():
                return answer.result()
            silent, received = (silent + 1 if connection.received == received else 0), connection.received
        connection.leave(session_s * SILENT_SESSIONS)
        return await answer
    finally:
        answer.cancel()


T = TypeVar("T")

SINGLE_READS_MAX: Final = 1_000
"""Single reads in flight where the server has no MultiRead."""


class KazooZooKeeper(Session):
    """The operations; :class:`metadata_store.port.ZooKeeper` has the contract of each."""

    # -- reads

    async def _read(self, opcode: int, path: str) -> Reply | None:
        """Sends a read; returns None where the znode does not exist."""
        reply = await self._open().send(opcode, jute.read(self._path(path)), writes=False)
        return None if reply.err == Code.NO_NODE else checked(reply, path)

    async def get(self, path: str) -> Node | None:
        """Returns data and stat, or None."""
        reply = await self._read(jute.GET_DATA, path)
        return jute.node_at(reply.buffer, reply.offset) if reply is not None else None

    async def exists(self, path: str) -> Stat | None:
        """Returns the stat, or None."""
        reply = await self._read(jute.EXISTS, path)
        return jute.stat_at(reply.buffer, reply.offset) if reply is not None else None

    async def children(self, path: str) -> tuple[list[str], Stat] | None:
        """Returns the names of the children and the stat, or None."""
        reply = await self._read(jute.GET_CHILDREN2, path)
        if reply is None:
            return None
        listings.read(path, len(reply.buffer))
        return jute.children_at(reply.buffer, reply.offset)

    async def read_many(self, paths: Sequence[str], *, paths_max: int = READ_PATHS_MAX) -> list[Node | Code]:
        """Reads many znodes in order."""
        found: list[Node | Code] = []
        async for reply, count in self._replies(paths, paths_max):
            jute.nodes_each(reply.buffer, reply.offset, count, found)
        return found

    async def read_decoded(
        self, paths: Sequence[str], decode: Callable[[bytes | None, int], T], *, paths_max: int = READ_PATHS_MAX
    ) -> list[T | Code]:
        """Reads many znodes in order, each as ``decode(data, version)``."""
        found: list[T | Code] = []
        async for reply, count in self._replies(paths, paths_max):
            jute.decode_each(reply.buffer, reply.offset, count, decode, found)
        return found

    async def _replies(self, paths: Sequence[str], paths_max: int) -> AsyncIterator[tuple[Reply, int]]:
        """Yields replies in the form of MultiRead, in order, each with the number of its paths."""
        transport = self._open()
        raw = self._raw(paths)
        send = partial(transport.send, writes=False)
        if await self._supports_multi_read(transport):
            async for reply, count in answers(send, multi_reads(raw, paths_max, self.request_bytes_max), IN_FLIGHT_MAX):
                yield checked(reply, paths[0]), count
        else:
            async for reply, count in answers(send, single_reads(raw), SINGLE_READS_MAX):
                yield jute.as_multi_read(of_session(reply)), count

    # -- watches

    async def watch(
        self, data: Sequence[str] = (), exists: Sequence[str] = (), children: Sequence[str] = (), *, since_zxid: int
    ) -> None:
        """Arms one-shot watches in bulk."""
        transport = self._open()
        send = partial(transport.send, writes=False)
        kinds = [[self._path(path) for path in paths] for paths in (data, exists, children)]
        requests = (
            (jute.SET_WATCHES, jute.set_watches(since_zxid, *chunk), 0)
            for chunk in watch_chunks(kinds, self.request_bytes_max)
        )
        async for reply, _ in answers(send, requests, IN_FLIGHT_MAX):
            checked(reply, "watches")

    # -- writes

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """Writes all operations or none; returns the result of each operation."""
        reply = await self._multi(ops)
        return jute.multi_results(reply, ops, self.chroot, self.session_id)

    async def apply(self, ops: Sequence[Op]) -> int:
        """Writes all operations or none; returns the zxid."""
        return (await self._multi(ops)).zxid

    async def _multi(self, ops: Sequence[Op]) -> Reply:
        body, first = jute.multi(ops, self.chroot, self.given_acls), ops[0].path if ops else "/"
        if len(body) > self.limits.write_bytes:
            raise ZkError(Code.TOO_BIG, first)

        async def write() -> Reply:
            reply = await self._send(jute.MULTI, body, first, writes=True)
            failed = jute.multi_failed(reply.buffer, reply.offset, ops)
            if failed is not None:
                raise failed
            return reply

        return await surrounded(self.hooks, ops, write)

    async def _write(self, opcode: int, body: bytes, op: Write) -> Reply:
        if len(body) > self.limits.write_bytes:
            raise ZkError(Code.TOO_BIG, op.path)

        async def write() -> Reply:
            return await self._send(opcode, body, op.path, writes=True)

        return await surrounded(self.hooks, (op,), write)

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        acl: Sequence[Acl] | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Created:
        """Creates a znode."""
        op = Create(path, data, ephemeral, sequential, tuple(acl) if acl is not None else None)
        reply = await self._write(jute.CREATE2, jute.create(op, self._path(path), self.given_acls), op)
        return jute.created_at(reply.buffer, reply.offset, self.chroot)[0]

    async def set(self, path: str, data: bytes | None, version: int) -> Stat:
        """Replaces the data."""
        op = SetData(path, data, version)
        reply = await self._write(jute.SET_DATA, jute.set_data(op, self._path(path)), op)
        return jute.stat_at(reply.buffer, reply.offset)

    async def delete(self, path: str, version: int) -> None:
        """Deletes a znode."""
        op = Delete(path, version)
        await self._write(jute.DELETE, jute.versioned(op, self._path(path)), op)

    async def set_acls(self, path: str, acls: Sequence[Acl], version: int) -> Stat:
        """Replaces the ACL list."""
        op = SetAcls(path, tuple(acls), version)
        reply = await self._write(jute.SET_ACL, jute.set_acl(acls, self._path(path), version), op)
        return jute.stat_at(reply.buffer, reply.offset)

    # -- the rest

    async def get_acls(self, path: str) -> tuple[list[Acl], Stat]:
        """Returns the ACL list and stat."""
        reply = await self._send(jute.GET_ACL, jute.text(self._path(path)), path)
        return jute.acls_at(reply.buffer, reply.offset)

    async def sync(self, path: str = "/") -> None:
        """Catches up with the ensemble's leader."""
        await self._send(jute.SYNC, jute.text(self._path(path)), path)

    async def heartbeat(self) -> None:
        """Sends a sync: unlike a read it needs the ensemble's leader, which ends sessions.

        Leaves a silent server in time.
        """
        transport = self._open()
        answer = transport.send(jute.SYNC, jute.text(self._path("/")), writes=False)
        checked(await answered_or_left(transport, answer, self.session_timeout_ms / 1000), "/")
