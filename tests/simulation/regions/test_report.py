"""Reports on the regions of a term: what is damaged, lost or in work, and that the command which is named mends it."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from controller.http.documents import NotActive, NotFound, ViewRefused
from controller.regions.domain import RegionsDomain, RegionsMode
from controller.regions.operator.region_changes import RegionChange
from controller.regions.operator.report import RegionsReport, ReportView
from controller.regions.operator.servers import ServerChange
from controller.regions.procedures.messages import TRANSIT
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Accepted, Owned
from state_machines.procedures.states import State
from state_machines.regions import report
from state_machines.regions.findings import Scope
from state_machines.regions.states import RegionState
from state_machines.regions.transit import RETRIES_AT_ONCE
from testing.memory.region_store import RegionDisk
from tests.kit.regions.shapes import one_inheriting, splits
from tests.kit.regions.term import view_of
from tests.kit.regions.world import (
    OPTIONS,
    Broken,
    Hung,
    Server,
    at_rest,
    creates,
    creating,
    ended,
    regions_of,
    running,
    serving,
    transits,
    until,
    virtual,
)

S = RegionState
LONG = replace(OPTIONS, lease_ms=100_000)
COUNT = 4


def domain_of(term: RegionsTerm | None) -> RegionsDomain:
    return cast("RegionsDomain", SimpleNamespace(term=term, mode=RegionsMode.STANDBY, why="a test"))


class Failing(Server):
    """A server that opens nothing while ``fails``."""

    fails = False

    def do(self, operation: protocol.Operation) -> protocol.Result:
        if self.fails and isinstance(operation, protocol.Open):
            return protocol.Result(operation.pid, protocol.FAILED_OPEN, text="its file is gone")
        return super().do(operation)


async def reported(term: RegionsTerm, scope: Scope | None = None) -> RegionsReport:
    return await ReportView(domain_of(term)).report(scope or Scope())


async def is_clean(term: RegionsTerm, in_work: int = 0) -> None:
    found = await reported(term)
    assert (found.counts, found.total, found.findings, found.in_work) == ({}, 0, [], in_work)


async def obeyed(term: RegionsTerm, mend: str) -> None:
    """Has a region assigned, as a finding says."""
    [region] = re.findall(r"'regent regions assign (\d+)' opens it", mend)
    changes = view_of(domain_of(term)).region_changes
    begun = await changes.change_region("assign", int(region), RegionChange(reason="the report says so"), "ops")
    assert (await term.engine.result(begun.pid)).state is State.SUCCESS


@virtual
@pytest.mark.seed("S1-96")
async def test_a_region_that_a_procedure_has_is_in_work_and_one_that_none_has_is_found() -> None:
    async with running(RegionDisk(), LONG) as term:
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=COUNT))
            await is_clean(term)
            region = regions_of(term)[1]
            await ended(term, transits(term, "close", region))
        [closed] = (await reported(term)).findings
        assert (closed.kind, closed.regions, closed.pid) == ("not_open", [region.id], None)
        assert (closed.start, closed.end) == (region.start.decode(), region.end.decode())
        pid = await transits(term, "assign", region)
        await is_clean(term, in_work=1)
        await until(lambda: region.state is S.OPENING)
        await is_clean(term, in_work=1)
        term.engine.park(pid, OSError("a test"))
        [parked] = (await reported(term)).findings
        assert (parked.pid, parked.procedure, parked.step) == (pid, "assign", "dispatch")
        assert f"'regent regions procedures bypass {pid}' ends that" in parked.mend


@virtual
async def test_the_command_that_a_finding_names_mends_it() -> None:
    async with running(RegionDisk(), replace(LONG, open_attempts_max=1)) as term:
        async with serving(Broken(term, "a")):
            await ended(term, creates(term, regions=COUNT))
            found = await reported(term)
            assert found.counts == {"not_open": COUNT}
            assert {one.what.partition(": ")[2] for one in found.findings} == {
                "it is FAILED_OPEN: no server could open it"
            }
            limited = await reported(term, Scope(listed_max=1))
            assert (limited.total, len(limited.findings)) == (COUNT, 1)
        async with serving(Server(term, "b")):
            for one in found.findings:
                assert f"'regent regions explain {one.regions[0]}' has the cause" in one.mend
                await obeyed(term, one.mend)
            await at_rest(term)
            await is_clean(term)


@virtual
async def test_a_region_whose_opens_fail_again_and_again_is_found_with_what_its_server_says() -> None:
    async with running(RegionDisk(), LONG) as term, serving(server := Failing(term, "a")):
        await ended(term, creates(term, regions=COUNT))
        region = regions_of(term)[1]
        await ended(term, transits(term, "close", region))
        server.fails = True
        pid = await transits(term, "assign", region)
        await until(lambda: TRANSIT.decode(term.engine.records[pid].data).retries == RETRIES_AT_ONCE)
        await is_clean(term, in_work=1)
        await until(lambda: TRANSIT.decode(term.engine.records[pid].data).retries > RETRIES_AT_ONCE)
        [found] = (await reported(term)).findings
        assert (found.kind, found.regions, found.pid, found.procedure) == ("not_open", [region.id], pid, "assign")
        assert f"procedure {pid} tries its open again and again: a,1 said failed_open: its file is gone" in found.what
        assert f"'regent regions explain {region.id}' has more" in found.mend
        server.fails = False
        await at_rest(term)
        await is_clean(term)


@virtual
async def test_regions_of_a_crashed_server_are_in_the_work_of_its_crash() -> None:
    async with running(RegionDisk(), LONG) as term:
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=COUNT))
        servers = view_of(domain_of(term)).servers
        crash = await servers.change_server("expire", "a", ServerChange(), "ops")
        await is_clean(term, in_work=COUNT)
        term.engine.park(crash.pid, OSError("a test"))
        found = await reported(term, Scope(listed_max=1))
        assert found.counts == {"unknown_server": COUNT}
        assert (found.findings[0].server, found.findings[0].pid) == ("a,1", crash.pid)


@virtual
async def test_a_table_whose_change_was_ended_is_found_with_the_command_that_goes_on() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Hung(term, "a")):
        pid = await creating(term, 1)
        await until(lambda: regions_of(term) and regions_of(term)[0].state is S.OPENING)
        await is_clean(term)
        assign = regions_of(term)[0].pid
        assert await term.engine.bypass(assign)
        assert (await term.engine.result(pid)).bypassed
        [halted] = (await reported(term)).findings
        assert (halted.kind, halted.table) == ("halted", "t")
        assert "'regent tables enable t' goes on" in halted.mend


@virtual
async def test_a_region_that_a_second_server_lists_is_found_until_that_has_closed_it() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=COUNT))
        region = regions_of(term)[0]
        second = Server(term, "b")
        await second.register()
        await asyncio.sleep(2)
        listed = protocol.Regions("b", 1, second.epoch, [Owned(region.id, region.token - 1)])
        assert await second.ask(listed) == Accepted()
        [claimed] = (await reported(term)).findings
        assert (claimed.kind, claimed.regions, claimed.server) == ("claimed_twice", [region.id], "b,1")
        await second.report(second.do(await second.operation()))
        await at_rest(term)
        await is_clean(term)


@virtual
async def test_what_a_split_leaves_behind_is_in_order_and_a_lost_row_of_it_is_found() -> None:
    disk = RegionDisk()
    async with one_inheriting(disk) as (term, server, [region]):
        task = asyncio.ensure_future(server.serve())
        await ended(term, splits(term, region, b"80000000"))
        await is_clean(term)
        assert list(term.env.model.parents) == [region.id]
        task.cancel()
        parent = term.env.model.parents.pop(region.id)
        found = await reported(term)
        assert found.counts == {"no_parent": 2}
        assert f"as that of #{region.id}, of which no row tells" in found.findings[0].what
        term.env.model.parents[region.id] = parent._replace(heirs=(77, 78))
        await is_clean(term)
        term.env.model.drop_last(term.env.model.tables["t"], 2)
        assert (await reported(term)).counts == {"hole": 1, "no_heirs": 1}


@virtual
async def test_damaged_rows_are_found_with_what_they_leave_open() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "a")):
        for name in ("t", "u", "v"):
            await ended(term, creates(term, name, COUNT))
    bad = min((one for one in disk.regions.values() if one.table == "t"), key=lambda one: one.start)
    disk.regions[bad.id] = bad._replace(state=99)
    disk.tables["u"] = disk.tables["u"]._replace(kind=-1)
    async with running(disk) as term, serving(Server(term, "a", 2)):
        await at_rest(term)
        found = await reported(term)
        assert (found.counts, found.tables) == ({"damaged": 2, "hole": 1}, 2)
        [hole] = [one for one in found.findings if one.kind == "hole"]
        assert (hole.table, hole.start, hole.end) == ("t", "", bad.end.decode())
        assert f"(region {bad.id}: state is 99" in hole.what
        assert (await reported(term, Scope("t"))).counts == {"damaged": 1, "hole": 1}
        assert (await reported(term, Scope("u"))).counts == {"damaged": 1}
        assert (await reported(term, Scope("v"))).counts == {}
        with pytest.raises(NotFound, match="table 'w' does not exist"):
            await reported(term, Scope("w"))


def test_one_report_is_made_at_a_time_and_of_a_term_that_ends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "TOGETHER", 1)

    @virtual
    async def story() -> None:
        async with running(RegionDisk()) as term, serving(Server(term, "a")):
            await ended(term, creates(term, regions=COUNT))
            domain = domain_of(term)
            view = ReportView(domain)
            first = asyncio.ensure_future(view.report(Scope()))
            await asyncio.sleep(0)
            with pytest.raises(ViewRefused, match="a report is being made already"):
                await view.report(Scope())
            assert (await first).total == 0
            second = asyncio.ensure_future(view.report(Scope()))
            await asyncio.sleep(0)
            domain.term = None
            with pytest.raises(NotActive, match="the term ended while it was judged"):
                await second
            with pytest.raises(NotActive, match="the regions' domain of this daemon is standby"):
                await view.report(Scope())
            domain.term = term
            assert (await view.report(Scope())).total == 0, "one that failed leaves the way free"

    story()
