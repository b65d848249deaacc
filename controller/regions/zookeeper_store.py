"""The store of the regions' domain in ZooKeeper, on a session of its own, with the claim that the session holds.

The daemon leads only while its lease holds, which ends before ZooKeeper can end the session: nothing is written, and
no lease of a server is renewed, once another daemon may have the domain. The end of the lease ends no term: it goes on
where the session and the claim turn out to be the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from controller.regions.claim import FIRST, LEASE_MS, ClaimLooks, Opening
from controller.regions.transport.folders import closes_regions
from controller.regions.transport.nodes import Nodes
from controller.regions.zookeeper_claim import ROOT, Claim, Claims
from controller.role.lease import LEASE_FRACTION, Lease
from metadata_store.catalog.rows import Catalog
from metadata_store.catalog.zookeeper import ZooKeeperCatalog
from metadata_store.closing import Closed, close_again, close_tree, follow
from metadata_store.errors import ZooKeeperError
from metadata_store.fencing.fenced import confirm
from metadata_store.fencing.outcome import Fence, Fenced
from metadata_store.port import ConnectionState, WatchEvent, ZooKeeper
from metadata_store.records.claims import Holder
from metadata_store.records.port import RecordStore, StoreFailed
from metadata_store.records.zookeeper import ZooKeeperRecords

log = logging.getLogger("regent.regions")

CONNECT_S: Final = 10.0
LOOK_S: Final = 0.2
"""Longest pause until a store that cannot write looks again whether it may."""
PARENTS: Final = 1
"""Levels that are closed before anything is read: then no stranger adds or removes a record or a row."""
ENDED: Final = "the ZooKeeper session of the regions' domain is over: another daemon may have it"


NewLease = Callable[[float, float], Lease]


class ZooKeeperOpened:
    """An open store in ZooKeeper; see :class:`controller.regions.claim.Opened`. ``lease_ms``: of servers."""

    def __init__(self, zk: ZooKeeper, lease: Lease, lease_ms: int) -> None:
        self._zk = zk
        self._lease = lease
        self._ended = asyncio.Event()
        self._over = False
        self._changed = asyncio.Event()
        self._looks = ClaimLooks(self._prove, lease_ms)
        self._heartbeats = asyncio.ensure_future(lease.keep(zk.heartbeat, ZooKeeperError))
        self._lapses = asyncio.ensure_future(self._tell_lapses())
        self._closing: asyncio.Task[None] | None = None
        self._complaint = ""
        self.epoch = 0
        self.nodes: Nodes | None = None
        zk.on_watch, zk.on_state, zk.on_state_thread = self._watched, self._state, self._state_at_once

    @classmethod
    async def open(
        cls,
        connect: Callable[[], ZooKeeper],
        opening: Opening = FIRST,
        *,
        lease_ms: int = LEASE_MS,
        root: str = ROOT,
        connect_s: float = CONNECT_S,
        fraction: float = LEASE_FRACTION,
        new_lease: NewLease = Lease.of_session,
        noded: bool = False,
    ) -> ZooKeeperOpened:
        """Waits until no other daemon has the domain, and opens its store; raises ``StoreFailed``.

        ``connect`` makes a session that is not connected yet. ``lease_ms``: of servers. ``noded``: servers answer by
        znodes of regions in transition.
        """
        zk = connect()
        found: ZooKeeperOpened | None = None
        try:
            await zk.connect(connect_s)
            found = cls(zk, new_lease(zk.session_timeout_ms / 1000, fraction), lease_ms)
            await found._begin(root, opening, noded=noded)
        except BaseException as error:
            await (zk.close() if found is None else found.close())
            if isinstance(error, ZooKeeperError):
                raise StoreFailed(f"no ZooKeeper session for the regions' domain: {error}") from error
            raise
        return found

    async def _begin(self, root: str, opening: Opening, *, noded: bool) -> None:
        claims = self._claims = Claims(self._zk, root, self._changed, opening)
        claim: Claim = await claims.win()
        self._looks.begin()
        opening.claimed(root)
        self._claim = claim
        self.epoch = claim.epoch
        fence = Fence(claim.version, self._may_write, claims.epoch_path)
        rows = ZooKeeperCatalog(self._zk, root)
        store = ZooKeeperRecords(self._zk, fence, f"{root}/procedures", self._connected, rows)
        self.store: RecordStore = store
        self.catalog: Catalog = rows.of(store)
        self.nodes = Nodes(self._zk, fence, root, self._connected) if noded else None
        await self._connected()
        if closes_regions(self._zk):
            self._note((await store.until_sent(partial(self._close, root, fence, PARENTS))).complaint)
            self._closing = asyncio.ensure_future(self._close_all(store, root, fence))

    async def _close(self, root: str, fence: Fence, depth: int | None = None) -> Closed:
        """Closes znodes that any client may write: they were made while the domain had no identity."""
        found = await close_tree(self._zk, root, depth=depth, may_write=partial(confirm, self._zk, fence))
        found.tell(root)
        return found

    async def _close_all(self, store: ZooKeeperRecords, root: str, fence: Fence) -> None:
        """Closes everything, beside the term: a million regions take minutes once. Then follows what stays open.

        Where the walk is refused, the term goes on: its own writes find out what concerns them.
        """

        async def again(before: Closed) -> Closed:
            may_write = partial(confirm, self._zk, fence)
            return await store.until_sent(lambda: close_again(self._zk, before, may_write=may_write))

        try:
            await follow(await store.until_sent(partial(self._close, root, fence)), again, self._note)
        except Fenced:
            pass
        except StoreFailed as failed:
            if not self._over:
                self._note(
                    f"znodes below {root} that other clients may write are not closed before the next term: {failed}"
                )
                log.warning("regions: %s", self._complaint)

    def _note(self, complaint: str) -> None:
        self._complaint = complaint

    def leads(self) -> bool:
        """Checks whether no other daemon can have the domain yet."""
        return not self._over and self._lease.valid() and self._looks.hold()

    def suspended(self) -> str:
        """Returns why nothing can be written or granted for now, and until when; empty while the lease holds."""
        if self._over or self._lease.valid():
            return ""
        return (
            f"ZooKeeper has answered no heartbeat for {self._lease.silent_s():.0f} s (server {self._zk.peer}), and the "
            f"lease ran out {-self._lease.remaining_s():.0f} s ago: nothing is stored, and servers and requests are "
            f"refused; epoch {self.epoch} goes on once ZooKeeper answers, unless session or claim are lost by then"
        )

    async def _tell_lapses(self) -> None:
        """Logs each end of the lease, and that the term goes on after it."""
        await self._lease.until_valid()
        while True:
            await self._lease.until_over()
            if self.epoch:
                log.warning("regions: %s", self.suspended())
            await self._lease.until_valid()
            if self.epoch:
                log.info("regions: ZooKeeper answers again: epoch %d goes on once its claim is proven", self.epoch)

    def complaint(self) -> str:
        """Returns which other clients may write below the domain's root, as the latest look found it."""
        return self._complaint

    def look(self) -> asyncio.Event:
        """Returns the event of the next look's end: it is set once a look that begins from now on is over."""
        return self._looks.ask()

    async def daemons(self) -> Sequence[Holder]:
        """Returns the daemons that stand by, and name themselves."""
        try:
            return await self._claims.others()
        except ZooKeeperError as error:
            raise StoreFailed(f"the daemons that stand by could not be read: {error}") from error

    async def lost(self) -> None:
        """Waits for the end of the session or of the claim; raises ``StoreFailed``."""
        looks = asyncio.ensure_future(self._looks.keep())
        looks.add_done_callback(lambda _: self._ended.set())
        try:
            await self._ended.wait()
            if looks.done() and not self._over:
                looks.result()
            raise StoreFailed(ENDED)
        finally:
            looks.cancel()
            await asyncio.gather(looks, return_exceptions=True)

    async def _prove(self) -> None:
        await self._claims.look(self._claim)

    async def close(self) -> None:
        """Ends the session, and the claim with it."""
        self._over = True
        self._looks.end()
        self._ended.set()
        for task in (self._heartbeats, self._lapses, self._closing):
            while task is not None and not task.done():  # wait_for may pass over one cancellation (bpo-37658)
                task.cancel()
                await asyncio.wait({task}, timeout=LOOK_S)
        await self._zk.close()
        self._zk.on_watch = self._zk.on_state = self._zk.on_state_thread = None

    # -- what ZooKeeper reports

    def _watched(self, event: WatchEvent) -> None:
        self._changed.set()
        if self.nodes is not None:
            self.nodes.watch_fired(event.path)

    def _state(self, state: ConnectionState) -> None:
        if state is ConnectionState.CONNECTED:
            self._lease.renegotiated(self._zk.session_timeout_ms / 1000)
            if self.nodes is not None:
                self.nodes.reconnected()
        elif state is ConnectionState.LOST:
            self._over = True
            self._ended.set()
        self._changed.set()

    def _state_at_once(self, state: ConnectionState) -> None:
        """Notes the end of the session; runs on the adapter's thread."""
        if state is ConnectionState.LOST:
            self._over = True

    # -- for the store

    def _may_write(self) -> bool:
        return not self._over and self._lease.valid() and self._zk.state is ConnectionState.CONNECTED

    async def _connected(self) -> None:
        """Waits until the term may write; raises ``StoreFailed`` once it never will."""
        while not self._may_write():
            if self._over:
                raise StoreFailed(ENDED)
            self._changed.clear()
            waits = {asyncio.ensure_future(self._changed.wait()), asyncio.ensure_future(self._lease.until_valid())}
            try:
                await asyncio.wait(waits, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waits:
                    one.cancel()
