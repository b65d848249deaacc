"""The contract of the ZooKeeper port is written with these: backends, sessions that record callbacks, hooks.

A test acts, then compares the ``events`` and ``states`` of a session. Reads of what another session wrote follow a
``sync``: any server may be behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import pytest

from metadata_store.acl import ALL, READ, Acl
from metadata_store.errors import Code, ZkError
from metadata_store.port import ConnectionState, Node, WatchEvent, WatchKind, Write, ZooKeeper
from tests.kit.deadlines import eventually

CONNECTED, SUSPENDED, LOST = ConnectionState.CONNECTED, ConnectionState.SUSPENDED, ConnectionState.LOST
CREATED, DELETED, CHANGED, CHILD = WatchKind.CREATED, WatchKind.DELETED, WatchKind.CHANGED, WatchKind.CHILD
CONNECT_S = 30.0
OPEN = [Acl(ALL, "world", "anyone")]
ALL_READ = Acl(READ, "world", "anyone")


class Backend(Protocol):
    """One ZooKeeper whose sessions can be given faults. ``cut_off`` lasts beyond the session's time-out."""

    def client(self, **options: Any) -> ZooKeeper: ...
    def suspend(self, zk: ZooKeeper) -> None: ...
    def cut_off(self, zk: ZooKeeper) -> None: ...
    def resume(self, zk: ZooKeeper) -> None: ...
    def lose_reply(self, zk: ZooKeeper) -> None: ...
    def reply_with(self, zk: ZooKeeper, code: Code) -> None: ...
    async def expire(self, zk: ZooKeeper) -> None: ...


class Session:
    """A port with a record of its callbacks."""

    def __init__(self, zk: ZooKeeper) -> None:
        self.zk = zk
        self.events: list[WatchEvent] = []
        self.states: list[ConnectionState] = []
        self.calls: list[tuple[str, ConnectionState]] = []
        zk.on_watch = self.events.append
        zk.on_state = self._state
        zk.on_state_thread = lambda state: self.calls.append(("thread", state))

    def _state(self, state: ConnectionState) -> None:
        self.states.append(state)
        self.calls.append(("loop", state))

    async def node(self, path: str) -> Node:
        """Reads a znode that exists, after a sync."""
        await self.zk.sync()
        found = await self.zk.get(path)
        assert found is not None
        return found

    async def data(self, path: str) -> bytes | None:
        """Reads the data of a znode that exists, after a sync."""
        return (await self.node(path)).data

    async def names(self, path: str) -> list[str]:
        """Lists the children of a znode that exists, after a sync."""
        await self.zk.sync()
        found = await self.zk.children(path)
        assert found is not None
        return sorted(found[0])

    async def saw(self, *events: tuple[str, WatchKind]) -> None:
        """Waits until exactly these events have come, in any order, and forgets them."""
        wanted = sorted(WatchEvent(*event) for event in events)

        async def came() -> bool:
            await self.zk.sync()
            return len(self.events) >= len(wanted)

        await eventually(came)
        assert sorted(self.events) == wanted
        self.events.clear()

    async def quiet(self) -> None:
        """Syncs and expects no event: one that was under way would have come before the reply."""
        await self.zk.sync()
        assert self.events == []

    async def reaches(self, *states: ConnectionState) -> None:
        """Waits until these are the last states."""
        await eventually(lambda: self.states[-len(states) :] == list(states))

    async def reconnect(self, backend: Backend) -> None:
        """Loses the connection and gets it back."""
        backend.suspend(self.zk)
        backend.resume(self.zk)
        await self.reaches(SUSPENDED, CONNECTED)


@asynccontextmanager
async def session(backend: Backend, **options: Any) -> AsyncIterator[Session]:
    """Connects a session for the time of a block."""
    found = Session(backend.client(**options))
    await found.zk.connect(CONNECT_S)
    try:
        yield found
    finally:
        await found.zk.close()


class NthWrite:
    """Hooks that act before or after the n-th write (from 0); they count the writes under way."""

    def __init__(self, at: int, before: Callable[[], object] | None = None, after: BaseException | None = None) -> None:
        self.at, self.acts, self.raises = at, before, after
        self.count = self.under_way = self.most = 0
        self.writes: list[Sequence[Write]] = []

    async def before(self, ops: Sequence[Write]) -> None:
        """Acts before the n-th write."""
        number, self.count = self.count, self.count + 1
        self.writes.append(ops)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        if number == self.at and self.acts is not None:
            done = self.acts()
            if isinstance(done, Awaitable):
                await done

    async def after(self, ops: Sequence[Write]) -> None:
        """Raises after the n-th write."""
        self.under_way -= 1
        if self.raises is not None and self.writes[self.at] is ops:
            raise self.raises


def raising(error: BaseException) -> Callable[[], object]:
    """Returns an action of hooks that raises."""

    def act() -> object:
        raise error

    return act


async def refused(call: Awaitable[object], code: Code, path: str) -> None:
    """Expects that ZooKeeper refuses a call."""
    with pytest.raises(ZkError) as error:
        await call
    assert (error.value.code, error.value.path) == (code, path)
