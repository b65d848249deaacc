"""Terms on a store with damaged rows: what is bad is left out and kept, and everything else is served."""

from __future__ import annotations

import asyncio
import itertools
import random
from types import SimpleNamespace
from typing import cast

import pytest

from configs.loading import load
from controller.http.documents import NotFound, ViewRefused
from controller.regions import damaged, entering, fencing
from controller.regions.domain import RegionsDomain, RegionsMode
from controller.regions.fencing import LeaseAndFence
from controller.regions.operator.namespaces import NamespaceCreation
from controller.regions.operator.regions import RegionQuery, region_page
from controller.regions.operator.requests import Change
from controller.regions.operator.tables import TableCreation
from controller.regions.operator.view import View, gauges_of
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from controller.regions.term import RegionsTerm
from metadata_store.catalog.judging import INT_MAX
from metadata_store.catalog.rows import Content, MarkRow, RegionRow, ServerRow, TableRow
from regent_agent import protocol
from regent_agent.protocol import Owned, Routes
from regent_agent.protocol import Refused as RefusedResponse
from state_machines.procedures.states import State
from state_machines.regions.damage import Damage, Damages, Gap, RowKind
from state_machines.regions.keys import Keys
from state_machines.regions.marks import MarkKind
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.term import view_of
from tests.kit.regions.world import (
    Hung,
    Server,
    creates,
    creating,
    ended,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)
from tests.simulation.regions.test_marks import marked

COUNT = 4
HALF = b"80000000"


async def made(disk: RegionDisk, *names: str) -> None:
    """Has a term create tables, whose regions the server a has in the end."""
    async with running(disk) as term, serving(Server(term, "a")):
        for name in names or ("t", "u"):
            await ended(term, creates(term, name, COUNT))


def changes_of(term: RegionsTerm) -> View:
    return view_of(cast("RegionsDomain", SimpleNamespace(term=term)))


def reading_of(term: RegionsTerm) -> View:
    listener = SimpleNamespace(port=1, connections=0)
    domain = SimpleNamespace(term=term, mode=RegionsMode.ACTIVE, why="", older="", listener=listener)
    settings = load(environ={"REGENT_REGIONS__HOST": "127.0.0.1"}, kafka_optional=True).settings
    return view_of(cast("RegionsDomain", domain), settings)


def rows(disk: RegionDisk, table: str = "t") -> list[RegionRow]:
    return sorted((one for one in disk.regions.values() if one.table == table), key=lambda one: one.start)


async def located(term: RegionsTerm, table: str, key: bytes) -> object:
    return await term.service.handle(protocol.Locate(table, key))


@virtual
async def test_a_damaged_region_leaves_a_hole_that_is_shown_and_never_answered() -> None:
    disk = RegionDisk()
    await made(disk)
    bad = rows(disk)[2]
    disk.regions[bad.id] = bad._replace(state=99)
    async with running(disk) as term, serving(Server(term, "a", 2)):
        refused = await located(term, "t", bad.start)
        assert isinstance(refused, RefusedResponse)
        assert (refused.code, "no region has the keys" in refused.text) == (protocol.DAMAGED, True)
        for table, key in (("t", bad.end), ("t", b""), ("u", bad.start)):
            found = await located(term, table, key)
            assert isinstance(found, Routes)
            [route] = found.routes
            assert route.start <= key
            assert not route.end or key < route.end
        assert len(regions_of(term)) == COUNT - 1
        listed = region_page(term.env, RegionQuery(10, None, "t", None, None, False, False)).items
        assert [(one.id > 0, one.state == "HOLE") for one in listed] == [
            *[(True, False)] * 2, (False, True), (True, False),
        ]  # fmt: skip
        assert listed[2].start == bad.start.decode()
        status = reading_of(term).status.status()
        assert (status.damaged_rows, status.gaps, status.regions) == (1, 1, 2 * COUNT - 1)
        assert any(f"left out, region {bad.id}: state is 99" in one for one in status.warnings)
        page = reading_of(term).tables.list_tables(10, None)
        for one in (page.items[0], reading_of(term).tables.describe_table("t")):
            assert (one.name, one.regions, one.gaps) == ("t", COUNT - 1, 1)
            assert f"region {bad.id}: state is 99" in one.damage
            assert "no region has the keys from" in one.damage
        assert (page.items[1].gaps, page.items[1].damage) == (0, "")
        with pytest.raises(NotFound, match=f"region {bad.id} is left out: region {bad.id}: state is 99"):
            reading_of(term).regions.describe_region(bad.id)
        gauges = gauges_of(cast("RegionsDomain", SimpleNamespace(term=term, listener=SimpleNamespace(connections=0))))
        assert (gauges.damaged_rows, gauges.gaps) == (1, 1)
    assert disk.regions[bad.id].state == 99, "it stays as it is"


@virtual
async def test_a_server_keeps_a_region_that_is_left_out() -> None:
    """Nobody else gets it, and it is no stray: were it closed, nobody would serve its keys."""
    disk = RegionDisk()
    await made(disk)
    bad = rows(disk)[0]
    disk.regions[bad.id] = bad._replace(sequence=-1)
    async with running(disk) as term:
        server = Server(term, "a", 1)
        has = [Owned(one.id, one.token) for table in ("t", "u") for one in rows(disk, table)]
        await server.register(*has)
        for _ in range(10):
            assert not await server.poll()
            await server.ask(protocol.Regions("a", 1, server.epoch, has))
        await server.ask(protocol.Regions("a", 1, server.epoch, [*has, Owned(9_999, 1)]))
        operation = await server.operation()
        assert isinstance(operation, protocol.Close)
        assert operation.region == 9_999, "a real stray is closed"


@virtual
async def test_nothing_takes_the_place_of_a_damaged_table_and_no_part_of_it_is_deleted() -> None:
    disk = RegionDisk()
    await made(disk, "t", "u", "v")
    disk.tables["t"] = disk.tables["t"]._replace(state=99)
    bad = rows(disk, "u")[1]
    disk.regions[bad.id] = bad._replace(token=-5)
    async with running(disk) as term, serving(Server(term, "a", 2)):
        assert set(term.env.model.tables) == {"u", "v"}
        told = next(one for one in reading_of(term).status.status().warnings or () if "left out, with" in one)
        assert told.startswith(f"2 damaged rows left out, with {COUNT} sound regions of tables that are; ")
        assert "stop the daemon, restore the rows from a copy of the store, then start it" in told
        changes = changes_of(term)
        with pytest.raises(ViewRefused, match=r"table 't' is stored already, and left out \(table t: state is 99"):
            await changes.tables.create_table(TableCreation(name="t"), "ops")
        with pytest.raises(NotFound, match="table 't' is left out"):
            await changes.tables.change_table("delete", "t", Change(), "ops")
        refused = await located(term, "t", b"k")
        assert isinstance(refused, RefusedResponse)
        assert refused.code == protocol.DAMAGED
        for table in ("u", "v"):
            begun = await changes.tables.change_table("disable", table, Change(), "ops")
            assert (await term.engine.result(begun.pid)).state is State.SUCCESS, "the sound part is closed"
        with pytest.raises(ViewRefused, match=f"table 'u' cannot be deleted whole: region {bad.id}: token is -5"):
            await changes.tables.change_table("delete", "u", Change(), "ops")
        begun = await changes.tables.change_table("delete", "v", Change(), "ops")
        assert (await term.engine.result(begun.pid)).state is State.SUCCESS
        term.env.model.damages.add(Damage(RowKind.NAMESPACE, "row 1", "name", "", "a test", "n"))
        with pytest.raises(ViewRefused, match="namespace 'n' is stored already, and left out: it is damaged"):
            await changes.namespaces.create_namespace(NamespaceCreation(name="n"), "ops")
    assert (len(rows(disk, "t")), len(rows(disk, "u")), len(rows(disk, "v"))) == (COUNT, COUNT, 0)


@virtual
async def test_changes_that_began_before_wait_and_the_term_goes_on() -> None:
    """They were stored, or admitted, while their tables were sound."""
    disk = RegionDisk()
    await made(disk)
    async with running(disk) as term, serving(Server(term, "a", 2)):
        for table in ("t", "u"):
            await ended(term, procedure(term, "disable_table", TABLE_TASK.encode(TableTask(table))))
    disk.tables["t"] = disk.tables["t"]._replace(kind=-1)
    bad = rows(disk, "u")[0]
    disk.regions[bad.id] = bad._replace(state=99)
    async with running(disk) as term, serving(Server(term, "a", 3)):
        enables = await procedure(term, "enable_table", TABLE_TASK.encode(TableTask("t")))
        deletes = await procedure(term, "delete_table", TABLE_TASK.encode(TableTask("u")))
        await asyncio.sleep(5)
        for pid, why in ((enables, "table t is left out"), (deletes, "table u cannot be deleted whole")):
            record = term.engine.records[pid]
            assert not record.state.is_final
            assert why in record.error
        await ended(term, creates(term, "w", COUNT))
    assert len(rows(disk, "u")) == COUNT, "no part of it is removed"


@virtual
async def test_a_region_stays_at_a_process_whose_own_row_is_damaged() -> None:
    """With its name the process is a member, whose lease must run out first; without it nobody may have its regions."""
    disk = RegionDisk()
    await made(disk)
    disk.servers["a", 1] = ServerRow("a", 1, cast("str", 7))
    async with running(disk) as term, serving(Server(term, "b")):
        await asyncio.sleep(1)
        assert {str(one.server) for one in regions_of(term)} == {"a,1"}
        await until(lambda: {str(one.server) for one in regions_of(term)} == {"b,1"})
    disk.servers["b", 1] = ServerRow("b", cast("int", "one"), "b:1")
    async with running(disk) as term, serving(Server(term, "c")):
        await asyncio.sleep(10)
        assert not term.env.model.regions, "b may have all of them still"
        assert term.env.model.damages.count[RowKind.REGION] == 2 * COUNT
    assert {one.server for one in disk.regions.values()} == {"b"}


@virtual
async def test_a_region_stays_at_a_process_of_which_no_row_tells_until_its_lease_is_over() -> None:
    """It may serve still: so it is a member, whose crash is dealt with. One that was fenced is none."""
    disk = RegionDisk()
    await made(disk)
    del disk.servers["a", 1]
    async with running(disk) as term, serving(Server(term, "b")):
        await asyncio.sleep(1)
        assert {str(one.server) for one in regions_of(term)} == {"a,1"}
        await until(lambda: {str(one.server) for one in regions_of(term)} == {"b,1"})
        assert term.env.model.is_buried(("a", 1)), "its crash was dealt with"
    for row in rows(disk):
        disk.regions[row.id] = row._replace(server="a")
    async with running(disk) as term, serving(Server(term, "c")):
        assert ("a", 1) not in term.env.model.servers, "it was fenced"
        await until(lambda: {str(one.server) for one in regions_of(term)} == {"c,1"})


@virtual
async def test_an_open_under_way_at_a_process_of_which_no_row_tells_waits_for_its_lease() -> None:
    """It may have the region by now: its answer was not stored."""
    disk = RegionDisk()
    async with running(disk) as term, serving(Hung(term, "a")):
        await creating(term, 1)
        await until(lambda: any(one.state is RegionState.OPENING and one.server for one in regions_of(term)))
        await asyncio.sleep(0.2)
    del disk.servers["a", 1]
    async with running(disk) as term, serving(Server(term, "b")):
        [region] = regions_of(term)
        await asyncio.sleep(1)
        assert (str(region.server), region.state) == ("a,1", RegionState.OPENING)
        await until(lambda: region.state is RegionState.OPEN)
        assert (str(region.server), term.env.model.is_buried(("a", 1))) == ("b,1", True)


class FenceUnreadable(MemoryRegionStore):
    """Holds a damaged row about the fenced processes of the server a."""

    async def read(self) -> Content:
        found = await super().read()
        return found._replace(damaged=(Damage(RowKind.BURIED, "row 1", "incarnation", "x", "it is no number", "a"),))


@virtual
async def test_a_name_whose_fence_cannot_be_read_is_no_sign_that_a_process_was_fenced() -> None:
    disk = RegionDisk()
    await made(disk)
    del disk.servers["a", 1]
    async with running(disk, store=FenceUnreadable) as term, serving(Server(term, "b")):
        await asyncio.sleep(1)
        assert {str(one.server) for one in regions_of(term)} == {"a,1"}
        await until(lambda: {str(one.server) for one in regions_of(term)} == {"b,1"})


@virtual
async def test_a_process_of_which_no_row_tells_keeps_its_regions_where_it_comes_again() -> None:
    disk = RegionDisk()
    await made(disk)
    has = [Owned(one.id, one.token) for table in ("t", "u") for one in rows(disk, table)]
    del disk.servers["a", 1]
    async with running(disk) as term, serving(Server(term, "b")):
        server, member = Server(term, "a", 1), term.env.model.servers["a", 1]
        member.address = "a:1"  # the same as it registers with: the row is stored all the same
        await server.register(*has)
        assert disk.servers["a", 1].address == member.address
        assert {str(one.server) for one in regions_of(term)} == {"a,1"}


@virtual
async def test_regions_that_overlap_are_told_to_no_client() -> None:
    disk = RegionDisk()
    await made(disk)
    first, second, third, _ = rows(disk)
    disk.regions[first.id] = first._replace(end=second.end)
    async with running(disk) as term, serving(Server(term, "a", 2)):
        await until(lambda: {str(one.server) for one in regions_of(term)} == {"a,2"})
        await until(lambda: all(one.state is RegionState.OPEN for one in regions_of(term)))
        for key in (second.start, second.end[:-1]):
            refused = await located(term, "t", key)
            assert isinstance(refused, RefusedResponse)
            assert f"regions {[first.id, second.id]} overlap" in refused.text
        for key, owner in ((b"", ""), (third.start, "a")):
            found = await located(term, "t", key)
            assert isinstance(found, Routes)
            assert found.routes[0].server == owner
        items = region_page(term.env, RegionQuery(10, None, None, None, None, False, False)).items
        assert [one.state for one in items if not one.id] == ["OVERLAP"]
        pages: list[int] = []
        after: str | None = None
        while True:
            page = region_page(term.env, RegionQuery(1, after, None, None, None, False, False))
            pages += [one.id for one in page.items]
            if (after := page.next) is None:
                break
        assert pages == [one.id for one in items], "each once, however short pages are"


@virtual
async def test_a_pin_of_a_region_that_is_left_out_outlives_other_marks() -> None:
    disk = RegionDisk()
    await made(disk)
    bad = rows(disk)[0]
    async with running(disk) as term, serving(Server(term, "a", 2)):
        await marked(term, MarkKind.PIN, str(bad.id), "a")
        await marked(term, MarkKind.PIN, "77777", "a")
    disk.regions[bad.id] = disk.regions[bad.id]._replace(state=99)
    async with running(disk) as term, serving(Server(term, "a", 3)):
        await marked(term, MarkKind.CORDON, "a")
    assert {subject for kind, subject in disk.marks if kind == MarkKind.PIN} == {str(bad.id)}


def test_a_name_whose_fenced_incarnations_cannot_be_read_stays_away() -> None:
    model = Regions()
    damaged.keep_away(model, [Damage(RowKind.BURIED, "row 1", "incarnation", "'x'", "it is no number", "s1")])
    assert model.is_buried(("s1", INT_MAX))
    assert not model.is_buried(("s2", 1))


@pytest.mark.parametrize("fence", ["leas", None])
def test_a_regime_that_cannot_be_read_counts_as_the_longest_lease(fence: str | None) -> None:
    present = LeaseAndFence(3_000, fencing.LEASE)
    marks = [] if fence is None else [MarkRow(fencing.MARK_KIND, fencing.MARK_SUBJECT, fence, 5_000)]
    bad = [Damage(RowKind.MARK, "row 1", "until_ms", "-1", "a test", f"{fencing.MARK_KIND} of {fencing.MARK_SUBJECT}")]
    content = Content([], [], [], [], {}, marks, bad if fence is None else [])
    found, why = damaged.lease_and_fence_of(content, present)
    assert found == LeaseAndFence(damaged.LEASE_MS_MAX, fencing.LEASE)
    assert len(why) == (fence is not None)
    good = Content([], [], [], [], {}, [MarkRow(fencing.MARK_KIND, fencing.MARK_SUBJECT, fencing.LEASE, 5_000)])
    assert damaged.lease_and_fence_of(good, present) == (LeaseAndFence(5_000, fencing.LEASE), [])


def test_keys_have_a_gap_exactly_where_not_one_region_has_them() -> None:
    """Against a count of the regions of each key, over random layouts."""
    draw = random.Random(7)
    for _ in range(3_000):
        points = sorted(draw.sample(range(12), draw.randint(1, 5)))
        starts = [b"" if not at else b"%02d" % at for at in points]
        ranges = sorted((start, draw.choice([one for one in (*starts, b"11", b"") if not one or one > start]))
                        for start in draw.choices(starts, k=draw.randint(1, 5)))  # fmt: skip
        keys, damages = Keys("t"), Damages()
        gaps: list[Gap | None] = [keys.next(at, *one) for at, one in enumerate(ranges, 1)]
        for gap in (*gaps, keys.over()):
            if gap is not None:
                damages.add_gap(gap)
        for key in (b"", *(b"%02d" % at for at in range(13)), b"xx"):
            having = sum(start <= key and (not end or key < end) for start, end in ranges)
            found = damages.gap_at("t", key)
            assert (found is None) is (having == 1), (ranges, key, having)
            assert found is None or found.overlap is (having > 1), (ranges, key)


def test_a_table_without_any_region_has_no_answer_at_all() -> None:
    assert [str(one) for one in itertools.chain(_of(TableRow("t", 2, 0)), _of(TableRow("t", 2, 1)))] == [
        "table t: no region has the keys from b'' to the end"
    ]


def _of(table: TableRow) -> list[Gap]:
    model = Regions()
    asyncio.run(entering.enter(model, Content([], [table], [], []), 0))
    return list(model.damages.gaps)
