"""Injects faults at the writes of a daemon: the hooks of its ZooKeeper port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metadata_store.port import Write
from tests.simulation.kafka import faults

if TYPE_CHECKING:
    from tests.simulation.kafka.daemons import DaemonNode


class WriteFaults:
    """Kills the process before or after one of its next writes, or stops it while one is under way."""

    def __init__(self, node: DaemonNode) -> None:
        self._node = node
        self._left = 0
        self._when = ""
        self._away_s = 0.0

    def arm(self, number: int, when: str, away_s: float) -> None:
        """Arms a fault at the ``number``-th write from now on; ``when`` is ``before``, ``after`` or ``stop``."""
        self._left, self._when, self._away_s = number, when, away_s

    def disarm(self) -> None:
        """Disarms the fault: the process is gone."""
        self._left = 0

    async def before(self, ops: Sequence[Write]) -> None:
        """Strikes before a write is sent."""
        if self._left <= 0:
            return
        self._left -= 1
        if self._left:
            return
        if self._when == "before":
            await self._die()
        elif self._when == "after":
            self._left = -1
        else:
            self._node.terminate(self._away_s)
            self._node.world.happened(faults.DAEMON_STOPPED_IN_BATCH)

    async def after(self, ops: Sequence[Write]) -> None:
        """Strikes after the reply, before the daemon knows it."""
        if self._left == -1:
            self._left = 0
            await self._die()

    async def _die(self) -> None:
        """Kills the process: none of it runs after this."""
        world = self._node.world
        world.happened(faults.DAEMON_KILLED_AT_WRITE)
        self._node.kill()
        world.network.later(self._away_s, self._node.start)
        await world.loop.create_future()
