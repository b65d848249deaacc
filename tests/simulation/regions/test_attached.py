"""At most one procedure moves a region, also where two begin in the same turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from controller.regions.kinds.messages import MANY, MOVE, TRANSIT, Many, Move, Transit
from controller.regions.term import RegionsTerm
from state_machines.regions.model import Region
from state_machines.regions.states import RegionState, ServerState
from testing.memory.region_store import RegionDisk
from tests.simulation.regions.kit import Server, creates, ended, procedure, regions_of, running, serving, virtual

Other = Callable[[Region], tuple[str, bytes]]
OTHERS: list[Other] = [
    lambda region: ("move", MOVE.encode(Move(region.id, "t", "s3"))),
    lambda region: ("move", MOVE.encode(Move(region.id, "t", reopens=True))),
    lambda region: ("assign", TRANSIT.encode(Transit(region.id, "t"))),
    lambda region: ("close", TRANSIT.encode(Transit(region.id, "t"))),
]


@pytest.mark.seed("S1-23")
@pytest.mark.seed("S1-1")
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("first", [True, False])
def test_a_crash_and_an_operator_never_move_a_region_both(other: Other, first: bool) -> None:
    """The batch of a crash is dispatched at once: nobody else may have begun, or begin, in between."""

    @virtual
    async def test() -> None:
        async with running(RegionDisk()) as term:
            servers = [Server(term, f"s{n}") for n in (1, 2, 3)]
            async with serving(*servers):
                await ended(term, creates(term))
                [region] = regions_of(term)
                assert region.server is not None
                owner = next(one for one in servers if one.name == region.server.name)
                owner.has.clear()
                region.server.state = ServerState.FENCED
                batch = "assign_many", MANY.encode(Many("t", "crash", ids=(region.id,)))
                both = [batch, other(region)] if first else [other(region), batch]
                pids = await asyncio.gather(*(procedure(term, *one) for one in both))
                for pid in pids:
                    await term.engine.result(pid)
                await asyncio.sleep(1.0)
                agrees(term, region, servers)

    test()


def agrees(term: RegionsTerm, region: Region, servers: list[Server]) -> None:
    """Checks that the one that is the owner, and no other server, has the region."""
    assert not region.pid
    assert not list(term.engine.live())
    having = {one.name: one.has[region.id] for one in servers if region.id in one.has}
    if region.state is RegionState.CLOSED:
        assert not having
    else:
        assert region.server is not None
        assert having == {region.server.name: region.token}
