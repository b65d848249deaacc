"""Operators assign and unassign the regions of a file: those that cannot are left out, whatever happens beside them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from controller.http.documents import ViewRefused
from controller.http.procedures import Procedure
from controller.regions.domain import RegionsDomain
from controller.regions.operator import ways
from controller.regions.operator.procedures import ProcedureView
from controller.regions.operator.records import procedure_item
from controller.regions.operator.region_lists import ListAct, RegionList
from controller.regions.procedures import many
from controller.regions.procedures.by_ids import BY_IDS
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from controller.regions.term import RegionsTerm
from regent_agent.protocol import Open
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.entities import Region
from state_machines.regions.levels import OLDEST
from state_machines.regions.marks import STORE, Mark, MarkKind
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.term import view_of
from tests.kit.regions.world import (
    OPTIONS,
    Broken,
    Server,
    at_rest,
    changes,
    creates,
    ended,
    procedure,
    regions_of,
    running,
    serving,
    transits,
    until,
    virtual,
)

S = RegionState
LONG = replace(OPTIONS, lease_ms=100_000)
UNKNOWN = 999_999


class Hangs(Server):
    """A server whose open of one region never ends."""

    region = 0

    async def serve(self) -> None:
        while True:
            mine = [one for one in await self.poll() if not (isinstance(one, Open) and one.region == self.region)]
            if mine:
                await self.report(*map(self.do, mine))


def domain_of(term: RegionsTerm) -> RegionsDomain:
    return cast("RegionsDomain", SimpleNamespace(term=term))


async def asks(term: RegionsTerm, act: ListAct, ids: list[int], **more: Any) -> Procedure:
    request = RegionList(regions=ids, **more)
    return await view_of(domain_of(term)).region_lists.change_regions(act, request, "uid 0")


async def does(term: RegionsTerm, act: ListAct, ids: list[int], **more: Any) -> Record:
    return await term.engine.result((await asks(term, act, ids, **more)).pid)


def ids_of(term: RegionsTerm, *names: str) -> list[int]:
    return [one.id for name in names or ("t",) for one in regions_of(term, name)]


def states(regions: list[Region]) -> list[RegionState]:
    return [one.state for one in regions]


async def shown(term: RegionsTerm, pid: int) -> Procedure:
    return await ProcedureView(domain_of(term)).one(pid, 0)


@virtual
async def test_the_regions_of_a_file_are_closed_and_opened_of_all_its_tables() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "a"), Server(term, "b")):
        for name in ("t", "u"):
            await ended(term, creates(term, name, regions=3))
        ids = ids_of(term, "u", "t")
        closed = await does(term, "unassign", [*ids, ids[0]], reason="the disk")
        assert closed.result == b"6 closed"
        assert states(regions_of(term) + regions_of(term, "u")) == [S.CLOSED] * 6
        opened = await does(term, "assign", ids[:5])
        assert (opened.result, procedure_item(opened).unmet) == (b"5 assigned", "")
        assert states(regions_of(term)) == [S.OPEN, S.OPEN, S.CLOSED]
        item = procedure_item(closed)
        assert (item.kind, item.reason, item.detail) == ("close_regions", "the disk", "6 regions")
        assert BY_IDS.decode(closed.data).ids == (), "results are kept, and their ids are of no use"
        await at_rest(term)


@virtual
async def test_what_cannot_be_opened_is_left_out_and_named_and_ends_nothing() -> None:
    async with running(RegionDisk(), replace(LONG, open_attempts_max=1)) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=3))
        await ended(term, creates(term, "off", regions=2))
        await ended(term, procedure(term, "disable_table", TABLE_TASK.encode(TableTask("off"))))
        first, second, third = regions_of(term)
        for one in (second, third):
            await ended(term, transits(term, "close", one))
        term.env.model.attach(third, 777)  # a procedure has it
        off = ids_of(term, "off")
        ids = [*ids_of(term), UNKNOWN, *off]
        would = await asks(term, "assign", ids, dry_run=True)
        left = (
            f"5 left out: #{first.id} is open already, #{UNKNOWN} does not exist, #{third.id} is moved by another "
            f"procedure, #{off[0]}, #{off[1]} are of tables that are not enabled"
        )
        assert (would.state, would.detail) == ("planned", f"1 of 6 regions would be assigned, {left}")
        assert second.state is S.CLOSED, "nothing was changed"
        done = await does(term, "assign", ids)
        assert done.result.decode() == f"1 assigned, {left}"
        assert (done.state, second.state) == (State.SUCCESS, S.OPEN)
        assert procedure_item(done).unmet == "4 of 6 regions not assigned: " + left.partition("already, ")[2]
        term.env.model.detach(third, 777)


@virtual
async def test_what_is_as_it_was_to_be_already_is_nothing_undone() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=5))
        ids = ids_of(term)
        done = await does(term, "assign", ids)
        said = f"0 assigned, 5 left out: #{ids[0]}, #{ids[1]}, #{ids[2]} and 2 more are open already"
        assert (done.result.decode(), procedure_item(done).unmet) == (said, "")
        assert BY_IDS.decode(done.data).ids == (), "also where none was begun"


@virtual
async def test_a_region_that_no_server_can_open_is_counted_and_the_others_are_opened() -> None:
    async with running(RegionDisk(), replace(LONG, open_attempts_max=1)) as term, serving(Broken(term, "a")):
        await ended(term, creates(term, regions=2))
        ids = ids_of(term)
        done = await does(term, "assign", ids)
        assert states(regions_of(term)) == [S.FAILED_OPEN] * 2
        named = f"#{ids[0]}, #{ids[1]} could not be opened"
        assert done.result.decode() == f"0 assigned, 2 left out: {named}"
        assert procedure_item(done).unmet == f"2 of 2 regions not assigned: {named}"


@virtual
async def test_one_nonce_is_one_procedure_and_other_ids_are_refused_with_it() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=3))
        ids = ids_of(term)
        begun = await asks(term, "unassign", ids[:2], nonce="n")
        await term.engine.result(begun.pid)
        for again in (ids[:2], [ids[1], ids[0], ids[0]]):
            assert (await asks(term, "unassign", again, nonce="n")).pid == begun.pid
        with pytest.raises(
            ViewRefused, match=rf"the nonce 'n' is that of procedure {begun.pid} \(close_regions, 2 regions"
        ):
            await asks(term, "unassign", [ids[0], ids[2]], nonce="n")
        with pytest.raises(ViewRefused, match="the nonce 'n' is that"):
            await asks(term, "assign", ids[:2], nonce="n")
        assert states(regions_of(term)) == [S.CLOSED, S.CLOSED, S.OPEN]


@virtual
async def test_a_store_of_the_oldest_level_gets_none_of_their_records() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        term.env.model.marks.put(Mark(MarkKind.LEVEL, STORE, str(OLDEST)))
        acts: tuple[ListAct, ...] = ("assign", "unassign")
        for act in acts:
            with pytest.raises(ViewRefused, match="needs level 2 of the store"):
                await asks(term, act, ids_of(term))


@virtual
async def test_its_progress_and_what_ends_it_are_shown_while_a_server_hangs() -> None:
    """A bypass of the open that hangs ends the whole as it is; the other regions were begun beside it."""
    async with running(RegionDisk(), LONG) as term:
        server = Hangs(term, "a")
        async with serving(server):
            await ended(term, creates(term, regions=2))
            region, other = regions_of(term)
            await does(term, "unassign", [region.id, other.id])
            server.region = region.id
            pid = (await asks(term, "assign", [region.id, UNKNOWN, other.id])).pid
            await until(lambda: region.state is S.OPENING and other.state is S.OPEN)
            item = await shown(term, pid)
            assert "1 of 3 regions assigned, 1 left out: #999999 does not exist" in str(item.progress)
            told = ways.of_procedure(term.engine.records[pid], term.env, term.engine)
            assert f"'regent regions procedures bypass {region.pid}' gives it up" in told
            assert f"ends procedure {pid} (assign_regions), with all of its parts" in told
            await term.engine.bypass(region.pid)
            record = await term.engine.result(pid)
            assert procedure_item(record).state == "bypassed"
            assert "regions list --stranded" in procedure_item(record).unmet


@virtual
async def test_a_table_that_is_disabled_meanwhile_ends_the_opens_of_its_regions_alone() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "b")):
        for name in ("t", "u"):
            await ended(term, creates(term, name, regions=2))
        await does(term, "unassign", ids_of(term, "t", "u"))
        pid = (await asks(term, "assign", ids_of(term, "t", "u"))).pid
        disabled = await changes(term, "disable")
        done, other = await asyncio.gather(term.engine.result(pid), term.engine.result(disabled))
        assert (other.state, done.state) == (State.SUCCESS, State.SUCCESS)
        assert not [one for one in regions_of(term) if one.server is not None]
        assert states(regions_of(term, "u")) == [S.OPEN] * 2
        await at_rest(term)


@virtual
async def test_a_daemon_that_takes_over_goes_on_with_the_same_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "TOGETHER", 2)
    monkeypatch.setattr(many, "BATCHES_MAX", 2)
    disk = RegionDisk()
    first = Server(cast("RegionsTerm", None), "a")
    async with running(disk, LONG) as term:
        first.term = term
        async with serving(first):
            await ended(term, creates(term, regions=11))
            ids = ids_of(term)
            pid = (await asks(term, "unassign", ids, nonce="n")).pid
            await until(lambda: any(one.state is S.CLOSED for one in regions_of(term)))
            assert BY_IDS.decode(term.engine.records[pid].data).ids, "not all have begun"
    async with running(disk, LONG) as term:
        first.term = term
        async with serving(first):
            assert (await asks(term, "unassign", ids, nonce="n")).pid == pid
            assert (await term.engine.result(pid)).result == b"11 closed"
            assert states(regions_of(term)) == [S.CLOSED] * 11
            assert first.has == {}
            await at_rest(term)


@virtual
async def test_an_abort_begins_no_further_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "TOGETHER", 1)
    monkeypatch.setattr(many, "BATCHES_MAX", 2)
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=6))
        pid = (await asks(term, "unassign", ids_of(term))).pid
        await until(lambda: bool(BY_IDS.decode(term.engine.records[pid].data).begun))
        told = ways.of_procedure(term.engine.records[pid], term.env, term.engine)
        assert f"'regent regions procedures abort {pid}' begins no further region" in told
        await term.engine.abort(pid)
        assert (await term.engine.result(pid)).state is State.ROLLEDBACK
        await at_rest(term)
        assert set(states(regions_of(term))) == {S.OPEN, S.CLOSED}


@virtual
async def test_their_batches_wait_while_too_many_regions_are_in_transition() -> None:
    async with running(RegionDisk(), replace(LONG, transit_max=2)) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=3))
        ids = ids_of(term)
        await does(term, "unassign", ids)
        others = [Region(10_000 + at, regions_of(term)[0].table, b"", b"", S.OFFLINE) for at in range(2)]
        term.env.model.transit.update({one.id: one for one in others})
        pid = (await asks(term, "assign", ids)).pid
        await asyncio.sleep(5)
        assert states(regions_of(term)) == [S.CLOSED] * 3
        for one in others:
            del term.env.model.transit[one.id]
        assert (await term.engine.result(pid)).result == b"3 assigned"
