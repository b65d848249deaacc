"""Implements the ZooKeeper port on a :class:`testing.memory.MemoryServer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from metadata_store.acl import Acl
from metadata_store.errors import Code, ZkError
from metadata_store.port import (
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
)
from testing.memory.permissions import Identity
from testing.memory.session import MemorySession

T = TypeVar("T")


class MemoryZooKeeper(MemorySession):
    """The operations; :class:`metadata_store.port.ZooKeeper` has the contract of each."""

    # -- reads

    async def get(self, path: str) -> Node | None:
        """Returns data and stat, or None."""
        found = (await self.read_many([path]))[0]
        if isinstance(found, Node):
            return found
        if found is Code.NO_NODE:
            return None
        raise ZkError(found, path)

    async def exists(self, path: str) -> Stat | None:
        """Returns the stat, or None."""
        return await self._read(lambda identity: self._tree.exists(self._path(path), identity))

    async def children(self, path: str) -> tuple[list[str], Stat] | None:
        """Returns the names of the children and the stat, or None."""
        return await self._read(lambda identity: self._tree.children(self._path(path), identity))

    async def read_many(self, paths: Sequence[str], *, paths_max: int = READ_PATHS_MAX) -> list[Node | Code]:
        """Reads many znodes in order; ``paths_max`` of them are read in one turn."""
        found: list[Node | Code] = []
        self._admit()
        for start in range(0, len(paths), paths_max):
            chunk = [self._path(path) for path in paths[start : start + paths_max]]
            found += await self._read(partial(self._nodes, chunk))
        return found

    def _nodes(self, paths: Sequence[str], identity: Identity) -> list[Node | Code]:
        return self._tree.nodes(paths, identity)

    async def read_decoded(
        self, paths: Sequence[str], decode: Callable[[bytes | None, int], T], *, paths_max: int = READ_PATHS_MAX
    ) -> list[T | Code]:
        """Reads many znodes in order, each as ``decode(data, version)``."""
        found = await self.read_many(paths, paths_max=paths_max)
        return [decode(node.data, node.stat.version) if isinstance(node, Node) else node for node in found]

    async def get_acls(self, path: str) -> tuple[list[Acl], Stat]:
        """Returns the ACL list and stat."""
        return await self._read(lambda identity: self._tree.acls(self._path(path), identity))

    async def sync(self, path: str = "/") -> None:
        """Has the server catch up with the others' writes."""
        self._path(path)
        await self._read(lambda _: self.server.catch_up(self.session_id))

    async def heartbeat(self) -> None:
        """Syncs."""
        await self.sync("/")

    async def watch(
        self, data: Sequence[str] = (), exists: Sequence[str] = (), children: Sequence[str] = (), *, since_zxid: int
    ) -> None:
        """Arms one-shot watches in bulk."""
        rooted = [[self._path(path) for path in paths] for paths in (data, exists, children)]
        await self._read(lambda _: self.server.arm(self.session_id, *rooted, since_zxid=since_zxid))

    # -- writes

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """Writes all operations or none; returns the result of each operation."""
        return await self._write(ops, single=False)

    async def apply(self, ops: Sequence[Op]) -> int:
        """Writes all operations or none; returns the zxid."""
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
