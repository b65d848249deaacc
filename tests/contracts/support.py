"""What the contract of the ZooKeeper port is written with: backends, sessions that record, hooks.

Sessions record what their callbacks were told, so that a test reads as: act, then look at ``events`` and ``states``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import pytest

from metadata_store.errors import (
    Code,
    ZkError,
)
from metadata_store.port import (
    ConnectionState,
    WatchEvent,
    WatchKind,
    Write,
    ZooKeeper,
)
from tests.polling import eventually

CONNECTED, SUSPENDED, LOST = ConnectionState.CONNECTED, ConnectionState.SUSPENDED, ConnectionState.LOST
CREATED, DELETED, CHANGED, CHILD = WatchKind.CREATED, WatchKind.DELETED, WatchKind.CHANGED, WatchKind.CHILD
CONNECT_S = 10.0


class Backend(Protocol):
    """One ZooKeeper whose sessions can be given faults."""

    def client(self, **options: Any) -> ZooKeeper: ...
    def suspend(self, zk: ZooKeeper) -> None: ...
    def resume(self, zk: ZooKeeper) -> None: ...
    def lose_reply(self, zk: ZooKeeper) -> None: ...
    def reply_with(self, zk: ZooKeeper, code: Code) -> None: ...
    async def expire(self, zk: ZooKeeper) -> None: ...


class Session:
    """A connected port with a record of everything it was told."""

    def __init__(self, zk: ZooKeeper) -> None:
        self.zk = zk
        self.events: list[WatchEvent] = []
        self.states: list[ConnectionState] = []
        self.told: list[tuple[str, ConnectionState]] = []
        zk.on_watch = self.events.append
        zk.on_state = self._state
        zk.on_state_thread = lambda state: self.told.append(("thread", state))

    def _state(self, state: ConnectionState) -> None:
        self.states.append(state)
        self.told.append(("loop", state))

    async def saw(self, *events: tuple[str, WatchKind]) -> None:
        """Waits until exactly these events have come, in any order, and forgets them."""
        wanted = sorted(WatchEvent(*event) for event in events)
        await eventually(lambda: len(self.events) >= len(wanted))
        assert sorted(self.events) == wanted
        self.events.clear()

    async def quiet(self) -> None:
        """No event is under way: whatever happened before would have come before this answer."""
        await self.zk.sync()
        assert self.events == []

    async def reaches(self, *states: ConnectionState) -> None:
        await eventually(lambda: self.states[-len(states) :] == list(states), within_s=20)


@asynccontextmanager
async def session(backend: Backend, **options: Any) -> AsyncIterator[Session]:
    found = Session(backend.client(**options))
    await found.zk.connect(CONNECT_S)
    try:
        yield found
    finally:
        await found.zk.close()


class Hooks:
    """Write hooks from two functions."""

    def __init__(self) -> None:
        self.seen: list[Sequence[Write]] = []
        self.raises_before: BaseException | None = None
        self.raises_after: BaseException | None = None
        self.gate: asyncio.Event | None = None

    async def before(self, ops: Sequence[Write]) -> None:
        self.seen.append(ops)
        if self.gate is not None:
            await self.gate.wait()
        if self.raises_before is not None:
            raise self.raises_before

    async def after(self, ops: Sequence[Write]) -> None:
        if self.raises_after is not None:
            raise self.raises_after


async def refused(call: Any, code: Code, path: str) -> None:
    with pytest.raises(ZkError) as error:
        await call
    assert (error.value.code, error.value.path) == (code, path)
