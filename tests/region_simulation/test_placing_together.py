"""Regions that are placed one by one in one turn go to different servers."""

from __future__ import annotations

from collections import Counter

import pytest

from controller.regions.kinds.messages import CRASH, Crash
from controller.regions.kinds.servers import DRAIN
from testing.memory.region_store import RegionDisk
from tests.region_simulation.kit import Server, creates, ended, procedure, regions_of, running, serving, virtual


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
