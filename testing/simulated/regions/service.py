"""One process of a simulated service: opens and closes regions on the shared storage, in the way of a behaviour."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from regent_agent.protocol import COMMIT, DISCARD, FLUSH, INHERIT, SNAPSHOT_PREFIX, SPLIT_KEY, STAGE, UNSTAGE
from regent_agent.service import OpenedRegion, RegionService
from testing.simulated.regions.behaviours import Good
from testing.simulated.regions.storage import Edit, Key, LogFenced, StaleToken, Storage

FEATURES: Final = (INHERIT, FLUSH, SPLIT_KEY, DISCARD, STAGE, UNSTAGE, COMMIT)
"""What a process names as it registers, unless it is an old one."""
COPY_S_MAX: Final = 2.0
"""Longest time until a region has copied what it refers to."""


class View(NamedTuple):
    """What a process has in memory of a region that is open there."""

    region: OpenedRegion
    edits: list[Edit]


class SimulatedService(RegionService):
    """Has regions on a simulated storage. ``opened`` is called with each region that opens.

    ``independent``: gets each region that has copied what it refers to; ``late_s``: returns how long that word waits.
    """

    def __init__(
        self,
        key: Key,
        storage: Storage,
        behaviour: Good,
        opened: Callable[[Key, OpenedRegion], None],
        late_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.key = key
        self.storage = storage
        self.behaviour = behaviour
        self.suspended = False
        self.independent: Callable[[OpenedRegion], None] = lambda _: None
        self.views: dict[int, View] = {}
        self._opened = opened
        self._late_s = late_s
        self._copying: set[asyncio.Task[None]] = set()

    async def open(self, region: OpenedRegion) -> int:
        """Opens a region; returns its sequence number."""
        await self.behaviour.open()
        edits = self.storage.open(region)
        self.views[region.region] = View(region, edits)
        self._opened(self.key, region)
        if region.sources:
            task = asyncio.ensure_future(self._copy(region))
            self._copying.add(task)
            task.add_done_callback(self._copying.discard)
        return max(region.sequence + 1, len(edits))

    async def close(self, region: OpenedRegion) -> None:
        """Closes a region; its edits leave the log."""
        await self.behaviour.close()
        self.views.pop(region.region, None)
        if self.storage.logged:
            try:
                self.storage.flush(self.key, region.region)
            except LogFenced:
                return  # the server that fenced this process has its edits

    async def fence(self, server: str, incarnation: int) -> list[str]:
        """Fences the log of a server."""
        await self.behaviour.close()
        return self.storage.fence((server, incarnation))

    async def split(self, server: str, incarnation: int, part: str) -> None:
        """Splits a part of a log."""
        await self.behaviour.close()
        self.storage.split((server, incarnation), part)

    async def work(self, what: str, region: OpenedRegion | None, data: bytes) -> bytes:
        """Does a piece of work."""
        await self.behaviour.work()
        if region is None:
            self._discard(data)
        elif what == SPLIT_KEY:
            return self._middle(region)
        elif what == FLUSH and self.storage.logged:
            self.storage.flush(self.key, region.region)
        elif what == STAGE:
            self.storage.stage(data.decode(), region, self.views[region.region].edits)
        elif what == UNSTAGE:
            self.storage.unstage(data.decode(), region.region)
        return b""

    def suspend(self) -> None:
        """Serves nothing."""
        self.suspended = True

    def resume(self) -> None:
        """Serves again."""
        self.suspended = False

    def write(self, region: OpenedRegion, value: int, key: bytes = b"") -> Edit:
        """Writes a client's value; raises where the storage refuses it."""
        edit = Edit(region.region, region.token, value, key)
        self.storage.append(self.key, edit)
        if (view := self.views.get(region.region)) is not None:
            view.edits.append(edit)
        return edit

    def read(self, region: OpenedRegion, key: bytes) -> list[Edit]:
        """Returns what was written to a key, as far as this process knows."""
        view = self.views.get(region.region)
        return [] if view is None else [edit for edit in view.edits if edit.key == key]

    def _discard(self, data: bytes) -> None:
        if data.startswith(SNAPSHOT_PREFIX):
            self.storage.discard_snapshot(data.removeprefix(SNAPSHOT_PREFIX).decode())
        else:
            self.storage.discard(int(data))

    def _middle(self, region: OpenedRegion) -> bytes:
        """Returns the key that halves the data; empty where there is none inside of the region."""
        keys = sorted({edit.key for edit in self.views[region.region].edits if edit.key > region.start})
        return keys[len(keys) // 2] if keys else b""

    async def _copy(self, region: OpenedRegion) -> None:
        """Copies what a region refers to, and says so; the word may come after the region was closed."""
        await self.behaviour.copies(COPY_S_MAX)
        view = self.views.get(region.region)
        if view is None or view.region.token != region.token:
            return
        try:
            self.storage.copy(region)
        except StaleToken:
            return
        await asyncio.sleep(self._late_s())
        self.independent(region)
