"""Plays rounds: servers, daemons and commands side by side, then rest."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.verify.region_fuzz.daemons import Daemons, InProcess, Processes, Response
from tests.verify.region_fuzz.operators import Operator
from tests.verify.region_fuzz.owners import Owners
from tests.verify.region_fuzz.rest import rested, until
from tests.verify.region_fuzz.servers import FuzzServer, Link, Moods, numbers

NAMES: Final = ("s1", "s2", "s3", "s4")
STORES: Final = ("memory", "sqlite", "zookeeper")
FENCES: Final = ("lease", "log")
ROUND_S: Final = 25.0
"""Time of faults and commands before all comes to rest."""
SETTINGS: Final = {"regions.startup_wait_ms": 3_000, "regions.delay_ms": 20}


class Stage:
    """One run on one store."""

    def __init__(self, folder: Path, store: str, fence: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.daemons: Daemons = (
            InProcess(folder, fence, SETTINGS) if store == "memory" else Processes(folder, store, fence, SETTINGS)
        )
        self.counts: Counter[str] = Counter()
        self.owners = Owners(lambda: [*self.servers.values(), *self._dying])
        self.operator = Operator(self.daemons, self.chance, NAMES)
        self.servers: dict[str, FuzzServer] = {}
        self._dying: list[FuzzServer] = []
        self._moods = Moods(self.chance)
        self._incarnations = numbers(time.time_ns() // 1_000)

    async def run(self, seconds: float, round_s: float) -> None:
        """Plays rounds until the time is over; raises ``NotAtRest``."""
        watching = asyncio.create_task(self.owners.watch())
        try:
            await self._begin()
            ends_s = time.monotonic() + seconds
            while time.monotonic() < ends_s:
                await self._round(round_s)
        finally:
            watching.cancel()
            for server in [*self.servers.values(), *self._dying]:
                await server.kill()
            await self.daemons.stop()

    def faults(self) -> list[str]:
        """Returns what must not happen and did."""
        ended = [f"a term ended: {line}" for line in self.daemons.ended_terms()]
        return [*self.owners.faults, *self.operator.faults, *ended]

    def figures(self) -> str:
        """Returns what happened, in numbers."""
        counts = {**self.counts, **self.owners.counts}
        happened = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
        return f"{happened}; " + ", ".join(f"{number} {name}" for name, number in sorted(self.operator.counts.items()))

    async def _begin(self) -> None:
        await self.daemons.start()
        for name in NAMES:
            await self._start(name)

    async def _start(self, name: str) -> None:
        server = FuzzServer(name, next(self._incarnations), Link(self.daemons.addresses), self._moods, self.owners)
        self.servers[name] = server
        await server.start()

    async def _round(self, round_s: float) -> None:
        self.counts["rounds"] += 1
        self._moods.stir()
        playing = [self._commands(), self._commands(), self._server_faults(), self._daemon_faults()]
        tasks = [asyncio.create_task(one) for one in playing]
        done, _ = await asyncio.wait(tasks, timeout=round_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()
        await self._mend()
        await rested(self.operator)

    async def _mend(self) -> None:
        """Ends all faults; a server that has left or was fenced gets a next process."""
        self._moods.calm()
        await self.daemons.start()
        for server in self._dying:
            await server.kill()
        self._dying.clear()
        for server in self.servers.values():
            server.link.cut = False
        await until(self._all_here, "servers do not come back")

    async def _all_here(self) -> str:
        """Replaces what has ended; returns what is not there yet."""
        for name, server in list(self.servers.items()):
            if server.died or not server.alive:
                await server.kill()
                await self._start(name)
        members = await self.operator.items("/v1/regions/servers")
        states = {(one["name"], one["incarnation"]): one["state"] for one in members}
        missing = [one for one in self.servers.values() if states.get(one.key) != "online"]
        for one in missing:
            if states.get(one.key) == "leaving":  # a drain, or a leave that was broken off: its next process is online
                await one.kill()
        return f"{[one.key for one in missing]} of {states}" if missing else ""

    # -- what happens side by side

    async def _commands(self) -> None:
        while True:
            await asyncio.sleep(self.chance.random() * 0.4)
            with contextlib.suppress(Response):
                await self.operator.act()

    async def _daemon_faults(self) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(1.0, 12.0))
            self.counts[await self.daemons.fault(self.chance)] += 1
            await asyncio.sleep(self.chance.choice([0.0, self.chance.uniform(0.0, 5.0)]))
            await self.daemons.start()

    async def _server_faults(self) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(0.2, 4.0))
            name = self.chance.choice(NAMES)
            server = self.servers[name]
            drawn = self.chance.choice(["kill of a server", "leave of a server", "cut of a link", "twin of a server"])
            self.counts[drawn] += 1
            if server.died or not server.alive or drawn == "kill of a server":
                await server.kill()
            elif drawn == "leave of a server":
                await server.leave(self.chance.uniform(0.5, 8.0))
            elif drawn == "cut of a link":
                server.link.cut = True
                await asyncio.sleep(self.chance.uniform(0.1, 6.0))
                server.link.cut = False
                continue
            else:
                self._dying.append(server)  # its next process is there, and it does not know yet
            await asyncio.sleep(self.chance.choice([0.0, self.chance.uniform(0.0, 4.0)]))
            await self._start(name)
