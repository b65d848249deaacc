"""Ways out for operators: of drains, strays, expiries, and lists that contradict what a lost procedure did."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from msgspec.structs import replace

from controller.http.documents import NotFound, ViewRefused
from controller.procedures import requests
from controller.regions.domain import RegionsDomain
from controller.regions.operator.marks import MarkRemoval, MarkView
from controller.regions.operator.region_changes import RegionChange
from controller.regions.operator.requests import Change
from controller.regions.operator.servers import ServerChange
from controller.regions.procedures import close, crash, servers
from controller.regions.procedures.messages import CRASH, TRANSIT, Crash, Transit
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Close, Left, Owned, Registered
from state_machines.procedures.kernel import Act
from state_machines.procedures.outcome import Failed
from state_machines.procedures.record import Record
from state_machines.regions.marks import Mark, MarkKind
from state_machines.regions.states import RegionState, ServerState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.term import view_of
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    creates,
    done,
    ended,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

S = RegionState
LONG = replace(OPTIONS, lease_ms=100_000)


def domain(term: RegionsTerm) -> RegionsDomain:
    return cast("RegionsDomain", SimpleNamespace(term=term, failed=False))


def drains(term: RegionsTerm, name: str) -> Any:
    return procedure(term, servers.DRAIN, CRASH.encode(Crash(name, 1)))


@virtual
async def test_a_stray_whose_close_was_ended_is_closed_all_the_same_and_its_region_goes_on() -> None:
    disk = RegionDisk()
    async with running(disk, LONG) as term, serving(Server(term, "b")):
        await ended(term, creates(term))
        await Server(term, "a").register()
    async with running(disk, LONG) as term:
        [region] = regions_of(term)
        await (owner := Server(term, "b")).register(Owned(region.id, region.token))
        await asyncio.sleep(1.1)
        stray = Server(term, "a")
        await stray.register(Owned(region.id, 999))
        first = await stray.operation()
        assert isinstance(first, Close)
        assert await term.engine.bypass(first.pid)
        await until(lambda: term.engine.records[first.pid].state.is_final)
        assert term.env.claimants.is_held(region), "it has the region until it has closed it"
        while not (found := await stray.ask(protocol.Poll("a", 1, stray.epoch, stray.taken))).list_regions:  # type: ignore[union-attr]
            stray.taken = found.number  # type: ignore[union-attr]
        await stray.ask(protocol.Regions("a", 1, stray.epoch, [Owned(region.id, 999)]))
        again = await stray.operation()
        assert (type(again), again.pid != first.pid) == (Close, True)
        await stray.report(done(again))
        await until(lambda: not term.env.claimants.is_held(region))
        assert owner.name == "b"


@pytest.mark.parametrize("act", ["bypass", "abort"])
def test_a_server_whose_drain_was_ended_gets_regions_again(act: str) -> None:
    @virtual
    async def story() -> None:
        async with running(RegionDisk()) as term, serving(Server(term, "a")):
            await ended(term, creates(term))
            drain = await drains(term, "a")  # there is no other server
            await until(lambda: term.env.model.servers["a", 1].leaving)
            assert await getattr(term.engine, act)(drain)
            await until(lambda: term.engine.records[drain].state.is_final)
            assert not term.env.model.servers["a", 1].leaving
            assert term.env.draining == {}

    story()


@virtual
async def test_of_two_drains_the_other_one_goes_on_and_its_server_stays_leaving() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        first, second = await drains(term, "a"), await drains(term, "a")
        await until(lambda: term.env.model.servers["a", 1].leaving)
        assert await term.engine.bypass(second)
        await until(lambda: term.engine.records[second].state.is_final)
        assert term.env.model.servers["a", 1].leaving
        assert not term.engine.records[first].state.is_final


@virtual
async def test_a_drained_server_gets_regions_again_once_it_is_uncordoned() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a"), Server(term, "b")):
        await ended(term, creates(term))
        marks, removal = MarkView(domain(term)), MarkRemoval(kind="cordon", subject="a")
        with pytest.raises(NotFound):
            await marks.unmark(removal, "User:ops")
        await ended(term, drains(term, "a"))
        server = term.env.model.servers["a", 1]
        assert server.leaving
        item = await marks.unmark(removal, "User:ops")
        await term.engine.result(item.pid)
        assert not server.leaving


@virtual
async def test_a_drain_of_the_only_server_that_may_get_regions_is_refused_until_there_is_another() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        changes, request = view_of(domain(term)), ServerChange()
        with pytest.raises(ViewRefused, match="no server but a,1 may get regions") as refused:
            await changes.servers.change_server("drain", "a", request, "User:ops")
        assert refused.value.remedy == "start another server"
        async with serving(other := Server(term, "b")):
            term.env.model.marks.put(Mark(MarkKind.CORDON, "b"))
            with pytest.raises(ViewRefused, match="no server but a,1 may get regions") as refused:
                await changes.servers.change_server("drain", "a", request, "User:ops")
            assert "'regent servers uncordon b'" in refused.value.remedy
            term.env.model.marks.drop(MarkKind.CORDON, "b")
            drain = await changes.servers.change_server("drain", "a", request, "User:ops")
            await term.engine.result(drain.pid)
            assert other.has == {one.id: one.token for one in regions_of(term)}


@virtual
async def test_the_cordon_of_a_server_that_is_being_drained_names_the_drain() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        drain = await drains(term, "a")
        await until(lambda: term.env.model.servers["a", 1].leaving)
        with pytest.raises(ViewRefused) as refused:
            await MarkView(domain(term)).unmark(MarkRemoval(kind="cordon", subject="a"), "User:ops")
        assert f"abort {drain}" in refused.value.remedy


@virtual
async def test_a_server_leaves_although_an_operator_has_ended_its_drain() -> None:
    async with running(RegionDisk(), LONG) as term:
        server = Server(term, "a")
        polls = asyncio.ensure_future(_registered(server))
        await ended(term, creates(term))
        epoch = term.manager.epoch
        assert await server.ask(protocol.Leave("a", 1, epoch)) == Left(1)
        await until(lambda: term.env.draining)
        [drain] = term.env.draining
        assert await term.engine.bypass(drain)
        await until(lambda: term.engine.records[drain].state.is_final)
        async with serving(Server(term, "b")):
            while (left := await server.ask(protocol.Leave("a", 1, epoch))) != Left(0):
                assert isinstance(left, Left)
                await asyncio.sleep(0.5)
            assert ("a", 1) not in term.env.model.servers
        polls.cancel()


async def _registered(server: Server) -> None:
    assert isinstance(await server.register(), Registered)
    await server.serve()


@pytest.mark.parametrize("how", ["unusable", "bypassed"])
def test_a_server_that_closed_a_region_by_a_lost_procedure_is_not_ended_for_that(how: str) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with running(disk, LONG) as term:
            server = Server(term, "a")
            async with serving(server):
                await ended(term, creates(term, regions=2))
            region, other = regions_of(term)
            closing = await procedure(term, close.NAME, TRANSIT.encode(Transit(region.id, "t")))
            server.do(await server.operation())  # the daemon dies ahead of its report
            if how == "bypassed":
                assert await term.engine.bypass(closing)
                await until(lambda: term.engine.records[closing].state.is_final)
        for pid in list(disk.bodies):
            if how == "unusable":
                disk.bodies[pid] = b"rotten"
            elif pid > closing:
                del disk.bodies[pid]  # the daemon died ahead of what follows the bypass, too
        async with running(disk, LONG) as term:
            server = Server(term, "a")
            server.has = {other.id: other.token}
            await server.register(*(Owned(*one) for one in server.has.items()))
            polls = asyncio.ensure_future(server.serve())
            await asyncio.sleep(1.1)
            await server.ask(protocol.Regions("a", 1, server.epoch, [Owned(*one) for one in server.has.items()]))
            await until(lambda: set(server.has) == {region.id, other.id})
            assert term.env.model.servers["a", 1].state is ServerState.ONLINE
            assert not [one for one in term.engine.records.values() if one.kind == crash.NAME]
            polls.cancel()

    story()


@virtual
async def test_a_server_that_lost_a_region_is_ended_where_no_procedure_was_lost() -> None:
    disk = RegionDisk()
    async with running(disk, LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
    async with running(disk, LONG) as term:
        server = Server(term, "a")
        await server.register()
        await asyncio.sleep(1.1)
        await server.ask(protocol.Regions("a", 1, server.epoch, []))
        await until(lambda: term.env.model.servers["a", 1].state is ServerState.CRASHED)


@pytest.mark.parametrize("then", ["it is silent", "an operator tries again"])
def test_a_server_whose_expiry_was_refused_crashes_all_the_same(then: str) -> None:
    @virtual
    async def story() -> None:
        async with running(RegionDisk()) as term, serving(other := Server(term, "b")):
            async with serving(Server(term, "a")):
                await ended(term, creates(term, regions=4))
                changes, request = view_of(domain(term)), ServerChange()
                full = requests.ProcedureRefused("1000 requests wait: try again")
                with (
                    mock.patch.object(term.engine, "submit", side_effect=full),
                    pytest.raises(ViewRefused, match="1000"),
                ):
                    await changes.servers.change_server("expire", "a", request, "User:ops")
                if then == "an operator tries again":
                    await changes.servers.change_server("expire", "a", request, "User:ops")
            await until(lambda: ("a", 1) not in term.env.model.servers)
            assert other.has == {one.id: one.token for one in regions_of(term)}

    story()


@virtual
async def test_a_process_that_counts_as_crashed_is_expired_once() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "b")):
        changes, request = view_of(domain(term)), ServerChange()
        await Server(term, "a").register()
        server = term.env.model.servers["a", 1]
        term.manager.expire(server, "a test")
        with pytest.raises(ViewRefused, match="crash begins soon"):
            await changes.servers.change_server("expire", "a", request, "User:ops")
        await until(lambda: crash.NAME in [one.kind for one in term.engine.live()])
        item = await changes.servers.change_server("expire", "a", request, "User:ops")
        assert [one.pid for one in term.engine.live() if one.kind == crash.NAME] == [item.pid]


@virtual
async def test_a_step_that_fails_after_its_choice_leaves_no_server_with_regions_that_are_expected() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a")):
        run = term.engine._steps.run
        failures: list[int] = []

        async def fails(record: Record, act: Act) -> Any:
            effect = await run(record, act)
            if record.kind == "assign_many" and not record.step and len(failures) < 2:
                failures.append(record.pid)
                return replace(effect, outcome=Failed("a test"))
            return effect

        term.engine._steps.run = fails  # type: ignore[method-assign]
        await ended(term, creates(term, regions=3))
        assert len(failures) == 2
        assert term.env.model.servers["a", 1].expected == 0


@pytest.mark.parametrize("act", ["assign", "unassign"])
def test_a_region_that_a_server_may_have_without_a_procedure_is_assigned_or_closed_by_command(
    act: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    @virtual
    async def story() -> None:
        async with running(RegionDisk(), LONG) as term:
            await (server := Server(term, "a")).register()
            await creates(term)
            opening = await server.operation()
            monkeypatch.setattr("controller.regions.term.picked_up", lambda *_: None)
            assert await term.engine.bypass(opening.pid)
            [region] = regions_of(term)
            await until(lambda: not list(term.engine.live()))
            assert (region.state, region.pid) == (S.OPENING, 0)
            request = RegionChange()
            item = await view_of(domain(term)).region_changes.change_region(act, region.id, request, "User:ops")
            closing = await server.operation()
            assert isinstance(closing, Close)
            await server.report(done(closing))
            if act == "assign":
                await server.report(done(await server.operation()))
            await term.engine.result(item.pid)
            assert region.state is (S.OPEN if act == "assign" else S.CLOSED)

    story()


@virtual
async def test_an_enabling_of_what_is_being_created_is_refused_with_what_ends_it() -> None:
    async with running(RegionDisk()) as term:
        await (server := Server(term, "a")).register()
        creation = await creates(term)
        await server.operation()
        changes = view_of(domain(term))
        with pytest.raises(ViewRefused, match=f"procedure {creation}") as refused:
            await changes.tables.change_table("enable", "t", Change(), "User:ops")
        assert "'regent tables disable t' or 'regent tables delete t' ends it" in refused.value.remedy
        item = await changes.tables.change_table("delete", "t", Change(), "User:ops")
        polls = asyncio.ensure_future(server.serve())
        await server.report(protocol.Result(regions_of(term)[0].pid, protocol.FAILED_OPEN))
        await term.engine.result(item.pid)
        assert term.env.model.tables == {}
        polls.cancel()
