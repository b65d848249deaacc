"""MemoryZooKeeper: the ZooKeeper port on a :class:`metadata_store.memory.MemoryServer`.

A request is carried out when it is made; its answer, like events and states, reaches the caller in a later turn of
the event loop, in order. There is no thread: ``on_state_thread`` is called where the fault is caused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec import structs

from metadata_store.acl import Acl
from metadata_store.errors import Code, ConnectFailed, MultiFailed, NotConnected, OutcomeUnknown, SessionLost, ZkError
from metadata_store.hooks import surrounded
from metadata_store.memory.server import MemoryServer
from metadata_store.memory.tree import Identity
from metadata_store.port import (
    READ_PATHS_MAX,
    WRITE_BYTES_MAX,
    ConnectionState,
    Create,
    Created,
    Delete,
    Node,
    Op,
    OpResult,
    SetAcls,
    SetData,
    Stat,
    WatchEvent,
    Write,
    WriteHooks,
)
from metadata_store.sizes import write_bytes

T = TypeVar("T")


class MemoryZooKeeper:
    """One session; see :class:`metadata_store.port.ZooKeeper` for what the methods promise."""

    def __init__(
        self,
        server: MemoryServer,
        *,
        session_timeout_ms: int = 6_000,
        credentials: str | None = None,
        chroot: str = "",
        create_chroot: bool = False,
        hooks: WriteHooks | None = None,
    ) -> None:
        self.on_watch: Callable[[WatchEvent], None] | None = None
        self.on_state: Callable[[ConnectionState], None] | None = None
        self.on_state_thread: Callable[[ConnectionState], None] | None = None
        self.hooks = hooks
        self.server = server
        self.session_timeout_ms = session_timeout_ms
        self.session_id = 0
        self.last_zxid = 0
        self.chroot = chroot
        self._create_chroot = create_chroot
        self._credentials = credentials
        self._link = ConnectionState.LOST
        self._told = ConnectionState.LOST
        self._closed = True
        self._items: deque[Callable[[], None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- session

    async def connect(self, timeout_s: float) -> None:
        """A new session."""
        if self._link is not ConnectionState.LOST:
            return
        self._loop = asyncio.get_running_loop()
        self.session_id = self.server.open(self, self._credentials)
        self.last_zxid = 0
        self._closed = False
        self._enter(ConnectionState.CONNECTED)
        try:
            await self._turn()
            if self.chroot and self.server.tree.stat(self.chroot) is None:
                self._make_chroot()
            await self.sync("/")
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
                self.server.write(self.session_id, [Create(path, None)], single=True)

    async def close(self) -> None:
        """Ends the session."""
        self._closed = True
        self.server.close(self.session_id)
        self._link = self._told = ConnectionState.LOST

    @property
    def state(self) -> ConnectionState:
        """CONNECTED only once ``on_state`` has been told so."""
        if self._link is ConnectionState.CONNECTED and self._told is not ConnectionState.CONNECTED:
            return ConnectionState.SUSPENDED
        return self._link

    # -- what the server does

    def event(self, event: WatchEvent) -> None:
        """A watch fired."""
        session = self.session_id
        self._hand_over(lambda: self._watch_fired(session, event))

    def dropped(self) -> None:
        """The connection is lost."""
        self._enter(ConnectionState.SUSPENDED)

    def restored(self) -> None:
        """The connection is back."""
        self._enter(ConnectionState.CONNECTED)

    def expired(self) -> None:
        """The session is over."""
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
        """Until everything that was handed over so far has been delivered."""
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

    async def _read(self, read: Callable[[Identity], T]) -> T:
        identity = self._admit()
        try:
            found = read(identity)
        except ZkError as error:
            raise ZkError(error.code, error.path[len(self.chroot) :]) from None
        zxid = self.server.tree.zxid
        await self._turn()
        self.last_zxid = max(self.last_zxid, zxid)
        return found

    async def _write(self, ops: Sequence[Write], *, single: bool) -> list[OpResult]:
        if write_bytes(ops) > WRITE_BYTES_MAX:
            raise ZkError(Code.TOO_BIG, ops[0].path)
        return await surrounded(self.hooks, ops, lambda: self._submit(ops, single))

    async def _submit(self, ops: Sequence[Write], single: bool) -> list[OpResult]:
        self._admit()
        rooted = [structs.replace(op, path=self._path(op.path)) for op in ops] if self.chroot else ops
        try:
            results = self.server.write(self.session_id, rooted, single=single)
        except MultiFailed as failed:
            raise MultiFailed(failed.index, failed.codes, ops[failed.index].path) from None
        except ZkError as error:
            raise ZkError(error.code, ops[0].path) from None
        finally:
            zxid = self.server.tree.zxid
            await self._turn()
            self.last_zxid = max(self.last_zxid, zxid)
        if results is None:
            raise OutcomeUnknown("connection lost before the answer")
        return [self._unrooted(result) for result in results]

    def _unrooted(self, result: OpResult) -> OpResult:
        if self.chroot and isinstance(result, Created):
            return Created(result.path[len(self.chroot) :], result.stat)
        return result

    # -- reads

    async def get(self, path: str) -> Node | None:
        """Data and stat, or None."""
        found = (await self.read_many([path]))[0]
        if isinstance(found, Node):
            return found
        if found is Code.NO_NODE:
            return None
        raise ZkError(found, path)

    async def exists(self, path: str) -> Stat | None:
        """Stat, or None."""
        return await self._read(lambda identity: self.server.tree.exists(self._path(path), identity))

    async def children(self, path: str) -> tuple[list[str], Stat] | None:
        """Names of the children and the stat, or None."""
        return await self._read(lambda identity: self.server.tree.children(self._path(path), identity))

    async def read_many(self, paths: Sequence[str], *, paths_max: int = READ_PATHS_MAX) -> list[Node | Code]:
        """Many znodes in order; ``paths_max`` of them are read in one turn."""
        found: list[Node | Code] = []
        self._admit()
        for start in range(0, len(paths), paths_max):
            chunk = [self._path(path) for path in paths[start : start + paths_max]]
            found += await self._read(partial(self.server.tree.nodes, chunk))
        return found

    async def read_decoded(
        self, paths: Sequence[str], decode: Callable[[bytes | None, int], T], *, paths_max: int = READ_PATHS_MAX
    ) -> list[T | Code]:
        """Many znodes in order, each as ``decode(data, version)``."""
        found = await self.read_many(paths, paths_max=paths_max)
        return [decode(node.data, node.stat.version) if isinstance(node, Node) else node for node in found]

    async def get_acls(self, path: str) -> tuple[list[Acl], Stat]:
        """ACL list and stat."""
        return await self._read(lambda identity: self.server.tree.acls(self._path(path), identity))

    async def sync(self, path: str = "/") -> None:
        """A turn: this server is never behind."""
        await self._read(lambda _: self._path(path))

    async def heartbeat(self) -> None:
        """A turn."""
        await self.sync("/")

    async def watch(
        self, data: Sequence[str] = (), exists: Sequence[str] = (), children: Sequence[str] = (), *, since_zxid: int
    ) -> None:
        """Arms one-shot watches in bulk."""
        rooted = [[self._path(path) for path in paths] for paths in (data, exists, children)]
        self._admit()
        self.server.arm(self.session_id, *rooted, since_zxid=since_zxid)
        await self.sync("/")

    # -- writes

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """All or nothing, with the result of each operation."""
        return await self._write(ops, single=False)

    async def apply(self, ops: Sequence[Op]) -> int:
        """All or nothing, with the zxid."""
        await self._write(ops, single=False)
        return self.last_zxid

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
        [created] = await self._write([op], single=True)
        assert isinstance(created, Created)
        return created

    async def set(self, path: str, data: bytes | None, version: int) -> Stat:
        """Replaces the data."""
        return await self._stat_of(SetData(path, data, version))

    async def set_acls(self, path: str, acls: Sequence[Acl], version: int) -> Stat:
        """Replaces the ACL list."""
        return await self._stat_of(SetAcls(path, tuple(acls), version))

    async def _stat_of(self, op: SetData | SetAcls) -> Stat:
        [stat] = await self._write([op], single=True)
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int) -> None:
        """Deletes a znode."""
        await self._write([Delete(path, version)], single=True)
