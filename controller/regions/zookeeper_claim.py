"""Claims the regions' domain in ZooKeeper: one daemon has it at a time, and the others wait for the end of its session.

A claim is one multi: it creates the ephemeral ``daemon`` and raises ``epoch``, whose version every write of the term
checks. So a term that begins fences the one before it. The claim of a session that lives is never taken, and one of
unknown outcome is made again with the next epoch, never adopted: no epoch is shared.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final, NamedTuple

from controller.regions.claim import FIRST, Opening
from metadata_store import own
from metadata_store.errors import Code, MultiFailed, NotConnected, OutcomeUnknown, SessionLost, ZkError
from metadata_store.port import Create, Delete, Node, Op, SetData, Stat, ZooKeeper
from metadata_store.records import claims as holders
from metadata_store.records.claims import Holder
from metadata_store.records.port import Fenced, StoreFailed
from state_machines.regions.levels import NEWEST

log = logging.getLogger("regent.regions")

ROOT: Final = own.REGIONS
AGAIN_S: Final = 0.2
"""Longest pause until a request is repeated that ZooKeeper did not carry out."""
EPOCH_DIGITS_MAX: Final = 18
"""Digits of an epoch: servers read it as a number of 63 bits."""
SHOWN_CHARS_MAX: Final = 60
"""Characters of a foreign text that are shown: its begin."""
REMEDY: Final = "check the ACLs below it, and zookeeper.digest_file"


class Claim(NamedTuple):
    """A won claim. ``version``: that of the epoch's znode, which fences writes."""

    epoch: int
    version: int


class Claims:
    """Waits for the domain on one session, and looks at a claim that was won.

    ``changed``: set whenever ZooKeeper reports something.
    """

    def __init__(self, zk: ZooKeeper, root: str, changed: asyncio.Event, opening: Opening = FIRST) -> None:
        self._zk = zk
        self._opening = opening
        self._root = root
        self._changed = changed
        self._waits_for: Holder | None = None
        self._is_named = False

    @property
    def epoch_path(self) -> str:
        """Returns the znode of the epoch."""
        return f"{self._root}/epoch"

    @property
    def daemon_path(self) -> str:
        """Returns the ephemeral znode of the daemon that has the domain."""
        return f"{self._root}/daemon"

    @property
    def daemons_path(self) -> str:
        """Returns the parent of the daemons that stand by."""
        return f"{self._root}/daemons"

    async def win(self) -> Claim:
        """Waits until no other daemon has the domain, and claims it; raises ``StoreFailed`` and ``SessionLost``."""
        while True:
            self._changed.clear()
            try:
                if (claim := await self._try()) is not None:
                    return claim
            except SessionLost:
                raise
            except NotConnected:
                await self._pause()
            except ZkError as error:
                raise StoreFailed(f"{self._root}: {error}: {REMEDY}") from error

    async def look(self, claim: Claim) -> None:
        """Returns once a claim is proven to stand; raises :class:`StoreFailed` where it does not.

        While there is no connection it waits for one: only an answer of ZooKeeper proves anything.
        """
        while True:
            self._changed.clear()
            try:
                await self._zk.sync(self._root)
                found = await asyncio.gather(self._zk.get(self.epoch_path), self._zk.get(self.daemon_path))
            except SessionLost as lost:
                raise StoreFailed(str(lost)) from lost
            except (NotConnected, OutcomeUnknown):
                await self._pause()
                continue
            except ZkError as error:
                raise StoreFailed(f"{self._root}: {error}: {REMEDY}") from error
            self._compare(claim, *found)
            return

    async def _pause(self) -> None:
        """Waits until ZooKeeper reports something, or a moment: nothing follows what an overloaded server refuses."""
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_S):
                await self._changed.wait()

    def _compare(self, claim: Claim, epoch: Node | None, daemon: Node | None) -> None:
        if epoch is None or epoch.stat.version != claim.version:
            now = "nothing" if epoch is None else (epoch.data or b"").decode("ascii", "replace")
            raise Fenced(f"{self.epoch_path} holds {now} and held {claim.epoch}: another daemon has the domain")
        if daemon is None or daemon.stat.ephemeral_owner != self._zk.session_id:
            raise Fenced(
                f"{self.daemon_path} was deleted or made anew under this daemon, so another one may have the domain: "
                "leave that znode to the daemons"
            )

    async def _try(self) -> Claim | None:
        since_zxid = self._zk.last_zxid
        await self._zk.sync(self._root)
        holder = await self._zk.get(self.daemon_path)
        if holder is None or holder.stat.ephemeral_owner == self._zk.session_id:
            return await self._claim(holder)
        await self._wait(holder, since_zxid)
        return None

    async def _wait(self, holder: Node, since_zxid: int) -> None:
        """Waits until the znode of another daemon is gone, or the connection changes."""
        if not holder.stat.ephemeral_owner:
            raise StoreFailed(f"{self.daemon_path} belongs to no session, so it would never end: delete it")
        found = holders.decode(holder.data)
        self._opening.waits(f"{found} has the store, until its ZooKeeper session ends{found.command}")
        if found != self._waits_for:
            log.info("regions: %s has %s: this one stands by", found, self._root)
        self._waits_for = found
        await self._name_this()
        await self._zk.watch(data=[self.daemon_path], since_zxid=since_zxid)
        await self._changed.wait()

    async def _name_this(self) -> None:
        """Names this daemon among those that stand by, with the level that it knows, while its session lives."""
        me = holders.encode(holders.this(self._opening.socket, NEWEST))
        mine = f"{self.daemons_path}/{self._zk.session_id:016x}"
        if self._is_named:
            return
        with suppress(OutcomeUnknown):  # the connection changes, and this is done again
            await self._create(self.daemons_path, None)
            await self._create(mine, me, ephemeral=True)
            self._is_named = True

    async def others(self) -> list[Holder]:
        """Returns the daemons that stand by, and name themselves."""
        await self._zk.sync(self._root)
        names, _ = await self._zk.children(self.daemons_path) or ([], None)
        nodes = await self._zk.read_many([f"{self.daemons_path}/{one}" for one in names])
        return [holders.decode(one.data) for one in nodes if isinstance(one, Node)]

    async def _claim(self, mine: Node | None) -> Claim | None:
        """Claims once; None where something changed meanwhile, or the outcome is not known."""
        node = await self._zk.get(self.epoch_path)
        if node is None:
            await self._make()
            return None
        text = (node.data or b"").decode("ascii", "replace")
        if not text.isdecimal() or len(text) > EPOCH_DIGITS_MAX:
            shown = text[:SHOWN_CHARS_MAX]
            raise StoreFailed(f"{self.epoch_path} holds {shown!r} and no number: write the highest epoch that ever was")
        epoch = max(int(text), self._opening.above.epoch) + 1
        me = holders.encode(holders.this(self._opening.socket))
        gone: list[Op] = [] if mine is None else [Delete(self.daemon_path, mine.stat.version)]
        created = Create(self.daemon_path, me, ephemeral=True)
        try:
            results = await self._zk.multi([*gone, created, SetData(self.epoch_path, b"%d" % epoch, node.stat.version)])
        except OutcomeUnknown:
            return None
        except MultiFailed as failed:
            if failed.code in (Code.NODE_EXISTS, Code.BAD_VERSION, Code.NO_NODE):
                return None
            raise
        written = results[-1]
        assert isinstance(written, Stat)
        return Claim(epoch, written.version)

    async def _make(self) -> None:
        """Creates the root and the epoch of a new domain, and what is above them."""
        names = self._root.split("/")
        parts = ["/".join(names[:end]) for end in range(2, len(names) + 1)]
        for path, data in (*((part, None) for part in parts), (self.epoch_path, b"0")):
            try:
                await self._create(path, data)
            except OutcomeUnknown:
                return

    async def _create(self, path: str, data: bytes | None, *, ephemeral: bool = False) -> None:
        """Creates a znode that may be there already."""
        try:
            await self._zk.create(path, data, ephemeral=ephemeral)
        except ZkError as error:
            if error.code is not Code.NODE_EXISTS:
                raise
