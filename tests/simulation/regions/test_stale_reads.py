"""The boundary of stale reads: a process that is cut off may still answer with a log as fence, never with a lease."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import pytest

from regent_agent.service import OpenedRegion
from tests.kit.simulation.seeds import in_child
from tests.simulation.regions.clients import Clients
from tests.simulation.regions.plan import RegionPlan, parse
from tests.simulation.regions.servers import ServerProcess
from tests.simulation.regions.world import SimulatedRegions

READ_EVERY_S: Final = 0.05
OUTAGES: Final = {
    "cut off": "6.000 break-link s1 d1 9\n6.000 break-link d1 s1 9\n",
    "without responses": "6.000 break-link d1 s1 9\n",
    "frozen": "6.000 freeze-server s1 9\n",
    "on a machine that is held": "6.000 hold-machine s1 9\n",
}
"""What keeps a server from its daemon for longer than its lease. Clients reach it in all of them."""


class Readers(Clients):
    """Read regions at every process that answers for them, besides the writes of clients."""

    def __init__(self, world: SimulatedRegions) -> None:
        super().__init__(world)
        self._of = world
        self.counts: Counter[str] = Counter()

    def start(self) -> None:
        """Starts to write and to read."""
        super().start()
        self._of.loop.kept.append(asyncio.ensure_future(self._reads()))

    async def _reads(self) -> None:
        while True:
            await asyncio.sleep(READ_EVERY_S)
            for region in list(self._of.disk.regions):
                for process in list(self._of.processes):
                    if (found := process.serves(region)) is not None:
                        process.process.call_soon(self._read, process, found)

    def _read(self, process: ServerProcess, region: OpenedRegion) -> None:
        """Reads at a server, which looks whether it has the region before it answers.

        It answers with what was written up to its open, and with its own writes.
        """
        assert process.agent is not None
        if not process.agent.owns(region.region, region.token):
            self.counts["refused"] += 1
            return
        acknowledged = self._of.storage.acknowledged[region.region]
        stale = any(edit.token > region.token for edit in acknowledged)
        self.counts["stale" if stale else "fresh"] += 1


def reads(plan: RegionPlan) -> Counter[str]:
    """Plays a plan with readers; returns how many reads were fresh, stale and refused."""
    world = SimulatedRegions(plan)
    world.clients = readers = Readers(world)
    outcome = world.play()
    assert outcome.violation is None, outcome.violation
    return readers.counts


def script(fence: str, outage: str) -> RegionPlan:
    """Returns a plan in which a server is kept from the daemon; it heals after its last action."""
    return parse(
        f"seed 1\nservers good good\nfence {fence}\n1.000 create t1 2 6\n{OUTAGES[outage]}16.000 list-regions s2"
    )


@pytest.mark.seed("S1-88")
@pytest.mark.parametrize("outage", OUTAGES)
def test_no_read_is_stale_where_a_lease_is_the_fence(outage: str) -> None:
    found = in_child(reads, script("lease", outage))
    assert not found["stale"]
    assert found["fresh"]


@pytest.mark.seed("S1-88")
@pytest.mark.parametrize("outage", ["cut off", "frozen"])
def test_a_process_whose_log_is_fenced_returns_what_it_had(outage: str) -> None:
    found = in_child(reads, script("log", outage))
    assert found["fresh"] > found["stale"] > 0
