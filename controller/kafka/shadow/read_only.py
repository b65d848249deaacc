"""Wraps a ZooKeeper port so that it cannot write: the shadow cannot change the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from metadata_store.acl import Acl
from metadata_store.errors import Code
from metadata_store.own import Identities, OwnAcls
from metadata_store.port import (
    READ_PATHS_MAX,
    ConnectionState,
    Created,
    Node,
    Op,
    OpResult,
    Stat,
    WatchEvent,
    WriteHooks,
    ZooKeeper,
)

T = TypeVar("T")


class WriteRefused(RuntimeError):
    """A write through a read-only port, which was not sent."""

    def __init__(self, operation: str, path: str) -> None:
        super().__init__(f"{operation} of {path} refused: a shadow never writes. Run without --shadow to take the role")


class ReadOnly:
    """``zk`` without its writes: each raises :class:`WriteRefused`. Delegates reads, watches and the session."""

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk = zk

    # -- the session

    @property
    def on_watch(self) -> Callable[[WatchEvent], None] | None:
        """Delegates to the port."""
        return self._zk.on_watch

    @on_watch.setter
    def on_watch(self, called: Callable[[WatchEvent], None] | None) -> None:
        self._zk.on_watch = called

    @property
    def on_state(self) -> Callable[[ConnectionState], None] | None:
        """Delegates to the port."""
        return self._zk.on_state

    @on_state.setter
    def on_state(self, called: Callable[[ConnectionState], None] | None) -> None:
        self._zk.on_state = called

    @property
    def on_state_thread(self) -> Callable[[ConnectionState], None] | None:
        """Delegates to the port."""
        return self._zk.on_state_thread

    @on_state_thread.setter
    def on_state_thread(self, called: Callable[[ConnectionState], None] | None) -> None:
        self._zk.on_state_thread = called

    @property
    def hooks(self) -> WriteHooks | None:
        """Delegates to the port; reads do not call them."""
        return self._zk.hooks

    @hooks.setter
    def hooks(self, hooks: WriteHooks | None) -> None:
        self._zk.hooks = hooks

    @property
    def set_acl(self) -> bool:
        """Delegates to the port; nothing is created here."""
        return self._zk.set_acl

    @property
    def own_acls(self) -> OwnAcls:
        """Delegates to the port; nothing is created here."""
        return self._zk.own_acls

    @property
    def identities(self) -> Identities:
        """Delegates to the port."""
        return self._zk.identities

    async def connect(self, timeout_s: float) -> None:
        """Opens a session."""
        await self._zk.connect(timeout_s)

    async def close(self) -> None:
        """Ends the session."""
        await self._zk.close()

    @property
    def state(self) -> ConnectionState:
        """Delegates to the port."""
        return self._zk.state

    @property
    def request_bytes_max(self) -> int:
        """Delegates to the port."""
        return self._zk.request_bytes_max

    @property
    def write_bytes_max(self) -> int:
        """Delegates to the port."""
        return self._zk.write_bytes_max

    @property
    def session_id(self) -> int:
        """Delegates to the port."""
        return self._zk.session_id

    @property
    def session_timeout_ms(self) -> int:
        """Delegates to the port."""
        return self._zk.session_timeout_ms

    @property
    def peer(self) -> str:
        """Delegates to the port."""
        return self._zk.peer

    @property
    def last_zxid(self) -> int:
        """Delegates to the port."""
        return self._zk.last_zxid

    # -- reads

    async def get(self, path: str) -> Node | None:
        """Reads data and stat, or None."""
        return await self._zk.get(path)

    async def exists(self, path: str) -> Stat | None:
        """Reads the stat, or None."""
        return await self._zk.exists(path)

    async def children(self, path: str) -> tuple[list[str], Stat] | None:
        """Reads the names of the children and the stat, or None."""
        return await self._zk.children(path)

    async def read_many(self, paths: Sequence[str], *, paths_max: int = READ_PATHS_MAX) -> list[Node | Code]:
        """Reads many znodes in order."""
        return await self._zk.read_many(paths, paths_max=paths_max)

    async def read_decoded(
        self, paths: Sequence[str], decode: Callable[[bytes | None, int], T], *, paths_max: int = READ_PATHS_MAX
    ) -> list[T | Code]:
        """Reads many znodes in order, each as ``decode(data, version)``."""
        return await self._zk.read_decoded(paths, decode, paths_max=paths_max)

    async def watch(
        self, data: Sequence[str] = (), exists: Sequence[str] = (), children: Sequence[str] = (), *, since_zxid: int
    ) -> None:
        """Arms one-shot watches in bulk."""
        await self._zk.watch(data, exists, children, since_zxid=since_zxid)

    async def get_acls(self, path: str) -> tuple[list[Acl], Stat]:
        """Reads ACL list and stat."""
        return await self._zk.get_acls(path)

    async def sync(self, path: str = "/") -> None:
        """Catches up with the ensemble's leader."""
        await self._zk.sync(path)

    async def heartbeat(self) -> None:
        """Sends a cheap request."""
        await self._zk.heartbeat()

    # -- writes

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """Raises :class:`WriteRefused`."""
        _refuse("multi", ops)

    async def apply(self, ops: Sequence[Op]) -> int:
        """Raises :class:`WriteRefused`."""
        _refuse("multi", ops)

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        acl: Sequence[Acl] | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Created:
        """Raises :class:`WriteRefused`."""
        raise WriteRefused("creation", path)

    async def set(self, path: str, data: bytes | None, version: int) -> Stat:
        """Raises :class:`WriteRefused`."""
        raise WriteRefused("rewrite", path)

    async def delete(self, path: str, version: int) -> None:
        """Raises :class:`WriteRefused`."""
        raise WriteRefused("deletion", path)

    async def set_acls(self, path: str, acls: Sequence[Acl], version: int) -> Stat:
        """Raises :class:`WriteRefused`."""
        raise WriteRefused("change of the ACLs", path)


def _refuse(operation: str, ops: Sequence[Op]) -> NoReturn:
    raise WriteRefused(operation, ops[0].path if ops else "nothing")
