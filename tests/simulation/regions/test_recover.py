"""A process of which rows of regions alone tell becomes a member again: it comes back, or its crash is dealt with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from controller.http.documents import NotFound, ViewRefused
from controller.http.procedures import Procedure
from controller.regions.domain import RegionsDomain
from controller.regions.operator.report import ReportView
from controller.regions.operator.servers import ServerChange
from controller.regions.procedures import servers
from controller.regions.procedures.messages import CRASH, Crash
from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import ServerRow
from regent_agent.protocol import Owned, Registered
from regent_agent.protocol import Refused as RefusedResponse
from state_machines.procedures.states import State
from state_machines.regions.findings import Scope
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.term import view_of
from tests.kit.regions.world import (
    Server,
    at_rest,
    creates,
    ended,
    lists,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

S = RegionState
COUNT = 4


def domain_of(term: RegionsTerm) -> RegionsDomain:
    return cast("RegionsDomain", SimpleNamespace(term=term))


async def recovers(term: RegionsTerm, server: str, *, dry_run: bool = False) -> Procedure:
    request = ServerChange(reason="its row cannot be read", dry_run=dry_run)
    return await view_of(domain_of(term)).servers.change_server("recover", server, request, "ops")


@asynccontextmanager
async def with_a_lost_member(disk: RegionDisk) -> AsyncIterator[tuple[RegionsTerm, list[Owned]]]:
    """Runs a term on a store in which the row of server a cannot be read, with what a has."""
    async with running(disk) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=COUNT))
        owned = lists(regions_of(term))
    del disk.servers["a", 1]
    disk.servers["a", 0] = ServerRow("a", cast("int", "one"), "a:1")
    async with running(disk) as term:
        yield term, owned


@pytest.mark.seed("S1-96")
@virtual
async def test_the_crash_of_a_process_that_regions_alone_name_is_dealt_with_after_a_restart() -> None:
    disk = RegionDisk()
    async with with_a_lost_member(disk) as (term, _), serving(Server(term, "b")):
        await asyncio.sleep(10)
        found = (await ReportView(domain_of(term)).report(Scope())).findings
        mends = {one.mend for one in found if one.regions and one.kind == "damaged"}
        assert mends == {"'regent servers recover a,1', then restart the daemon: it deals with that process"}
        planned = await recovers(term, "a", dry_run=True)
        assert f"its {COUNT} regions that are left out" in planned.detail
        assert ("a", 1) not in disk.servers
        record = await term.engine.result((await recovers(term, "a")).pid)
        assert (record.state, record.result) == (State.SUCCESS, servers.RECOVERED)
        assert ("a", 1) in disk.servers
        found = (await ReportView(domain_of(term)).report(Scope())).findings
        mends = {one.mend for one in found if one.regions and one.kind == "damaged"}
        assert mends == {"its row is stored: restart the daemon"}
    async with running(disk) as term, serving(Server(term, "b", 2)):
        assert {str(one.server) for one in regions_of(term)} == {"a,1"}
        await asyncio.sleep(1)
        assert {str(one.server) for one in regions_of(term)} == {"a,1"}, "its lease is not over"
        await until(lambda: {(str(one.server), one.state) for one in regions_of(term)} == {("b,2", S.OPEN)})
        await at_rest(term)
        assert term.env.model.is_buried(("a", 1)), "it was fenced, and never comes back"
        assert {one.kind for one in (await ReportView(domain_of(term)).report(Scope())).findings} == {"damaged"}


@virtual
async def test_a_recovered_process_that_lives_keeps_its_regions() -> None:
    disk = RegionDisk()
    async with with_a_lost_member(disk) as (term, _):
        await term.engine.result((await recovers(term, "a,1")).pid)
    async with running(disk) as term:
        server = Server(term, "a")
        owned = lists(regions_of(term))
        assert len(owned) == COUNT
        await server.register(*owned)
        task = asyncio.ensure_future(server.serve())
        await asyncio.sleep(10)
        assert {(str(one.server), one.state) for one in regions_of(term)} == {("a,1", S.OPEN)}
        task.cancel()


@virtual
async def test_a_process_that_came_back_without_its_regions_is_left_as_it_is() -> None:
    disk = RegionDisk()
    async with with_a_lost_member(disk) as (term, owned):
        server = Server(term, "a")
        refused = await server.register(*owned)
        assert isinstance(refused, RefusedResponse)
        assert "is no member, and lists 4 regions: this process must end" in refused.text
        assert isinstance(await server.register(), Registered)
        with pytest.raises(ViewRefused, match="server a,1 is a member"):
            await recovers(term, "a")
        pid = await procedure(term, servers.RECOVER, CRASH.encode(Crash("a", 1)))
        assert (await term.engine.result(pid)).result.startswith(b"server a,1 is a member")
        assert disk.servers["a", 1].address == "a:1"


@virtual
async def test_two_recoveries_at_once_store_one_row_and_one_of_a_stranger_to_all_rows_is_refused() -> None:
    disk = RegionDisk()
    async with with_a_lost_member(disk) as (term, _):
        pids = [await procedure(term, servers.RECOVER, CRASH.encode(Crash("a", 1))) for _ in range(2)]
        assert {(await term.engine.result(pid)).state for pid in pids} == {State.SUCCESS}
        assert [one for one in disk.servers if one == ("a", 1)] == [("a", 1)]
        for name in ("a,7", "z"):
            with pytest.raises(NotFound, match=f"server '{name}' is not known"):
                await recovers(term, name)
        record = await term.engine.result(await procedure(term, servers.RECOVER, CRASH.encode(Crash("z", 1))))
        assert (record.state, record.error) == (
            State.ROLLEDBACK,
            "no region that is left out names the server z,1",
        )
