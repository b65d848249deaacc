"""Clients that write to whoever believes to have a region."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from regent_agent.service import OpenedRegion
from testing.simulated.regions.storage import LogFenced, StaleToken
from tests.simulation.regions.servers import ServerProcess

if TYPE_CHECKING:
    from tests.simulation.regions.world import World

EVERY_S_MAX: Final = 0.3


class Clients:
    """Write to random regions, at every server that answers for them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"{world.plan.seed} clients")
        self._value = 0

    def start(self) -> None:
        """Starts to write."""
        self._world.loop.kept.append(asyncio.ensure_future(self._run()))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._chance.random() * EVERY_S_MAX)
            regions = list(self._world.disk.regions)
            if regions:
                region = regions[self._chance.randrange(len(regions))]
                for process in list(self._world.processes):
                    if (found := process.serves(region)) is not None:
                        self._value += 1
                        process.process.call_soon(self._write, process, found, self._value)

    def _write(self, process: ServerProcess, region: OpenedRegion, value: int) -> None:
        """Writes at a server: it looks whether it has the region, writes, and looks again before it answers."""
        storage = self._world.storage
        try:
            edit = process.service.write(region, value)
        except (StaleToken, LogFenced):
            self._world.counts["write refused"] += 1
            return
        assert process.agent is not None
        if not process.agent.owns(region.region, region.token):
            return
        storage.acknowledged[region.region].append(edit)
        self._world.counts["write"] += 1
        if region.token < storage.tokens[region.region]:
            self._world.violated(
                "write of a former owner", f"{process.key} writes to {region} after {storage.tokens[region.region]}"
            )
