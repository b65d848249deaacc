"""Answers by znodes of regions in transition, on a ZooKeeper session of the server's own.

This is the side of a server. What it creates its own identity may read and write; the daemon deletes it by its right on
the folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from metadata_store.acl import READ, WRITE, Acl
from metadata_store.catalog.unassigned import (
    UnreadableNode,
    decode,
    encode,
    folder_of,
    mark_of,
    marks_of,
    path_of,
    server_path,
)
from metadata_store.errors import Code, MultiFailed, NotConnected, OutcomeUnknown, SessionLost, ZkError
from metadata_store.gathered import Gathered
from metadata_store.port import ANY_VERSION, Create, Delete, SetData, Stat, ZooKeeper
from metadata_store.port import Node as Znode
from regent_agent.protocol import Close, Open
from state_machines.regions.unassigned import Asked, Node, NodeState, ServerAct, seen_by, server_act

AGAIN_S: Final = 0.05
"""Pause until a znode is read again: there is no connection, another write was faster, or an open has to end first."""
AWAY_S: Final = 1.0
"""Pause until the znode of the process is made again: its folder comes with the first daemon."""
IDENTITY: Final = "give this server the identity that regions.servers_identity of its daemons names"
MARKS_S: Final = 0.2
"""Pause in which marks gather that are to be deleted."""
OWN: Final = (Acl(READ | WRITE, "auth", ""), Acl(READ, "world", "anyone"))
"""What a server that has proven an identity creates."""
RACED: Final = frozenset({Code.BAD_VERSION, Code.NODE_EXISTS, Code.NO_NODE})
TO: Final = {
    ServerAct.TO_OPENING: NodeState.OPENING,
    ServerAct.TO_OPENED: NodeState.OPENED,
    ServerAct.TO_CLOSED: NodeState.CLOSED,
}


class NodeAnswers:
    """Implements :class:`regent_agent.answers.Answers`. ``process``: name and incarnation of the server.

    ``zk`` may get a new session; an answer that was begun in the one before has no certain outcome.
    ``refused`` counts what no rule allowed.
    """

    def __init__(self, zk: ZooKeeper, root: str, process: Callable[[], tuple[str, int]]) -> None:
        self._zk, self._root, self._process = zk, root, process
        self._gathered = Gathered(zk)
        self._made: dict[int, tuple[int, int]] = {}
        """The znodes that opens have begun with, by region: token, and the transaction that made it.

        Versions begin anew with each znode, so a write can meet another one than was read.
        """
        self._marked: set[tuple[int, int]] = set()
        """Region and token of the opens that may have made a mark."""
        self._marks: list[tuple[int, str]] = []
        """Marks to be deleted, and the sessions that they are of."""
        self._forgetting: asyncio.Task[None] | None = None
        self.refused = 0

    async def appears(self) -> None:
        """Makes the ephemeral znode of the process, in each session anew; that of a former session makes way.

        It waits for the first daemon of the domain, which makes the folder.
        """
        while True:
            if await self._is_there():
                return
            await asyncio.sleep(AWAY_S)

    async def _is_there(self) -> bool:
        """Makes the znode of the process where it is not there; returns whether it is. Raises ``SessionLost``."""
        path = server_path(self._root, *self._process())
        try:
            await self._zk.create(path, None, ephemeral=True, acl=OWN if self._zk.identities else None)
            return True
        except SessionLost:
            raise
        except (NotConnected, OutcomeUnknown):
            return False
        except ZkError as error:
            if error.code is Code.NO_AUTH:
                raise PermissionError(f"{error}: {IDENTITY}") from error
            if error.code not in (Code.NODE_EXISTS, Code.NO_NODE):
                raise
        try:
            stat = await self._zk.exists(path)
            if stat is not None and stat.ephemeral_owner != self._zk.session_id:
                await self._zk.delete(path, stat.version)  # of a former session
                stat = None
            return stat is not None
        except SessionLost:
            raise
        except (NotConnected, OutcomeUnknown):
            return False
        except ZkError as error:
            if error.code not in RACED:
                raise
            return False

    async def begins(self, operation: Open | Close) -> bool:
        """Moves the znode to OPENING, or creates it as CLOSING."""
        self._made.pop(operation.region, None)
        asked = Asked.OPEN if isinstance(operation, Open) else Asked.CLOSE
        return await self._does(asked, operation)

    async def opened(self, operation: Open, sequence: int) -> bool:
        """Moves the znode to OPENED, and makes a mark with it, which tells that after a lost response."""
        try:
            return await self._does(Asked.OPEN_DONE, operation, sequence)
        finally:
            self._made.pop(operation.region, None)
            if (marked := (operation.region, operation.token)) in self._marked:
                self._marked.discard(marked)
                self._marks.append((self._zk.session_id, mark_of(self._root, *marked)))
                if self._forgetting is None or self._forgetting.done():
                    self._forgetting = asyncio.create_task(self._forget_marks(), name="marks")

    async def _forget_marks(self) -> None:
        """Deletes marks that are not needed any more; each goes with the session at the latest."""
        while self._marks:
            await asyncio.sleep(MARKS_S)
            marks, self._marks = [one for one in self._marks if one[0] == self._zk.session_id], []
            writes = (self._gathered.multi([Delete(mark, ANY_VERSION)]) for _, mark in marks)
            ends = await asyncio.gather(*writes, return_exceptions=True)
            self._marks += [one for one, end in zip(marks, ends, strict=True) if _may_go_again(end)]

    async def closed(self, operation: Close) -> bool:
        """Moves the znode to CLOSED."""
        return await self._does(Asked.CLOSE_DONE, operation)

    async def _does(self, asked: Asked, operation: Open | Close, sequence: int = 0) -> bool:
        """Reads, judges and writes, until one of it says what came out."""
        session = self._zk.session_id
        while True:
            if self._zk.session_id != session:  # the mark of a lost response went with it
                raise SessionLost(f"the session of region {operation.region}'s answer is over")
            try:
                found = await self._once(asked, operation, sequence)
            except SessionLost:
                raise
            except (NotConnected, OutcomeUnknown):
                found = None
            except ZkError as error:
                if error.code is Code.NO_AUTH:
                    raise PermissionError(f"{error}: {IDENTITY}") from error
                if error.code not in RACED:
                    raise
                found = None
            if not found:
                await self._find_folder()
            if found is not None:
                self.refused += not found
                return found
            await asyncio.sleep(AGAIN_S)

    async def _find_folder(self) -> None:
        """Raises ``LookupError`` where no daemon has made the folders of these znodes."""
        with suppress(NotConnected, OutcomeUnknown):
            for folder in (folder_of(self._root), marks_of(self._root)):
                if await self._zk.exists(folder) is None:
                    raise LookupError(f"{folder} is not there: give this server ZooKeeper and chroot of its daemons")

    async def _once(self, asked: Asked, operation: Open | Close, sequence: int) -> bool | None:
        path, mark = path_of(self._root, operation.region), mark_of(self._root, operation.region, operation.token)
        ends = asked is Asked.OPEN_DONE
        znode, told = await self._gathered.read(path, mark) if ends else (*await self._gathered.read(path), None)
        if told is not None and (operation.region, operation.token) in self._marked:
            return self._is_made_by(znode, operation) or znode is None or znode.stat.czxid > told.stat.czxid
        try:
            node = None if znode is None else decode(znode.data, operation.region)
        except UnreadableNode:
            return False
        if znode is not None and not self._is_made_by(znode, operation):
            return False
        me = self._process()
        act = server_act(seen_by(node, *me, operation.token), asked)
        acl = OWN if self._zk.identities else None
        if act is ServerAct.CREATE_CLOSING:
            new = Node(NodeState.CLOSING, operation.region, operation.pid, operation.token, *me)
            await self._gathered.multi([Create(path, encode(new), acl=acl)])
        elif act in TO and node is not None and znode is not None:
            new = node._replace(state=TO[act], pid=operation.pid, sequence=sequence or node.sequence)
            marked = {(operation.region, operation.token)} if act is ServerAct.TO_OPENED else set()
            marks = [Create(mark, None, ephemeral=True, acl=acl)] if marked else []
            before = self._made.get(operation.region)
            if act is ServerAct.TO_OPENING:
                self._made[operation.region] = operation.token, znode.stat.czxid
            try:
                [written, *_] = await self._gathered.multi([SetData(path, encode(new), znode.stat.version), *marks])
            except MultiFailed:
                self._takes_back(operation.region, before)
                raise
            except BaseException:
                self._marked |= marked
                raise
            self._marked |= marked
            return isinstance(written, Stat) and written.czxid == znode.stat.czxid
        elif act is ServerAct.WAITS:
            return None
        return act is not ServerAct.REFUSES

    def _takes_back(self, region: int, before: tuple[int, int] | None) -> None:
        """Has an open begin with the znode that is there now, unless a write before this one may have begun it."""
        if before is None:
            self._made.pop(region, None)
        else:
            self._made[region] = before

    def _is_made_by(self, znode: Znode | None, operation: Open | Close) -> bool:
        """Checks whether a znode is the one that an open has begun with; True where it has begun with none."""
        token, czxid = self._made.get(operation.region, (0, 0))
        return token != operation.token or (znode is not None and znode.stat.czxid == czxid)


def _may_go_again(end: object) -> bool:
    """Checks whether the deletion of a mark had no response in a session that may still live."""
    return isinstance(end, NotConnected | OutcomeUnknown) and not isinstance(end, SessionLost)
