"""What operators see of regions: filters that hold together, pages that are whole, planned and repeated requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from controller.http.documents import Invalid
from controller.regions.domain import RegionsDomain, RegionsMode
from controller.regions.operator import regions as listing_of_regions
from controller.regions.operator import ways
from controller.regions.operator.marks import MarkRemoval, MarkRequest, MarkView
from controller.regions.operator.procedures import ProcedureQuery, ProcedureView
from controller.regions.operator.records import cause_of, step_of, unmet_of, why_of
from controller.regions.operator.regions import RegionQuery, region_page
from controller.regions.operator.servers import ServerChange, server_item
from controller.regions.operator.status import crashed
from controller.regions.operator.tables import table_page
from controller.regions.procedures import assign
from controller.regions.procedures.messages import MANY, TABLE_TASK, TRANSIT, Many, TableTask, Transit
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.states import RegionState, ServerState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.daemon import settings_of
from tests.kit.regions.term import view_of
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    creates,
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


def domain_of(term: RegionsTerm) -> RegionsDomain:
    found = SimpleNamespace(
        term=term,
        failed=False,
        mode=RegionsMode.ACTIVE,
        why="epoch 1",
        older="",
        listener=SimpleNamespace(port=1, connections=0),
    )
    return cast("RegionsDomain", found)


@virtual
async def test_a_hold_is_listed_until_its_time_is_over_and_a_mark_takes_what_is_its_own() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "a"), Server(term, "b")):
        marks = MarkView(domain_of(term))
        for one in (
            MarkRequest(kind="hold", subject="a", for_s=60),
            MarkRequest(kind="cordon", subject="b"),
        ):
            await term.engine.result((await marks.mark(one, "uid 0")).pid)
        cordon, hold = sorted(marks.listed(), key=lambda one: one.kind)
        assert (cordon.until, hold.subject, hold.server) == (None, "a", None)
        assert hold.until is not None
        assert 58_000 < hold.until.timestamp() * 1000 - term.env.wall_ms() <= 60_000
        await asyncio.sleep(61)
        assert [one.kind for one in marks.listed()] == ["cordon"]
        for wrong in (
            MarkRequest(kind="cordon", subject="a", server="b"),
            MarkRequest(kind="cordon", subject="a", for_s=5),
            MarkRequest(kind="hold", subject="a"),
        ):
            with pytest.raises(Invalid):
                await marks.mark(wrong, "uid 0")
        removal = MarkRemoval(kind="cordon", subject="b", nonce="n")
        first = await marks.unmark(removal, "uid 0")
        await term.engine.result(first.pid)
        assert (await marks.unmark(removal, "uid 0")).pid == first.pid, "the mark is gone, and the request known"


@virtual
async def test_filters_of_regions_hold_together() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "a"), Server(term, "b")):
        for name in ("t", "u"):
            await ended(term, creates(term, name, 4))

        def listed(**filters: Any) -> list[int]:
            return [one.id for one in region_page(term.env, RegionQuery(100, None, **filters)).items]

        of_a = [one for name in ("t", "u") for one in regions_of(term, name) if str(one.server) == "a,1"]
        moving = next(one for one in of_a if one.table.name == "u")
        elsewhere = next(one for one in regions_of(term, "u") if str(one.server) == "b,1")
        for region in (moving, elsewhere):
            term.env.model.attach(region, 7)
        assert listed(in_transition=True) == sorted([moving.id, elsewhere.id])
        assert listed(in_transition=True, server="a") == [moving.id]
        assert listed(in_transition=True, server="a", table="t") == []
        assert listed(server="a", table="u") == [one.id for one in of_a if one.table.name == "u"]
        term.env.model.servers["a", 1].state = ServerState.CRASHED
        assert listed(state="waiting") == [one.id for one in of_a]
        assert listed(state="open") == [
            one.id for name in ("t", "u") for one in regions_of(term, name) if str(one.server) == "b,1"
        ]
        assert listed(stranded=True) == []
        term.env.model.servers["a", 1].state = ServerState.ONLINE


@virtual
async def test_procedures_are_listed_with_their_parts_by_kind_and_those_that_live_alone() -> None:
    async with running(RegionDisk(), LONG) as term:
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=2))
        listing = ProcedureView(domain_of(term))
        made = await creates(term, "u")
        await until(lambda: any(one.kind == assign.NAME for one in term.engine.live()))

        def pids(**query: Any) -> list[int]:
            return [one.pid for one in listing.list_procedures(ProcedureQuery(100, 0, **query)).items]

        parts = [one.pid for one in term.engine.live() if one.kind == assign.NAME]
        assert pids(live=True) == [made]
        assert pids(kind=assign.NAME, live=True) == parts
        assert set(parts) < set(pids(live=True, parts=True))
        assert len(pids()) == 2, "the first creation is a result"
        term.engine._parking.parked[pids()[0]] = "it ended terms"
        term.engine._parking.parked[made] = "it ended terms"
        assert [one.parked for one in listing.list_procedures(ProcedureQuery(100, 0)).items] == ["", "it ended terms"]
        term.engine._parking.parked.clear()
        assert (await asyncio.wait_for(listing.one(made, 5.0), 6)).ended is False, "its wait is over, and it goes on"


def test_servers_are_counted_and_named_by_their_state(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)

    @virtual
    async def story() -> None:
        async with running(RegionDisk(), LONG) as term, serving(*(Server(term, name) for name in "abcd")):
            await ended(term, creates(term, regions=4))
            reading, model = view_of(domain_of(term), settings), term.env.model
            states = {"b": ServerState.CRASHED, "c": ServerState.FENCED}
            for name, state in states.items():
                model.servers[name, 1].state = state
            model.servers["d", 1].leaving = model.servers["b", 1].leaving = True
            found = reading.status.status()
            assert (found.servers, found.crashed_servers) == (2, 2)
            assert [one.state for one in reading.servers.list_servers()] == ["online", "crashed", "fenced", "leaving"]
            drained = [one for one in found.warnings if "were drained" in one]
            assert drained == ["servers d were drained, and get no regions until 'regent servers uncordon NAME'"]
            term.env.draining.update({98: ("a", 1), 99: ("d", 1)})
            assert not [one for one in reading.status.status().warnings if "were drained" in one], "it is being drained"
            assert reading.servers.describe_server("d").note.startswith("procedure 99 ")
            model.servers["a", 1].deadline_s = term.env.clock() - 5
            assert server_item(model.servers["a", 1], term.env).lease_left_s == 0.0
            term.env.draining.clear()

    story()


@virtual
async def test_a_planned_drain_is_planned_although_its_nonce_is_known() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "a"), Server(term, "b")):
        changes = view_of(domain_of(term))
        begun = await changes.servers.change_server(
            "drain", "a", ServerChange(nonce="n", reason="new  kernel "), "uid 0"
        )
        assert (begun.reason, begun.state != "planned") == ("new kernel", True)
        await term.engine.result(begun.pid)
        planned = await changes.servers.change_server("drain", "a", ServerChange(nonce="n", dry_run=True), "uid 0")
        assert (planned.pid, planned.state) == (0, "planned")


@pytest.mark.parametrize(
    ("kind", "result", "unmet"),
    [
        ("assign", b"open", False),
        ("assign", b"it is open already", False),
        ("move", b"it is there already", False),
        ("move", b"its table is disabled", True),
        ("create_table", b"0", False),
        ("create_table", b"", False),
        ("enable_table", b"2", True),
        ("drain_server", b"2", False),
    ],
)
def test_what_a_procedure_did_not_bring_about_is_unmet(kind: str, result: bytes, unmet: bool) -> None:
    record = Record(1, kind, State.SUCCESS, 0, 0, 0, result=result)
    assert bool(unmet_of(record)) is unmet
    assert unmet_of(replace(record, state=State.ROLLEDBACK)) == ""
    assert unmet_of(replace(record, bypassed=True)).startswith("it was ended as it is")


def test_a_record_of_another_version_is_shown_as_far_as_it_is_known() -> None:
    data = TRANSIT.encode(Transit(1, "t", "a crash", failed="no such volume"))
    record = Record(7, assign.NAME, State.WAITING, 99, 0, 0, data=data)
    env: Any = SimpleNamespace(causes=SimpleNamespace(of=lambda _: ""))
    assert (step_of(record), why_of(record), cause_of(record, env)) == ("99", "a crash", "no such volume")
    broken = replace(record, kind="assign_many", data=MANY.encode(Many("t"))[:3])
    assert (why_of(broken), cause_of(broken, env)) == ("", "")


def test_a_server_that_was_drained_names_what_lets_it_get_regions_again() -> None:
    @virtual
    async def story() -> None:
        async with running(RegionDisk(), LONG) as term, serving(Server(term, "a"), Server(term, "b")):
            a, b = (term.env.model.servers[name, 1] for name in "ab")
            assert (ways.of_leaving(a, term.env), a.leaving) == ("", False)
            a.leaving = b.leaving = True
            term.env.draining[98] = b.key
            assert ways.of_leaving(a, term.env).startswith("it was drained: 'regent servers uncordon a'")
            assert ways.of_leaving(b, term.env) == "procedure 98 (drain_server) moves its regions away"
            b.state = ServerState.CRASHED
            assert ways.of_leaving(b, term.env) == ""
            term.env.draining.clear()
            a.leaving = b.leaving = False
            b.state = ServerState.ONLINE

    story()


@virtual
async def test_the_largest_crashes_are_named_with_what_they_wait_for_and_the_others_counted() -> None:
    async with running(RegionDisk(), replace(LONG, startup_wait_ms=1)) as term:
        servers = [Server(term, name) for name in "abcde"]
        async with serving(*servers):
            await ended(term, creates(term, regions=10))
            model = term.env.model
            largest = model.servers["e", 1]
            for region in list(model.servers["d", 1].regions.values()):
                model.move(region, S.CLOSING, region.server, 0)
                model.move(region, S.CLOSED, None, 0)
                model.move(region, S.OPENING, largest, 0)
                model.move(region, S.OPEN, largest, 0)
            for server in model.servers.values():
                server.state = ServerState.CRASHED
            told = list(crashed(term))
            assert told[0].startswith("e,1 crashed with 4 regions: its crash begins with the next look at leases")
            assert (len(told), told[3]) == (4, "1 more servers crashed: see 'regent servers list'")
            for server in model.servers.values():
                server.state = ServerState.ONLINE


Page = Callable[[Any], tuple[list[Any], Any]]
"""Returns the items behind a cursor, and the next cursor."""


def whole(page: Page, first: Any = None) -> Iterator[Any]:
    """Yields all items of a list, page by page, as a client does."""
    after = first
    for _ in range(1_000):
        items, after = page(after)
        yield from items
        if not after:
            return
    raise AssertionError("its pages never end")


def regions_in(term: RegionsTerm, limit: int, **filters: Any) -> list[int]:
    def page(after: str | None) -> tuple[list[int], str | None]:
        found = region_page(term.env, RegionQuery(limit, after, **filters))
        assert len(found.items) <= limit
        return [one.id for one in found.items], found.next

    return list(whole(page))


@virtual
async def test_each_region_is_listed_once_also_where_few_of_many_match() -> None:
    async with running(RegionDisk()) as term:
        async with serving(Server(term, "s1"), Server(term, "s2")):
            for name in ("b", "a", "c"):
                await ended(term, creates(term, name, 7))
        every = [one.id for name in "abc" for one in regions_of(term, name)]
        few = [regions_of(term, "a")[3].id, regions_of(term, "c")[6].id]
        for id_ in few:
            term.env.model.regions[id_].state = RegionState.FAILED_OPEN
        at_one = [one for one in every if str(term.env.model.regions[one].server) == "s1,1"]
        with pytest.MonkeyPatch.context() as patch:
            for scanned in (listing_of_regions.SCANNED_ROWS_MAX, 4):
                patch.setattr(listing_of_regions, "SCANNED_ROWS_MAX", scanned)
                for limit in (1, 2, 7, 100):
                    assert regions_in(term, limit) == every
                    assert regions_in(term, limit, table="b") == [one.id for one in regions_of(term, "b")]
                    assert regions_in(term, limit, state="failed_open") == few
                    assert regions_in(term, limit, server="s1") == at_one
                    assert tables_in(term, limit) == ["a", "b", "c"]


def tables_in(term: RegionsTerm, limit: int) -> list[str]:
    def page(after: str | None) -> tuple[list[str], str | None]:
        found = table_page(term.env.model, limit, after)
        return [one.name for one in found.items], found.next

    return list(whole(page))


@virtual
async def test_a_list_goes_on_behind_a_table_that_was_deleted_between_two_of_its_pages() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "s1")):
        for name in ("a", "b", "c"):
            await ended(term, creates(term, name, 3))
        first, first_tables = region_page(term.env, RegionQuery(4)), table_page(term.env.model, 2, None)
        assert [one.table for one in first.items] == ["a", "a", "a", "b"]
        for change in ("disable_table", "delete_table"):
            await ended(term, procedure(term, change, TABLE_TASK.encode(TableTask("b"))))
        rest, rest_tables = region_page(term.env, RegionQuery(4, first.next)), table_page(term.env.model, 2, "b")
        assert ([one.table for one in rest.items], rest.next) == (["c", "c", "c"], None)
        assert [one.name for one in (*first_tables.items, *rest_tables.items)] == ["a", "b", "c"]
        moved = region_page(term.env, RegionQuery(4, first.next, server="s1"))
        assert [one.table for one in moved.items] == ["c", "c", "c"], "also of one server"


@virtual
async def test_each_procedure_is_listed_once() -> None:
    async with running(RegionDisk()) as term:
        async with serving(Server(term, "s1")):
            for name in ("a", "b", "c"):
                await ended(term, creates(term, name, 2))
        listing = ProcedureView(cast("RegionsDomain", SimpleNamespace(term=term)))
        every = sorted(term.engine.records)
        assert len(every) == 3
        for limit in (1, 2, 3, 4):

            def page(after: str, limit: int = limit) -> tuple[list[int], str | None]:
                found = listing.list_procedures(ProcedureQuery(limit, int(after or 0)))
                return [one.pid for one in found.items], found.next

            assert list(whole(page, "")) == every
