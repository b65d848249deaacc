"""Moves that operators request right after a term begins, while its servers come one by one."""

from __future__ import annotations

from controller.http.procedure_models import Procedure
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.simulation.regions.kit import Server, creates, ended, lists, regions_of, running, serving, virtual
from tests.simulation.regions.operating import Operator, Refusal


@virtual
async def test_a_move_to_a_server_that_has_not_come_to_the_new_term_yet_closes_nothing_and_is_done_later() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        await Server(term, "b").register()
        [before] = regions_of(term)
    async with running(disk) as term:
        operator = Operator(lambda: term)
        owner, wanted = Server(term, "a"), Server(term, "b")
        await owner.register(*lists([before]))
        [region] = regions_of(term)
        refused = await operator.does(f"regions move {region.id} b")
        assert isinstance(refused, Refusal)
        assert "server b,1 has not come to this daemon yet" in refused.text
        assert "try again in some seconds" in refused.text
        assert (region.state, str(region.server), region.pid) == (RegionState.OPEN, "a,1", 0)
        async with serving(owner, wanted):
            found = await operator.does(f"regions move {region.id} b")
            assert isinstance(found, Procedure)
            await term.engine.result(found.pid)
            assert (region.state, str(region.server)) == (RegionState.OPEN, "b,1")
