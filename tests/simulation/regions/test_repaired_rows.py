"""A row that no id names is removed, and the row of a table is stored again: nothing that may serve loses its keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from controller.http.documents import Invalid, ViewRefused
from controller.http.procedures import Procedure
from controller.regions.operator.rows import RowRemoval, Rows, TableAdoption
from controller.regions.operator.servers import ServerChange
from controller.regions.operator.table_changes import Modification, TableChanges
from controller.regions.procedures import fixing, rows, servers
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import MarkRow, ServerRow, TableRow
from state_machines.procedures.states import State
from state_machines.regions.findings import COPY
from state_machines.regions.marks import MarkKind
from state_machines.regions.states import RegionState, TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.repairs import COUNT, LONG, changed, counts_of, joins, mends_of, result_of, view_on
from tests.kit.regions.term import view_of
from tests.kit.regions.world import (
    Server,
    at_rest,
    changes,
    ended,
    lists,
    procedure,
    regions_of,
    running,
    serving,
    virtual,
)
from tests.simulation.regions.test_recover import recovers, with_a_lost_member

S = RegionState
Change = Callable[[RegionDisk, list[int]], None]
MARK = "mark ('weight', 's1')"
REMOVED = f"'regent regions remove-row \"{MARK}\"' removes it"


async def removes(term: RegionsTerm, place: str, *, reason: str = "no copy has it", dry_run: bool = False) -> Procedure:
    request = RowRemoval(place=place, reason=reason, dry_run=dry_run)
    return await Rows(view_on(term)).remove(request, "ops")


async def adopts_table(term: RegionsTerm, table: str = "t", **fields: object) -> Procedure:
    request = TableAdoption.model_validate({"reason": "no copy has it"} | fields)
    return await Rows(view_on(term)).adopt_table(table, request, "ops")


def heavy(disk: RegionDisk, _: list[int]) -> None:
    """Damages a mark."""
    disk.marks["weight", "s1"] = MarkRow(MarkKind.WEIGHT, "s1", "heavy")


# -- rows that no id names


@virtual
async def test_a_row_that_no_id_names_is_removed_and_the_report_is_clean() -> None:
    disk = RegionDisk()
    async with changed(disk, heavy) as (term, owned):
        joined = await joins(term, Server(term, "a", 2), owned)
        assert await mends_of(term) == [f"{COPY}{REMOVED}"]
        planned = await removes(term, MARK, dry_run=True, reason="")
        assert planned.state == "planned"
        assert planned.detail.endswith("'heavy': it is no weight from 0.1 to 1000; what it meant holds no longer")
        with pytest.raises(Invalid, match="reason is empty"):
            await removes(term, MARK, reason=" ")
        record = await result_of(term, await removes(term, MARK))
        assert (record.state, record.result) == (State.SUCCESS, b"it is removed")
        assert ("weight", "s1") not in disk.marks
        assert await counts_of(term) == {}
        with pytest.raises(ViewRefused, match="no row at "):
            await removes(term, MARK)
        joined.cancel()
    async with running(disk, LONG) as term:
        assert not term.env.model.damages.rows


@virtual
async def test_a_row_that_is_another_by_now_stays() -> None:
    disk = RegionDisk()
    async with changed(disk, heavy) as (term, _):
        data = rows.ROW_TASK.encode(rows.RowTask(MARK, "what an operator has read"))
        record = await term.engine.result(await procedure(term, rows.REMOVE, data))
        assert record.state is State.ROLLEDBACK
        assert record.error.startswith("remove_row: another row is there by now (mark ('weight', 's1'): value is")
        assert ("weight", "s1") in disk.marks
        gone = rows.ROW_TASK.encode(rows.RowTask("row 9 of table mark", "a"))
        record = await term.engine.result(await procedure(term, rows.REMOVE, gone))
        assert (record.state, record.result) == (State.SUCCESS, b"it is gone already")


@pytest.mark.seed("S1-96")
@virtual
async def test_the_row_of_a_process_that_it_does_not_name_goes_once_that_cannot_serve() -> None:
    """Its regions come first, and then its lease has to be over. Until then no keys are given away."""
    disk = RegionDisk()
    place = "server ('a', 0)"
    async with with_a_lost_member(disk) as (term, _):
        with pytest.raises(ViewRefused, match="regions that are left out may be open at that process") as refused:
            await removes(term, place)
        assert refused.value.remedy == "'regent servers recover a,1' comes first, then restart the daemon"
        await result_of(term, await recovers(term, "a"))
    async with running(disk) as term, serving(Server(term, "b", 2)):
        with pytest.raises(ViewRefused, match="the process of that row may serve still") as refused:
            await removes(term, place)
        assert refused.value.remedy.startswith("repeat it in ")
        fills = TABLE_TASK.encode(TableTask("t"))
        record = await term.engine.result(await procedure(term, fixing.NAME, fills))
        assert "a process whose row cannot be read may serve keys" in record.error
        data = rows.ROW_TASK.encode(rows.RowTask(place, str(term.env.model.damages.at(place))))
        record = await term.engine.result(await procedure(term, rows.REMOVE, data))
        assert (record.state, "may serve still" in record.error) == (State.ROLLEDBACK, True), "the step judges it, too"
        await asyncio.sleep((rows.lease_left_s(term.env) or 0.0) + 0.1)
        planned = await removes(term, place, dry_run=True)
        assert planned.detail.endswith("its regions lack the edits that are in it alone")
        assert (await result_of(term, await removes(term, place))).state is State.SUCCESS
        assert ("a", 0) not in disk.servers
        record = await term.engine.result(await procedure(term, fixing.NAME, fills))
        assert (record.state, record.result) == (State.SUCCESS, b"0")


@virtual
async def test_the_damage_of_a_process_that_names_itself_is_over_once_it_registers_or_is_expired() -> None:
    disk = RegionDisk()

    def no_address(disk: RegionDisk, _: list[int]) -> None:
        disk.servers["a", 1] = ServerRow("a", 1, cast("str", 7))

    async with changed(disk, no_address) as (term, owned):
        [mend] = await mends_of(term)
        assert mend.endswith("as it registers; else 'regent servers expire a,1' removes it with its process")
        with pytest.raises(ViewRefused, match="what the row is about is known"):
            await removes(term, "server ('a', 1)")
        joined = await joins(term, Server(term, "a"), owned)
        assert await counts_of(term) == {}
        assert disk.servers["a", 1].address == "a:1"
        joined.cancel()
    no_address(disk, [])
    async with running(disk, LONG) as term, serving(Server(term, "b")):
        view = view_of(view_on(term)).servers
        begun = await view.change_server("expire", "a,1", ServerChange(reason="it is gone"), "ops")
        assert (await term.engine.result(begun.pid)).state is State.SUCCESS
        await at_rest(term)
        assert (await counts_of(term), ("a", 1) in disk.servers) == ({}, False)


# -- rows of tables


def broken(disk: RegionDisk, _: list[int]) -> None:
    """Damages the row of the table."""
    disk.tables["t"] = TableRow("t", 2, 99, (("ttl", "60"),))


def without_table(disk: RegionDisk, _: list[int]) -> None:
    """Loses the row of the table."""
    del disk.tables["t"]


@pytest.mark.parametrize("change", [broken, without_table])
@virtual
async def test_the_regions_of_a_table_are_its_own_once_its_row_is_stored_again(change: Change) -> None:
    disk = RegionDisk()
    async with changed(disk, change) as (term, _):
        assert any("'regent tables adopt t' stores the row of the table again" in one for one in await mends_of(term))
        planned = await adopts_table(term, options={"ttl": "120"}, dry_run=True)
        own = f"its {COUNT} regions that are left out are its own after a restart"
        assert planned.detail.startswith(f"table t with kind user, state enabled and options ttl=120: {own}; ")
        record = await result_of(term, await adopts_table(term, options={"ttl": "120"}))
        assert (record.state, record.result) == (State.SUCCESS, servers.RECOVERED)
        row = disk.tables["t"]
        assert (row.state, row.options, row.version) == (TableState.ENABLED, (("ttl", "120"),), record.pid)
    async with running(disk, LONG) as term:
        lost = lists(regions_of(term))
        assert (len(lost), term.env.model.damages.rows) == (COUNT, [])
        joined = await joins(term, Server(term, "a"), lost)
        assert {str(one.server) for one in regions_of(term)} == {"a,1"}, "they stay where they are"
        modified = Modification(options={"ttl": "120"}, reason="regions have former options")
        await result_of(term, await TableChanges(view_on(term)).modify("t", modified, "ops"))
        assert {one.version for one in regions_of(term)} == {term.env.model.tables["t"].version}
        joined.cancel()


@virtual
async def test_what_can_be_read_of_the_row_of_a_table_is_kept_where_nothing_else_is_given() -> None:
    disk = RegionDisk()

    def no_state(disk: RegionDisk, _: list[int]) -> None:
        disk.tables["t"] = TableRow("t", 1, 99, (("codec", "none"),), 3)

    async with changed(disk, no_state) as (term, _):
        replaced = (await adopts_table(term, options={"a": "b"}, kind="user", dry_run=True)).detail
        assert "; of its former row are replaced: kind system, options codec=none; its former row has" in replaced
        kept = (await adopts_table(term, dry_run=True)).detail
        assert kept.startswith("table t with kind system, state enabled and options codec=none: ")
        assert kept.endswith(
            "are kept: kind system, options codec=none, version 3; its former row has no readable state"
        )
        assert (await result_of(term, await adopts_table(term))).state is State.SUCCESS
    assert disk.tables["t"] == TableRow("t", 1, TableState.ENABLED, (("codec", "none"),), 3)


@pytest.mark.parametrize("change", [broken, without_table])
@virtual
async def test_an_adoption_is_made_once_and_the_report_asks_for_a_restart_then(change: Change) -> None:
    disk = RegionDisk()
    async with changed(disk, change) as (term, _):
        record = await result_of(term, await adopts_table(term, options={"ttl": "120"}))
        row = disk.tables["t"]
        assert set(await mends_of(term)) == {"its row is stored: restart the daemon"}
        with pytest.raises(ViewRefused, match=f"is stored by procedure {record.pid}, with kind user") as refused:
            await adopts_table(term, options={"ttl": "90"}, kind="user")
        assert refused.value.remedy == "restart the daemon, then 'regent tables modify t' changes options"
        done = f"its row is stored by procedure {record.pid}: restart the daemon, which has its regions then"
        assert (await adopts_table(term, options={"ttl": "120"}, dry_run=True)).detail == f"table t: {done}"
        again = await result_of(term, await adopts_table(term, options={"ttl": "120"}))
        assert (again.state, again.result) == (State.SUCCESS, done.encode())
        data = TABLE_TASK.encode(TableTask("t", options={"ttl": "90"}, enables=True))
        record = await term.engine.result(await procedure(term, rows.ADOPT, data))
        assert (record.state, "is stored by procedure" in record.error) == (State.ROLLEDBACK, True)
        assert disk.tables["t"] == row
    async with running(disk, LONG) as term:
        with pytest.raises(ViewRefused, match="table 't' is there"):
            await adopts_table(term, options={"ttl": "120"})


@virtual
async def test_a_table_that_is_not_to_be_served_is_closed_after_its_adoption() -> None:
    disk = RegionDisk()
    async with changed(disk, broken) as (term, owned):
        await result_of(term, await adopts_table(term, enabled=False))
    async with running(disk, LONG) as term:
        joined = await joins(term, Server(term, "a"), owned)
        assert (await counts_of(term))["halted"] == 1
        await ended(term, changes(term, "disable"))
        assert {one.state for one in regions_of(term)} == {S.CLOSED}
        assert await counts_of(term) == {}
        joined.cancel()


@virtual
async def test_no_other_table_is_adopted() -> None:
    disk = RegionDisk()
    async with changed(disk, broken) as (term, _):
        with pytest.raises(ViewRefused, match="no row of a table 'other', or of its regions, is left out"):
            await adopts_table(term, "other")
        with pytest.raises(Invalid, match="name"):
            await adopts_table(term, "no name")
        with pytest.raises(Invalid, match="reason is empty"):
            await adopts_table(term, reason="")
        data = TABLE_TASK.encode(TableTask("other", enables=True))
        record = await term.engine.result(await procedure(term, rows.ADOPT, data))
        assert record.state is State.ROLLEDBACK
        assert record.error.startswith("adopt_table: no row of a table 'other'")
    async with changed(RegionDisk(), lambda *_: None) as (term, _):
        with pytest.raises(ViewRefused, match="table 't' is there"):
            await adopts_table(term)


@virtual
async def test_the_row_of_a_table_under_a_wrong_name_is_deleted_once_the_right_one_has_its_regions_again() -> None:
    disk = RegionDisk()

    def rename(disk: RegionDisk, _: list[int]) -> None:
        disk.tables["u"] = disk.tables.pop("t")._replace(name="u")

    async with changed(disk, rename) as (term, owned):
        task = await joins(term, Server(term, "a"), owned)
        hole = (await mends_of(term))[0]
        way = [hole.find(f"'regent tables {one}'") for one in ("adopt t", "disable u", "delete u")]
        assert 0 < way[0] < way[1] < way[2]
        assert (await result_of(term, await adopts_table(term))).state is State.SUCCESS
        task.cancel()
    async with running(disk, LONG) as term:
        task = await joins(term, Server(term, "a"), owned)
        assert await counts_of(term) == {"hole": 1}
        await ended(term, changes(term, "disable", "u"))
        await ended(term, changes(term, "delete", "u"))
        assert await counts_of(term) == {}
        assert [one.id for one in term.env.model.tables["t"].regions] == [one.region for one in owned]
        assert "u" not in disk.tables
        task.cancel()
