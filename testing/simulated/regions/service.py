"""One process of a simulated service: opens and closes regions on the shared storage, in the way of a behaviour."""

from __future__ import annotations

from collections.abc import Callable

from regent_agent.service import OpenedRegion, RegionService
from testing.simulated.regions.behaviours import Good
from testing.simulated.regions.storage import Edit, Key, LogFenced, Storage


class SimulatedService(RegionService):
    """Has regions on a simulated storage. ``opened`` is called with each region that opens."""

    def __init__(
        self, key: Key, storage: Storage, behaviour: Good, opened: Callable[[Key, OpenedRegion], None]
    ) -> None:
        self.key = key
        self.storage = storage
        self.behaviour = behaviour
        self.suspended = False
        self._opened = opened

    async def open(self, region: OpenedRegion) -> int:
        """Opens a region; returns its sequence number."""
        await self.behaviour.open()
        edits = self.storage.open(region.region, region.token)
        self._opened(self.key, region)
        return max(region.sequence + 1, edits)

    async def close(self, region: OpenedRegion) -> None:
        """Closes a region; its edits leave the log."""
        await self.behaviour.close()
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

    def suspend(self) -> None:
        """Serves nothing."""
        self.suspended = True

    def resume(self) -> None:
        """Serves again."""
        self.suspended = False

    def write(self, region: OpenedRegion, value: int) -> Edit:
        """Writes a client's value; raises where the storage refuses it."""
        edit = Edit(region.region, region.token, value)
        self.storage.append(self.key, edit)
        return edit
