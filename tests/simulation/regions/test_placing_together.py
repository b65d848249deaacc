"""Regions that are placed one by one in one turn go to different servers."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from controller.regions.kinds.messages import CRASH, Crash
from controller.regions.kinds.servers import DRAIN
from regent_agent import protocol
from regent_agent.protocol import Result
from testing.memory.region_store import RegionDisk
from tests.simulation.regions.kit import Server, creates, ended, procedure, regions_of, running, serving, virtual


@pytest.mark.parametrize("placement", ["retain", "round_robin"])
def test_a_drain_spreads_the_regions_over_the_other_servers(placement: str) -> None:
    @virtual
    async def story() -> None:
        async with running(RegionDisk(), placement=placement) as term, serving(Server(term, "a")):
            await ended(term, creates(term, regions=40))
            async with serving(Server(term, "b"), Server(term, "c")):
                await ended(term, procedure(term, DRAIN, CRASH.encode(Crash("a", 1))))
                counts = Counter(str(one.server) for one in regions_of(term))
                assert counts == {"b,1": 20, "c,1": 20}
                assert [one.expected for one in term.env.model.servers.values()] == [0, 0, 0]

    story()


@virtual
async def test_a_drain_waits_for_a_region_for_which_a_step_of_its_turn_has_chosen_the_server() -> None:
    """Its end means that the server may be stopped."""
    async with running(RegionDisk(), placement="round_robin") as term, serving(Server(term, "b")):
        fails = Server(term, "a")
        await fails.register()
        created = asyncio.ensure_future(ended(term, creates(term)))
        opening = await fails.operation()
        reported = asyncio.ensure_future(fails.report(Result(opening.pid, protocol.FAILED_OPEN)))
        drained = asyncio.ensure_future(ended(term, procedure(term, DRAIN, CRASH.encode(Crash("b", 1)))))
        await reported
        serves = asyncio.ensure_future(fails.serve())
        await drained
        assert [str(one.server) for one in regions_of(term)] == ["a,1"]
        assert await created == b"0"
        serves.cancel()
