"""Nine ways in which a server behaves (HBase's mock executors of ``TestAssignmentManager``), and one of its own.

A behaviour acts before each open and close: it takes time, raises, or never returns. What hangs ends with the process;
the runner of the server kills it, and starts it again where the behaviour says so.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from regent_agent.service import NotRunning

WORK_S_MAX: Final = 0.2
NOT_RUNNING_S: Final = 3.0
SLOW_S: Final = 7.0
"""Longer than a request may take: the caller gives up before."""
HANG_S: Final = 4.0
"""Time after which a server that hangs crashes."""
FAILS: Final = 0.35
UNHURRIED_S: Final = (0.4, 1.6)
"""Around the shorter time that the simulation gives a znode: its end and that of the work meet."""


class Failed(Exception):
    """An open or close that fails on purpose."""


class Good:
    """Does everything in a short time. ``crashes``: it hung for so long that its process is to end."""

    restarts = True
    queue_max: int | None = None

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.crashes = asyncio.Event()

    async def open(self) -> None:
        """Acts before an open."""
        await self._work()

    async def close(self) -> None:
        """Acts before a close."""
        await self._work()

    async def work(self) -> None:
        """Acts before a piece of work."""
        await self._work()

    async def copies(self, longest_s: float) -> None:
        """Takes the time of a copy of what a region refers to."""
        await asyncio.sleep(self.chance.random() * longest_s)

    async def _work(self) -> None:
        await asyncio.sleep(self.chance.random() * WORK_S_MAX)

    async def _hang(self) -> None:
        await asyncio.sleep(HANG_S)
        self.crashes.set()
        await asyncio.get_running_loop().create_future()


class RandomFailures(Good):
    """Fails now and then."""

    async def _work(self) -> None:
        await super()._work()
        if self.chance.random() < FAILS:
            raise Failed("it fails now and then")


class Faulty(Good):
    """Opens nothing."""

    async def open(self) -> None:
        """Fails."""
        await self._work()
        raise Failed("it opens nothing")


class NotYetRunning(Good):
    """Is not ready for some seconds."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._ready_s = asyncio.get_running_loop().time() + NOT_RUNNING_S

    async def _work(self) -> None:
        await super()._work()
        if asyncio.get_running_loop().time() < self._ready_s:
            raise NotRunning("it starts")


class TimesOut(Good):
    """Takes longer than anybody waits for some of its work."""

    async def _work(self) -> None:
        await asyncio.sleep(SLOW_S if self.chance.random() < FAILS else self.chance.random() * WORK_S_MAX)


class HangsThenCrashes(Good):
    """Never ends an open, and is gone after a while."""

    restarts = False

    async def open(self) -> None:
        """Hangs."""
        await self._hang()


class HangsThenRestarts(Good):
    """Never ends an open, and is started again after a while."""

    async def open(self) -> None:
        """Hangs."""
        await self._hang()


class HangsOnCloseThenCrashes(Good):
    """Never ends a close, and is gone after a while."""

    restarts = False

    async def close(self) -> None:
        """Hangs."""
        await self._hang()


class QueueTooBigOnce(Good):
    """Has no room for the first operations."""

    queue_max = 0


class Unhurried(Good):
    """Takes about as long for everything as a znode may stay without progress."""

    async def _work(self) -> None:
        await asyncio.sleep(self.chance.uniform(*UNHURRIED_S))


BEHAVIOURS: Final = {
    "good": Good,
    "random": RandomFailures,
    "faulty": Faulty,
    "not-running": NotYetRunning,
    "times-out": TimesOut,
    "hang-crash": HangsThenCrashes,
    "hang-restart": HangsThenRestarts,
    "close-hang-crash": HangsOnCloseThenCrashes,
    "queue-once": QueueTooBigOnce,
}
"""Those that a run draws for its servers."""
UNHURRIED: Final = "unhurried"
BY_NAME: Final = {**BEHAVIOURS, UNHURRIED: Unhurried}
