"""Clients that write and read keys, at whoever believes to have the region of a key."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from metadata_store.catalog.rows import RegionRow
from regent_agent.service import OpenedRegion
from testing.simulated.regions.storage import LogFenced, StaleToken, is_in
from tests.simulation.regions.servers import ServerProcess

if TYPE_CHECKING:
    from tests.simulation.regions.world import SimulatedRegions

EVERY_S_MAX: Final = 0.3
READS: Final = 0.5
"""Part of the writes beside which the key is read, too."""
KEYS: Final = tuple(b"%08x" % (number << 26) for number in range(1 << 6))
"""Keys that clients use: evenly over those of a table that is split evenly."""


class Clients:
    """Write to random keys and read them, at every server that answers for them."""

    def __init__(self, world: SimulatedRegions) -> None:
        self._world = world
        self._chance = random.Random(f"{world.plan.seed} clients")
        self._keys = random.Random(f"{world.plan.seed} keys")
        self._value = 0

    def start(self) -> None:
        """Starts to write."""
        self._world.loop.kept.append(asyncio.ensure_future(self._run()))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._chance.random() * EVERY_S_MAX)
            rows = list(self._world.disk.regions.values())
            if rows:
                row = rows[self._chance.randrange(len(rows))]
                self._visit(row, self._key_of(row), reads=self._keys.random() < READS)

    def _key_of(self, row: RegionRow) -> bytes:
        """Draws a key of a region."""
        inside = [key for key in KEYS if is_in(key, row.start, row.end)]
        return inside[self._keys.randrange(len(inside))] if inside else row.start

    def _visit(self, row: RegionRow, key: bytes, *, reads: bool) -> None:
        """Writes a key at all processes that answer for it; they have to agree on its region."""
        world = self._world
        found = [(one, region) for one in list(world.processes) if (region := one.serves_key(row.table, key))]
        for process, region in found:
            self._value += 1
            process.process.call_soon(self._write, process, region, self._value, key)
            if reads:
                process.process.call_soon(self._get, process, region, key)

    def _write(self, process: ServerProcess, region: OpenedRegion, value: int, key: bytes) -> None:
        """Writes at a server: it looks whether it has the region, writes, and looks again before it answers."""
        world, storage = self._world, self._world.storage
        try:
            edit = process.service.write(region, value, key)
        except (StaleToken, LogFenced):
            world.counts["write refused"] += 1
            return
        assert process.agent is not None
        if not process.agent.owns(region.region, region.token):
            return
        if world.judge.shapes.is_replaced(region.region) and not world.restored:
            world.violated("SplitAtomicity", f"{process.key} writes {key!r} to {region}, whose keys others have")
        storage.acknowledged[region.region].append(edit)
        world.counts["write"] += 1
        if region.token < storage.tokens[region.region]:
            world.violated(
                "write of a former owner", f"{process.key} writes to {region} after {storage.tokens[region.region]}"
            )

    def _get(self, process: ServerProcess, region: OpenedRegion, key: bytes) -> None:
        """Reads at a server, which looks whether it has the region before it answers: no edit may be missing.

        A process whose log is fenced may answer with what it had (S1-88).
        """
        world, storage = self._world, self._world.storage
        assert process.agent is not None
        if not process.agent.owns(region.region, region.token) or storage.is_fenced(process.key):
            return
        world.counts["read"] += 1
        seen = process.service.read(region, key)
        known = [edit for edit in storage.acknowledged[region.region] if edit.key == key]
        missing = [edit for edit in known if edit not in seen]
        if missing and not world.judge.opens.knows_nothing_of(region.region, region.token):
            world.violated("NoStaleRead", f"{process.key} reads {key!r} of {region} without {missing}")
