"""Keeps the znodes of regions in transition: writes many in fenced multis, and reads those that servers have moved.

One task reads and writes in turn, so that what is known of a znode is never older than the daemon's own write of it.
Each write names the version that was read: where a server was faster it is refused, and the znode is read again.
Watches are armed after a read, for what changed since that; they tell, and never say what is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final

from controller.regions.transport.folders import make_folders, renew_rights, warn_of_strangers
from controller.regions.transport.found import Changed, Found, Judge, Wanted, is_of_server, is_opened
from controller.regions.transport.left_alone import RACES, RACES_MAX, READ, WRITTEN, LeftAlone
from controller.regions.transport.presence import PORTION, Presence
from metadata_store.catalog.unassigned import UnreadableNode, decode, encode, folder_of, path_of, region_of
from metadata_store.errors import Code, MultiFailed, NotConnected, OutcomeUnknown, ZkError
from metadata_store.fencing.fenced import submit
from metadata_store.fencing.outcome import Fence, Fenced
from metadata_store.own import acls_below
from metadata_store.port import READ_PATHS_MAX, Create, Delete, Op, SetData, ZooKeeper
from metadata_store.port import Node as Znode
from metadata_store.records.port import StoreFailed
from state_machines.regions.unassigned import Node

log = logging.getLogger("regent.regions")

WRITTEN_TOGETHER: Final = 400
"""Znodes of one multi."""
GATHER_S: Final = 0.005
"""Pause after a round, in which the next znodes to read and to write gather."""
AGAIN_S: Final = 0.05
"""Pause after a request without a response."""
ROUNDS_MAX: Final = 50
"""Rounds of reading and deleting as a term begins, beside those that the number of znodes takes."""
SHOWN_MAX: Final = 5
"""Unreadable znodes that one reading logs."""


class Nodes:
    """The znodes below ``root`` of one term.

    ``connected``: waits until the term may write, and raises ``StoreFailed`` once it never will.
    """

    def __init__(self, zk: ZooKeeper, fence: Fence, root: str, connected: Callable[[], Awaitable[None]]) -> None:
        self._zk, self._fence, self._root, self._connected = zk, fence, root, connected
        self._acl = acls_below(folder_of(root), zk.own_acls, secured=zk.set_acl)
        self._folder = f"{folder_of(root)}/"
        self.known: dict[int, Found] = {}
        self._wanted: dict[int, Wanted] = {}
        self._dirty: dict[int, None] = {}
        self._watched: set[int] = set()
        """Regions whose znode is followed, be it there or not."""
        self.servers = Presence(zk, root)
        self._is_listed = self._has_begun = self._lists = self._has_warned = False
        self._work = asyncio.Event()
        self.changed: Changed = lambda region, found: None
        self.permits: Judge = lambda region, found, wanted: True
        self.dropped: Callable[[int, Found | None], None] = lambda region, found: None
        """Takes a region whose write is not permitted any more, with what its znode holds."""
        self._left_alone = LeftAlone(root, self._try_again)
        self.faults: Counter[str] = Counter()
        """What did not go as it should, by its cause, see :class:`controller.regions.metrics.RegionCounters`."""

    # -- for the transport

    def want(self, region: int, node: Node | None, done: Callable[[], None]) -> None:
        """Has a znode written, or deleted; a later wish for the same one takes the place of an earlier one."""
        self._wanted[region] = Wanted(node, done)
        self._work.set()

    def wants(self, region: int) -> Wanted | None:
        """Returns the write of a region that is not done yet."""
        return self._wanted.get(region)

    def shows(self, region: int) -> str:
        """Says in a sentence what the znode of a region holds, or why that is not known; empty without one."""
        path, found = path_of(self._root, region), self.known.get(region)
        if region in self._watched and (why := self._left_alone.why(region)):
            return f"its znode {path} {why}"
        if found is None:
            return ""
        if (node := found.node) is None:
            return f"its znode {path} holds what this daemon cannot read, and will be written anew"
        whose = f"for {node.server},{node.incarnation}" if node.server else "for no server any more"
        return f"its znode {path} is {node.state} {whose}, with token {node.token}"

    def leave(self, region: int) -> None:
        """Takes a wish back that is not sent yet."""
        self._wanted.pop(region, None)
        self._left_alone.went_well(region, WRITTEN)

    def follow(self, region: int) -> None:
        """Has each change of a znode told, also one that is not there yet."""
        self._watched.add(region)
        self.look(region)

    def unfollow(self, region: int) -> None:
        """Follows a znode no more: what its watch tells is dropped."""
        self._watched.discard(region)
        for what in (READ, WRITTEN):
            self._left_alone.went_well(region, what)

    def list_again(self) -> None:
        """Has znodes found of which nothing is known, because nothing followed them as they were made."""
        self._lists = True
        self._work.set()

    def look(self, region: int) -> None:
        """Has a znode read."""
        self._dirty[region] = None
        self._work.set()

    # -- for the session

    def watch_fired(self, path: str) -> None:
        """Takes the path of a watch; runs on the event loop and must not wait."""
        if path == self.servers.folder:
            self.servers.is_due = True
            self._work.set()
            return
        region = region_of(path[len(self._folder) :]) if path.startswith(self._folder) else None
        if region is not None and (region in self._watched or region in self.known):
            self.look(region)

    def reconnected(self) -> None:
        """Reads all anew: a connection that broke has dropped its watches."""
        self._dirty.update(dict.fromkeys((*self._watched, *self.known)))
        self.servers.is_due = True
        self._work.set()

    # -- one task

    async def begin(self) -> dict[int, Found]:
        """Lists and reads all znodes, which are followed then; raises ``StoreFailed`` where the term is over.

        Where no server has a znode, this is a start: what an earlier time has left of regions in transition goes first.
        """
        self._is_listed = False
        while not self._is_listed:
            await self._once(self._find)
        listed = len(self._dirty)
        clears = {} if self.servers.present else dict.fromkeys(self._dirty, 0)
        for _ in range(ROUNDS_MAX + 3 * listed // WRITTEN_TOGETHER):  # what changes all the time is read later
            if not self._dirty and not clears:
                break
            await self._once(self._read)
            await self._once(partial(self._clear, clears))
        self._has_begun = True
        log.info(
            "this term is taken for %s: %d servers have a znode in %s; of %d znodes of regions in transition %d stay",
            *("a failover" if self.servers.present else "a start", len(self.servers.present), self.servers.folder),
            *(listed, len(self.known)),
        )
        return dict(self.known)

    async def _find(self) -> None:
        """Looks which servers live, and lists the znodes of regions in transition."""
        await make_folders(self._zk, self._fence, self._root)
        await renew_rights(self._zk, self._fence, self._root)
        self.servers.is_due = True
        await self.servers.look()
        await self._list()

    async def _clear(self, clears: dict[int, int]) -> None:
        """Deletes some znodes of a start. ``clears``: those to be deleted, and how often that was refused.

        An answer to an open stays: the session of its server may have ended under a process that serves.
        """
        some = list(islice((one for one in clears if one not in self._dirty), WRITTEN_TOGETHER))
        gone = [one for one in some if not is_opened(self.known.get(one))]
        ops = [Delete(path_of(self._root, one), self.known[one].version) for one in gone if one in self.known]
        failed = await submit(self._zk, self._fence, ops) if ops else None
        if failed is None:
            for region in gone:
                self.known.pop(region, None)
                self.unfollow(region)
            for region in some:
                del clears[region]
        elif failed.index:
            region = [one for one in gone if one in self.known][failed.index - 1]
            clears[region] += 1
            self.look(region)
            if failed.code not in RACES:
                log.warning(
                    "%s cannot be deleted (%s), nor may others: %d znodes of regions in transition stay; delete them, "
                    "or correct their ACLs",
                    *(path_of(self._root, region), failed.code.name, len(clears)),
                )
                clears.clear()  # their next operations come upon them
            elif clears[region] > RACES_MAX:
                del clears[region]
        else:
            raise failed

    async def keep(self) -> None:
        """Reads and writes until cancelled; raises ``StoreFailed`` once the term is over."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._dirty or self._lists or self.servers.is_due or not all(map(self._waits, self._wanted)):
                await self._once(self.servers.look)
                await self._once(self._find_new)
                await self._once(self._read)
                await self._once(self._write)
                await asyncio.sleep(GATHER_S)

    async def _once(self, work: Callable[[], Awaitable[None]]) -> None:
        """Does one part of the work; while there is no connection it waits for one."""
        try:
            await work()
        except (NotConnected, OutcomeUnknown):
            self.reconnected()
            await asyncio.sleep(AGAIN_S)  # one that answers nothing may be connected
            await self._connected()
        except (ZkError, Fenced) as error:
            raise StoreFailed(f"{self._folder[:-1]}: {error}") from error

    async def _list(self) -> None:
        names, _ = await self._zk.children(self._folder[:-1]) or ((), None)
        strangers: list[str] = []
        for first in range(0, len(names), PORTION):
            some = {name: region_of(name) for name in names[first : first + PORTION]}
            strangers += [name for name, one in some.items() if one is None]
            found = sorted(one for one in some.values() if one is not None and one not in self.known)
            self._watched.update(found)
            self._dirty.update(dict.fromkeys(found))
            await asyncio.sleep(0)
        if strangers and not self._has_warned:
            self._has_warned = True
            warn_of_strangers(self._folder[:-1], strangers)
        self._is_listed = True

    async def _find_new(self) -> None:
        """Lists the znodes where there are more than are known."""
        if not self._lists:
            return
        stat = await self._zk.exists(self._folder[:-1])
        if stat is not None and stat.num_children > len(self.known):
            await self._list()
        self._lists = False

    # -- reading

    async def _read(self) -> None:
        some = list(islice(self._dirty, READ_PATHS_MAX))
        for region in some:  # before the read: what changes beside it is read again
            del self._dirty[region]
        regions = [one for one in some if not self._left_alone.has(one, READ)]
        if not regions:
            return
        since_zxid = self._zk.last_zxid
        paths = [path_of(self._root, one) for one in regions]
        found = await self._zk.read_many(paths)
        there = [path for path, one in zip(paths, found, strict=True) if isinstance(one, Znode)]
        absent = [
            path
            for region, path, one in zip(regions, paths, found, strict=True)
            if one is Code.NO_NODE and region in self._watched
        ]
        await self._zk.watch(data=there, exists=absent, since_zxid=since_zxid)
        self._take(zip(regions, found, strict=True))

    def _take(self, found: Iterable[tuple[int, Znode | Code]]) -> None:
        shown = 0
        for region, one in found:
            before = self.known.get(region)
            if not isinstance(one, Znode):
                if one is not Code.NO_NODE:
                    self._has_failed(region, one, READ)
                else:
                    self._left_alone.went_well(region, READ)
                self.known.pop(region, None)
                now = None
            else:
                now = self.known[region] = self._decoded(region, one, log_it=shown < SHOWN_MAX)
                self._left_alone.went_well(region, READ)
                shown += now.node is None
            if now != before and self._has_begun:
                self.changed(region, now)

    def _decoded(self, region: int, znode: Znode, *, log_it: bool) -> Found:
        try:
            return Found(decode(znode.data, region), znode.stat.version)
        except UnreadableNode as error:
            self.faults["unreadable"] += 1
            if log_it:
                path = path_of(self._root, region)
                log.warning("%s cannot be read (%s): the next operation on region %d replaces it", path, error, region)
            return Found(None, znode.stat.version)

    # -- writing

    async def _write(self) -> None:
        free = ((region, one) for region, one in self._wanted.items() if not self._waits(region))
        some = list(islice(free, WRITTEN_TOGETHER))
        some = [(region, one) for region, one in some if self._is_permitted(region, one)]
        ops = [(region, op) for region, one in some for op in self._ops(region, one)]
        failed: MultiFailed | None = None
        if ops:
            try:
                failed = await submit(self._zk, self._fence, [op for _, op in ops])
            except OutcomeUnknown:
                await self._find_out(list(dict.fromkeys(region for region, _ in ops)))
                return
        if failed is not None and failed.index:
            region = ops[failed.index - 1][0]
            self.look(region)
            self._has_failed(region, failed.code, WRITTEN)  # the others are written again
            return
        if failed is not None:
            raise failed
        for region, one in some:
            self._written(region, one)

    def _waits(self, region: int) -> bool:
        return self._left_alone.has(region, WRITTEN) or self._left_alone.is_unread(region)

    def _has_failed(self, region: int, code: Code, what: str) -> None:
        if region in self._wanted or region in self._watched:  # else nothing waits for it any more
            self.faults["refused"] += self._left_alone.refused(region, what, code)

    def _try_again(self, region: int, what: str) -> None:
        """Goes on with a znode after its pause: one that cannot be read has no watch."""
        if what == READ and (region in self._watched or region in self._wanted):
            self._dirty[region] = None
        self._work.set()

    def _is_permitted(self, region: int, wanted: Wanted) -> bool:
        found = self.known.get(region)
        if wanted.node is None and found is None:
            return True
        if self.permits(region, found, wanted):
            return True
        self.faults["late"] += 1
        if self._wanted.get(region) is wanted:
            del self._wanted[region]
            self.dropped(region, found)
        return False

    def _ops(self, region: int, wanted: Wanted) -> Sequence[Op]:
        """Returns the writes of a znode; one that a server has created gives way to one of the daemon's own.

        That begins with the version after the first, so that a late write of the server before is refused.
        """
        path, found = path_of(self._root, region), self.known.get(region)
        if wanted.node is None:
            return () if found is None else (Delete(path, found.version),)
        data = encode(wanted.node)
        new = Create(path, data, acl=self._acl)
        if found is None:
            return (new,)
        if is_of_server(found):
            return Delete(path, found.version), new, SetData(path, data, 0)
        return (SetData(path, data, found.version),)

    def _written(self, region: int, wanted: Wanted) -> None:
        """Enters a write that was applied."""
        self._left_alone.went_well(region, WRITTEN)
        before = self.known.pop(region, None)
        if wanted.node is not None:
            version = 0 if before is None else 1 if is_of_server(before) else before.version + 1
            self.known[region] = Found(wanted.node, version)
            self.look(region)  # arms its watch
        if self._wanted.get(region) is wanted:
            del self._wanted[region]
            wanted.done()

    async def _find_out(self, regions: Sequence[int]) -> None:
        """Reads znodes whose write has no known outcome; those that are as wanted are done."""
        await self._connected()
        await self._zk.sync(self._folder[:-1])
        self._dirty.update(dict.fromkeys(regions))
        while any(one in self._dirty for one in regions):
            await self._read()
        for region in regions:
            wanted, found = self._wanted.get(region), self.known.get(region)
            if (
                not self._left_alone.is_unread(region)
                and wanted is not None
                and (None if found is None else found.node) == wanted.node
                and (wanted.node is not None or found is None)
            ):
                del self._wanted[region]
                wanted.done()
