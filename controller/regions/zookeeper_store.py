"""The store of the regions' domain in ZooKeeper, on a session of its own, with the claim that the session holds.

The daemon leads only while its lease holds, which ends before ZooKeeper can end the session: nothing is written, and
no server gets a response, once another daemon may have the domain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from controller.regions.zookeeper_claim import ROOT, Claim, Claims
from controller.role.lease import LEASE_FRACTION, Lease
from metadata_store.acl import Acl
from metadata_store.catalog.rows import Catalog
from metadata_store.catalog.zookeeper import ZooKeeperCatalog
from metadata_store.errors import ZooKeeperError
from metadata_store.fencing.outcome import Fence
from metadata_store.port import ConnectionState, WatchEvent, ZooKeeper
from metadata_store.records.port import RecordStore, StoreFailed
from metadata_store.records.zookeeper import ZooKeeperRecords

CONNECT_S: Final = 10.0
LOOK_S: Final = 0.2
"""Longest pause until a store that cannot write looks again whether it may."""
ENDED: Final = "the ZooKeeper session of the regions' domain is over: another daemon may have it"

NewLease = Callable[[float, float], Lease]


class ZooKeeperOpened:
    """An open store in ZooKeeper; see :class:`controller.regions.domain.Opened`."""

    def __init__(self, zk: ZooKeeper, lease: Lease) -> None:
        self._zk = zk
        self._lease = lease
        self._ended = asyncio.Event()
        self._over = False
        self._changed = asyncio.Event()
        self._heartbeats = asyncio.ensure_future(lease.keep(zk.heartbeat, ZooKeeperError))
        self.epoch = 0
        zk.on_watch, zk.on_state, zk.on_state_thread = self._watched, self._state, self._state_at_once

    @classmethod
    async def open(
        cls,
        connect: Callable[[], ZooKeeper],
        *,
        root: str = ROOT,
        acl: tuple[Acl, ...] | None = None,
        connect_s: float = CONNECT_S,
        fraction: float = LEASE_FRACTION,
        new_lease: NewLease = Lease.of_session,
    ) -> ZooKeeperOpened:
        """Waits until no other daemon has the domain, and opens its store; raises ``StoreFailed``.

        ``connect`` makes a session that is not connected yet. ``acl``: of all znodes, where they are closed to others.
        """
        zk = connect()
        found: ZooKeeperOpened | None = None
        try:
            await zk.connect(connect_s)
            found = cls(zk, new_lease(zk.session_timeout_ms / 1000, fraction))
            await found._begin(root, acl)
        except BaseException as error:
            await (zk.close() if found is None else found.close())
            if isinstance(error, ZooKeeperError):
                raise StoreFailed(f"no ZooKeeper session for the regions' domain: {error}") from error
            raise
        return found

    async def _begin(self, root: str, acl: tuple[Acl, ...] | None) -> None:
        claims = Claims(self._zk, root, acl, self._changed)
        claim: Claim = await claims.win()
        self.epoch = claim.epoch
        fence = Fence(claim.version, self._may_write, claims.epoch_path)
        rows = ZooKeeperCatalog(self._zk, root, acl)
        store = ZooKeeperRecords(self._zk, fence, f"{root}/procedures", self._connected, acl, rows)
        self.store: RecordStore = store
        self.catalog: Catalog = rows.of(store)
        await self._connected()

    def leads(self) -> bool:
        """Checks whether no other daemon can have the domain yet."""
        return not self._over and self._lease.valid()

    async def lost(self) -> None:
        """Waits for the end of the session; raises ``StoreFailed``."""
        await self._ended.wait()
        raise StoreFailed(ENDED)

    async def close(self) -> None:
        """Ends the session, and the claim with it."""
        self._over = True
        self._ended.set()
        while not self._heartbeats.done():  # wait_for may pass over one cancellation (bpo-37658)
            self._heartbeats.cancel()
            await asyncio.wait({self._heartbeats}, timeout=LOOK_S)
        await self._zk.close()
        self._zk.on_watch = self._zk.on_state = self._zk.on_state_thread = None

    # -- what ZooKeeper reports

    def _watched(self, _: WatchEvent) -> None:
        self._changed.set()

    def _state(self, state: ConnectionState) -> None:
        if state is ConnectionState.CONNECTED:
            self._lease.renegotiated(self._zk.session_timeout_ms / 1000)
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
        return self.leads() and self._zk.state is ConnectionState.CONNECTED

    async def _connected(self) -> None:
        """Waits until the term may write; raises ``StoreFailed`` once it never will."""
        while not self._may_write():
            if self._over:
                raise StoreFailed(ENDED)
            self._changed.clear()
            waits = {asyncio.ensure_future(self._changed.wait()), asyncio.ensure_future(self._lease.until_valid())}
            _, late = await asyncio.wait(waits, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            for one in late:
                one.cancel()
