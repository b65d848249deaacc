"""Snapshots of tables, and tables that begin as the data of others: what is staged, kept, needed, and taken back."""

from __future__ import annotations

import asyncio

import pytest

from controller.http.documents import NotFound
from controller.regions.operator.progress import progress_of
from controller.regions.operator.requests import region_of
from controller.regions.operator.table_checks import opening_remedy
from controller.regions.procedures import modification, snapshots, table_work, tables
from controller.regions.procedures.messages import (
    SNAPSHOT_TASK,
    TABLE_TASK,
    TABLE_WORK,
    SnapshotTask,
    TableTask,
    TableWork,
)
from metadata_store.catalog.rows import HeirRow, SnapshotPartRow, SnapshotRow
from regent_agent import protocol
from state_machines.procedures.states import State
from state_machines.regions.shapes import end_of
from state_machines.regions.states import RegionState, TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.shapes import merges
from tests.kit.regions.staging import FEATURES, change, known_as, once_more, small, snapshot, stage, works
from tests.kit.regions.world import (
    at_rest,
    changes,
    ended,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

S, T = RegionState, TableState


@pytest.mark.seed("S2-51")
@virtual
async def test_each_region_stages_a_copy_and_one_write_makes_them_count() -> None:
    disk = RegionDisk()
    async with stage(disk) as (term, one, two):
        assert (await snapshot(term)).result == b"4"
        assert works(protocol.STAGE, one, two) == [(region.id, known_as(term)) for region in regions_of(term)]
        [row] = small(disk, SnapshotRow)
        assert isinstance(row, SnapshotRow)
        assert (row.name, row.table, row.regions, row.parts) == ("s", "t", 4, 1)
        [part] = small(disk, SnapshotPartRow)
        assert isinstance(part, SnapshotPartRow)
        listed = [(source.region, source.start, source.end, source.token) for source in part.regions]
        assert listed == [(region.id, region.start, region.end, region.token) for region in regions_of(term)]
        assert "exists already, of table 't'" in (await snapshot(term)).error
        assert (await snapshot(term, table="nobody")).state is State.ROLLEDBACK
        await at_rest(term)
    async with running(disk) as term:
        assert term.env.model.snapshots["s"].parts == (part.regions,), "a failover knows it"
        assert not term.env.model.drafts


@pytest.mark.parametrize("by", ["an operator", "a server"])
@virtual
async def test_a_snapshot_that_is_not_complete_is_taken_back(by: str) -> None:
    """What was staged is told to be of no use, by a procedure of its own; the name is free again."""
    disk = RegionDisk()
    async with stage(disk) as (term, one, two):
        if by == "a server":
            two.refuses = protocol.STAGE
            record = await snapshot(term)
            assert "failed 3 times" in record.error
            assert "the disk is full" in record.error
        else:
            two.hangs = protocol.STAGE
            pid = await procedure(term, snapshots.MAKE, SNAPSHOT_TASK.encode(SnapshotTask("s", "t")))
            await until(lambda: works(protocol.STAGE, one))
            done = "2 of 4 regions staged for snapshot s"
            await until(lambda: progress_of(term.engine.records[pid], term.env, term.engine) == done)
            locks = {str(lock.resource): lock.exclusive for lock in term.engine.locks() if lock.pid == pid}
            assert locks == {
                "table default t": False,
                "table default (shape of t)": True,
                "table (snapshot s)": True,
            }, "regions move, and are neither split nor merged"
            await term.engine.abort(pid)
            record = await term.engine.result(pid)
        assert record.state is State.ROLLEDBACK
        two.refuses = two.hangs = ""
        await until(lambda: len(works(protocol.UNSTAGE, one, two)) == 4)
        [staged] = {data for _, data in works(protocol.STAGE, one, two)}
        assert works(protocol.UNSTAGE, one, two) == [(region.id, staged) for region in regions_of(term)]
        assert not disk.small
        await at_rest(term)
        assert (await snapshot(term)).state is State.SUCCESS
        assert known_as(term) != staged, "what was taken back, and comes late, is of another snapshot"


@virtual
async def test_a_snapshot_that_cannot_begin_says_what_would_let_it() -> None:
    async with stage(RegionDisk()) as (term, one, two):
        for lacks in (protocol.STAGE, protocol.UNSTAGE):
            term.env.model.servers["b", 1].features = frozenset(FEATURES) - {lacks}
            assert f"servers b,1 do no work {lacks!r}: start versions of them" in (await snapshot(term)).error
        term.env.model.servers["b", 1].features = frozenset(FEATURES)
        term.env.model.sources[regions_of(term)[0].id] = (protocol.Source(7, b"", b"", 1),)  # type: ignore[assignment]
        assert "not yet independent" in (await snapshot(term)).error
        term.env.model.sources.clear()
        await ended(term, changes(term, "disable"))
        assert "is disabled, and must be enabled" in (await snapshot(term)).error
        assert not works(protocol.STAGE, one, two)


@virtual
async def test_a_table_begins_as_a_snapshot_which_stays_as_long_as_a_region_needs_it() -> None:
    disk = RegionDisk()
    async with stage(disk) as (term, one, two):
        await snapshot(term)
        assert (await change(term, tables.CLONE, "copy", snapshot="s")).result == b"0"
        copies = regions_of(term, "copy")
        assert [(region.start, region.end) for region in copies] == [
            (region.start, region.end) for region in regions_of(term)
        ]
        begins = {id_: found for server in (one, two) for id_, found in server.sources.items() if found}
        assert [(one.id, *begins[one.id]) for one in copies] == [
            (one.id, protocol.Source(of.id, of.start, of.end, of.token, of.sequence, known_as(term).decode()))
            for one, of in zip(copies, regions_of(term), strict=True)
        ]
        assert "is needed by region" in (await snapshot(term, kind=snapshots.DELETE)).error
        assert "not yet independent" in (await snapshot(term, "s2", "copy")).error
        for server in (one, two):
            mine = [protocol.Owned(id_, token) for id_, token in server.has.items()]
            await server.ask(protocol.Independent(server.name, 1, server.epoch, mine))
        await until(lambda: not term.env.model.sources)
        assert not small(disk, HeirRow)
        gone = known_as(term)
        assert (await snapshot(term, kind=snapshots.DELETE)).state is State.SUCCESS
        assert works(protocol.DISCARD, one, two) == [(0, b"snapshot " + gone)]
        assert not disk.small
        await at_rest(term)


@virtual
async def test_a_disabled_table_is_cloned_and_stays_as_it_is_while_its_data_is_needed() -> None:
    async with stage(RegionDisk()) as (term, _, _two):
        assert (
            "must be disabled, or be cloned from a snapshot"
            in (await change(term, tables.CLONE, "copy", source="t")).error
        )
        await ended(term, changes(term, "disable"))
        assert (await change(term, tables.CLONE, "copy", source="t", options={"ttl": "1"})).result == b"0"
        assert term.env.model.tables["copy"].options == {"ttl": "1"}
        for kind in ("enable", "delete"):
            record = await term.engine.result(await changes(term, kind))
            assert "table 't' is needed by region #" in record.error
            assert "or delete table copy" in record.error
        remedy = opening_remedy(term.env.model, term.env.model.tables["t"])
        assert "or delete table copy; then 'regent tables enable t' opens its regions" in remedy
        assert "is needed by" in (await change(term, tables.TRUNCATE, "t")).error
        await ended(term, procedure(term, "disable_table", TABLE_TASK.encode(TableTask("copy"))))
        await ended(term, procedure(term, "delete_table", TABLE_TASK.encode(TableTask("copy"))))
        assert await ended(term, changes(term, "enable")) == b"0", "a clone that is deleted needs nothing"
        await at_rest(term)


@virtual
async def test_a_snapshot_is_restored_into_a_disabled_table() -> None:
    disk = RegionDisk()
    async with stage(disk) as (term, one, two):
        await snapshot(term)
        await ended(term, changes(term, "disable"))
        await change(term, tables.TRUNCATE, "t", drops_splits=True)
        before = [region.id for region in regions_of(term)]
        record = await change(term, tables.RESTORE, "t", snapshot="s", enables=True)
        assert (record.state, record.result) == (State.SUCCESS, b"0")
        assert len(regions_of(term)) == 4
        assert {region.state for region in regions_of(term)} == {S.OPEN}
        assert {source.snapshot for server in (one, two) for region in server.has for source in server.sources[region]}
        assert not {*before} & {region.id for region in regions_of(term)}
        await until(lambda: not term.env.model.parents)
        assert works(protocol.DISCARD, one, two), "what the table had before is discarded"
        assert "does not exist" in (await change(term, tables.RESTORE, "t", snapshot="none")).error


@virtual
async def test_servers_discard_the_data_of_regions_that_a_truncation_replaced() -> None:
    disk = RegionDisk()
    async with stage(disk) as (term, _, _two):
        old = [region.id for region in regions_of(term)]
        await ended(term, changes(term, "disable"))
        await change(term, tables.TRUNCATE, "t")
        assert sorted(term.env.model.parents) == old
        assert [parent.heirs for parent in term.env.model.parents.values()] == [
            (region.id,) for region in regions_of(term)
        ]


@virtual
async def test_the_next_daemon_has_a_snapshot_discarded_once_servers_have_come() -> None:
    disk = RegionDisk()
    async with stage(disk) as (term, one, two):
        await snapshot(term)
        gone = known_as(term)
        one.hangs = two.hangs = protocol.DISCARD
        pid = await procedure(term, snapshots.DELETE, SNAPSHOT_TASK.encode(SnapshotTask("s")))
        await until(lambda: not small(disk, SnapshotRow))  # and then the daemon dies
    async with running(disk) as term:
        one, two = once_more(term)
        await asyncio.sleep(2)
        async with serving(one, two):
            assert (await term.engine.result(pid)).result == b""
            assert works(protocol.DISCARD, one, two) == [(0, b"snapshot " + gone)]


@virtual
async def test_a_truncation_remembers_what_it_replaces_also_where_no_server_is_there() -> None:
    disk = RegionDisk()
    async with stage(disk) as (term, one, two):
        old = [region.id for region in regions_of(term)]
        await ended(term, changes(term, "disable"))
        disk.servers.clear()  # all have stopped, and then the daemon, too
    async with running(disk) as term:
        await change(term, tables.TRUNCATE, "t")
        assert sorted(term.env.model.parents) == old
        assert {end_of(parent) for parent in term.env.model.parents.values()} == {"TRUNCATED"}
        with pytest.raises(NotFound, match=f"region {old[0]} was truncated: #"):
            region_of(term.env.model, old[0])
        one, two = once_more(term)
        async with serving(one, two):
            await until(lambda: not term.env.model.parents)
        assert works(protocol.DISCARD, one, two) == [(0, b"%d" % region) for region in old]


@virtual
async def test_a_table_has_no_more_options_than_it_may_whatever_came_first() -> None:
    """A request is judged as it comes; another one may change the table before it begins."""
    some, others = ({f"{name}{at}": "1" for at in range(60)} for name in "ab")
    async with stage(RegionDisk()) as (term, _, _two):
        assert (await change(term, modification.NAME, "t", options=some)).state is State.SUCCESS
        record = await change(term, modification.NAME, "t", options=others)
        assert "table 't' would have 120 options, at most 100 are possible: remove some" in record.error
        assert (term.env.model.tables["t"].options, term.env.model.tables["t"].version) == (some, 1)
        await ended(term, changes(term, "disable"))
        record = await change(term, tables.CLONE, "copy", source="t", options=others)
        assert "table 'copy' would have 120 options" in record.error


@virtual
async def test_work_on_a_table_leaves_no_keys_out_where_regions_were_merged_meanwhile() -> None:
    async with stage(RegionDisk()) as (term, one, two):
        _, second, third, fourth = regions_of(term)
        await ended(term, merges(term, [second, third]))
        [_, heir, _] = regions_of(term)
        task = TableWork("t", protocol.FLUSH, begun=third.start)  # the second one is done by now
        assert await ended(term, procedure(term, table_work.NAME, TABLE_WORK.encode(task))) == b"2"
        assert works(protocol.FLUSH, one, two) == [(fourth.id, b""), (heir.id, b"")]
