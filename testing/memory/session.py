"""Plays the session of :class:`testing.memory.MemoryZooKeeper`: connecting, ending, requests and replies.

A request is carried out when it is made. Its reply, like events and states, reaches the caller in a later turn of the
event loop, in order. There is no thread: ``on_state_thread`` is called where the fault is caused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec import structs

from metadata_store.acl import default_acls
from metadata_store.errors import (
    TROUBLE,
    TROUBLE_PAUSE_S,
    Code,
    ConnectFailed,
    MultiFailed,
    NotConnected,
    OutcomeUnknown,
    SessionLost,
    ZkError,
    trouble,
)
from metadata_store.fencing.bounds import write_bytes
from metadata_store.kazoo_adapter import jute
from metadata_store.own import NONE, OwnAcls, given_acls, identities_of
from metadata_store.port import (
    REQUEST_BYTES_MAX,
    WRITE_BYTES_MAX,
    ConnectionState,
    Create,
    Created,
    OpResult,
    SetAcls,
    WatchEvent,
    Write,
    WriteHooks,
    surrounded,
)
from testing.memory.permissions import Identity
from testing.memory.server import MemoryServer
from testing.memory.tree import Tree

T = TypeVar("T")


class MemorySession:
    """One session with a :class:`testing.memory.MemoryServer`, without the operations on znodes."""

    def __init__(
        self,
        server: MemoryServer,
        *,
        session_timeout_ms: int = 6_000,
        credentials: str | None = None,
        chroot: str = "",
        create_chroot: bool = False,
        hooks: WriteHooks | None = None,
        set_acl: bool = False,
        own_acls: OwnAcls = NONE,
    ) -> None:
        self.on_watch: Callable[[WatchEvent], None] | None = None
        self.on_state: Callable[[ConnectionState], None] | None = None
        self.on_state_thread: Callable[[ConnectionState], None] | None = None
        self.hooks = hooks
        self.server = server
        self.session_timeout_ms = session_timeout_ms
        self.session_id = 0
        self.peer = ""
        self.last_zxid = 0
        self.chroot = chroot
        self.set_acl = set_acl
        self.own_acls = own_acls
        self.identities = identities_of(credentials)
        self._create_chroot = create_chroot
        self._credentials = credentials
        self._link = ConnectionState.LOST
        self._told = ConnectionState.LOST
        self._closed = True
        self._items: deque[Callable[[], None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- session

    async def connect(self, timeout_s: float) -> None:
        """Opens a session."""
        if self._link is not ConnectionState.LOST:
            return
        self._loop = asyncio.get_running_loop()
        self.session_id = self.server.open(self, self._credentials, self.session_timeout_ms / 1000)
        self.peer = "memory:2181"
        self.last_zxid = 0
        self._closed = False
        self._enter(ConnectionState.CONNECTED)
        try:
            await self._turn()
            if self.chroot and self.server.tree.stat(self.chroot) is None:
                self._make_chroot()
            self.last_zxid = self.server.tree.zxid
        except BaseException:
            await self.close()
            raise

    def _make_chroot(self) -> None:
        if not self._create_chroot:
            raise ConnectFailed(f"the chroot {self.chroot} does not exist: correct it, or start a broker with it once")
        parts = self.chroot.strip("/").split("/")
        for depth in range(len(parts)):
            path = "/" + "/".join(parts[: depth + 1])
            if self.server.tree.stat(path) is None:
                self.server.write(
                    self.session_id, [Create(path, None, acl=default_acls(path, secured=self.set_acl))], single=True
                )

    async def close(self) -> None:
        """Ends the session."""
        self._closed = True
        self.server.close(self.session_id)
        self._link = self._told = ConnectionState.LOST

    def abandon(self) -> None:
        """Ends as a process that was killed: nothing is called back, and the session lives until its time-out."""
        self._closed, self.on_state_thread = True, None
        self.server.cut_off(self.session_id)
        self._link = self._told = ConnectionState.LOST

    @property
    def state(self) -> ConnectionState:
        """CONNECTED only once ``on_state`` was called with it."""
        if self._link is ConnectionState.CONNECTED and self._told is not ConnectionState.CONNECTED:
            return ConnectionState.SUSPENDED
        return self._link

    @property
    def request_bytes_max(self) -> int:
        """The usual size of a batched request."""
        return REQUEST_BYTES_MAX

    @property
    def write_bytes_max(self) -> int:
        """The usual size of a write."""
        return WRITE_BYTES_MAX

    # -- calls of the server

    def event(self, event: WatchEvent) -> None:
        """Hands a watch event over."""
        session = self.session_id
        self._hand_over(lambda: self._watch_fired(session, event))

    def dropped(self) -> None:
        """Hands over that the connection is lost."""
        self._enter(ConnectionState.SUSPENDED)

    def restored(self) -> None:
        """Hands over that the connection is back."""
        self._enter(ConnectionState.CONNECTED)

    def expired(self) -> None:
        """Hands over that the session is over."""
        self._enter(ConnectionState.LOST)

    def _enter(self, state: ConnectionState) -> None:
        self._link = state
        if state is not ConnectionState.CONNECTED:
            self._told = state
            if self.on_state_thread is not None:
                self.on_state_thread(state)
        session = self.session_id
        self._hand_over(lambda: self._state_changed(session, state))

    def _present(self, session: int) -> bool:
        return session == self.session_id and not self._closed

    def _state_changed(self, session: int, state: ConnectionState) -> None:
        if self._present(session):
            self._told = state
            if self.on_state is not None:
                self.on_state(state)

    def _watch_fired(self, session: int, event: WatchEvent) -> None:
        if self._present(session) and self.on_watch is not None:
            self.on_watch(WatchEvent(event.path[len(self.chroot) :] or "/", event.kind))

    def _hand_over(self, item: Callable[[], None]) -> None:
        assert self._loop is not None
        self._items.append(item)
        self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        while self._items:
            self._items.popleft()()

    # -- one request

    async def _turn(self) -> None:
        """Waits until everything that was handed over so far has been delivered."""
        assert self._loop is not None
        turned: asyncio.Future[None] = self._loop.create_future()
        self._hand_over(lambda: None if turned.done() else turned.set_result(None))
        await turned

    def _admit(self) -> Identity:
        if self._link is ConnectionState.LOST:
            raise SessionLost("no ZooKeeper session: nothing was sent")
        if self.state is not ConnectionState.CONNECTED:
            raise NotConnected("not connected to ZooKeeper: nothing was sent")
        return self.server.identity(self.session_id)

    def _path(self, path: str) -> str:
        if not path.startswith("/"):
            raise ValueError(f"the path {path!r} does not begin with a slash")
        return (self.chroot + path if path != "/" else self.chroot) or "/"

    @property
    def _tree(self) -> Tree:
        """The znodes as the session's server has them."""
        return self.server.tree_of(self.session_id)

    async def _arrive(self) -> Identity:
        """Sends a request; other clients may act before it is carried out."""
        self._admit()
        await self.server.arrives(self.session_id)
        return self._admit()

    @staticmethod
    async def _fail(code: Code, request: str, *, writes: bool) -> None:
        """Raises the error for a code that a test has the server reply."""
        if code in TROUBLE:
            await asyncio.sleep(TROUBLE_PAUSE_S)
            raise trouble(code, request, writes=writes)
        raise ZkError(code, request)

    async def _read(self, read: Callable[[Identity], T]) -> T:
        identity = await self._arrive()
        if (code := self.server.code_of(self.session_id)) is not None:
            await self._fail(code, "a read", writes=False)
        try:
            found = read(identity)
        except ZkError as error:
            raise ZkError(error.code, error.path[len(self.chroot) :]) from None
        zxid = self._tree.zxid
        await self._turn()
        self.last_zxid = max(self.last_zxid, zxid)
        return found

    async def _write(self, ops: Sequence[Write], *, single: bool) -> list[OpResult]:
        if write_bytes(ops) > self.write_bytes_max // 2 and self._sent_bytes(ops) > self.write_bytes_max:
            raise ZkError(Code.TOO_BIG, ops[0].path)
        return await surrounded(self.hooks, ops, lambda: self._submit(ops, single))

    def _sent_bytes(self, ops: Sequence[Write]) -> int:
        """Returns the bytes that a client sends."""
        sent = [op for op in ops if not isinstance(op, SetAcls)]
        return len(jute.multi(sent, self.chroot, partial(given_acls, own=self.own_acls, secured=self.set_acl)))

    async def _submit(self, ops: Sequence[Write], single: bool) -> list[OpResult]:
        await self._arrive()
        code = self.server.code_of(self.session_id)
        if code is not None and not self.server.carries_out(self.session_id):
            await self._fail(code, "a write", writes=True)
        listed = [self._with_acl(op) for op in ops] if self.set_acl or self.own_acls else ops
        rooted = [structs.replace(op, path=self._path(op.path)) for op in listed] if self.chroot else listed
        try:
            results = self.server.write(self.session_id, rooted, single=single)
        except MultiFailed as failed:
            raise MultiFailed(failed.index, failed.codes, ops[failed.index].path) from None
        except ZkError as error:
            raise ZkError(error.code, ops[0].path) from None
        finally:
            zxid = self._tree.zxid
            await self._turn()
            self.last_zxid = max(self.last_zxid, zxid)
        if code is not None:
            await self._fail(code, "a write", writes=True)
        if results is None:
            raise OutcomeUnknown("connection lost before the reply")
        return [self._unrooted(result) for result in results]

    def _with_acl(self, op: Write) -> Write:
        if not isinstance(op, Create) or op.acl is not None:
            return op
        return structs.replace(op, acl=given_acls(op.path, self.own_acls, secured=self.set_acl))

    def _unrooted(self, result: OpResult) -> OpResult:
        if self.chroot and isinstance(result, Created):
            return Created(result.path[len(self.chroot) :], result.stat)
        return result
