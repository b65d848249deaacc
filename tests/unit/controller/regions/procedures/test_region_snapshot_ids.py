"""What servers know a snapshot by: its name and an id, so that late work on a former one does nothing to the next."""

from __future__ import annotations

from collections.abc import Awaitable
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from msgspec.structs import replace

from controller.http.documents import NotFound, ViewError, ViewRefused
from controller.regions.domain import RegionsDomain
from controller.regions.environment import RegionsEnv
from controller.regions.operator.snapshots import Clone, Restore, SnapshotCreation, SnapshotView
from controller.regions.procedures import region_work, snapshots, tables
from controller.regions.procedures.assign import opening
from controller.regions.procedures.messages import REGION_WORK, SNAPSHOT_TASK, TABLE_TASK, SnapshotTask, TableTask
from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import SnapshotPartRow
from metadata_store.records import codec
from regent_agent import protocol
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.entities import Region, Table
from state_machines.regions.model import Regions
from state_machines.regions.shapes import Source
from state_machines.regions.states import RegionState, TableKind, TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.staging import FEATURES, change, known_as, once_more, snapshot, stage, works
from tests.kit.regions.world import at_rest, changes, ended, procedure, regions_of, running, serving, until, virtual


async def forgotten(term: RegionsTerm, table: str) -> None:
    """Deletes a table that is enabled."""
    for kind in ("disable_table", "delete_table"):
        await ended(term, procedure(term, kind, TABLE_TASK.encode(TableTask(table))))


@virtual
async def test_a_discard_that_comes_late_is_of_the_former_snapshot_alone() -> None:
    """The name is used again: what servers are told about one snapshot is not true of the other."""
    disk = RegionDisk()
    async with stage(disk) as (term, one, two):
        await snapshot(term)
        former = known_as(term)
        assert (await snapshot(term, kind=snapshots.DELETE)).state is State.SUCCESS
        await snapshot(term)
    async with running(disk) as term:
        one, two = once_more(term)
        async with serving(one, two):
            later = known_as(term)
            assert (await change(term, tables.CLONE, "copy", snapshot="s")).result == b"0"
            copies = [region.id for region in regions_of(term, "copy")]
            named = {
                found[0].snapshot for server in (one, two) for id_, found in server.sources.items() if id_ in copies
            }
            assert named == {later.decode()}, "a failover knows which one it is"
            await forgotten(term, "copy")
            assert (await snapshot(term, kind=snapshots.DELETE)).state is State.SUCCESS
            assert works(protocol.DISCARD, one, two) == [(0, b"snapshot " + later)]
            assert former != later


def as_before(record: Record) -> Record:
    """Returns the record of a snapshot, or of work for it, as an earlier release has stored it."""
    if record.kind == snapshots.MAKE:
        *fields, _ = msgspec.msgpack.decode(record.data)
        return replace(record, data=msgspec.msgpack.encode(fields))
    if record.kind == region_work.NAME:
        return replace(record, data=REGION_WORK.encode(replace(REGION_WORK.decode(record.data), data=b"s")))
    return record


@virtual
async def test_a_snapshot_that_an_earlier_release_made_is_known_by_its_name() -> None:
    disk = RegionDisk()
    async with stage(disk) as (term, _, _two):
        await snapshot(term)
        for key, row in disk.small.items():
            if isinstance(row, SnapshotPartRow):
                disk.small[key] = row._replace(regions=tuple(one._replace(snapshot="") for one in row.regions))
    async with running(disk) as term:
        one, two = once_more(term)
        async with serving(one, two):
            assert (await change(term, tables.CLONE, "copy", snapshot="s")).result == b"0"
            assert {found[0].snapshot for server in (one, two) for found in server.sources.values() if found} == {"s"}
            assert "is needed by region" in (await snapshot(term, kind=snapshots.DELETE)).error
            await forgotten(term, "copy")
            assert (await snapshot(term, kind=snapshots.DELETE)).state is State.SUCCESS
            assert works(protocol.DISCARD, one, two) == [(0, b"snapshot s")]


@virtual
async def test_a_snapshot_that_an_earlier_release_began_goes_on_by_its_name() -> None:
    """Some regions have staged their copies by it: the others do the same, and the whole counts."""
    disk = RegionDisk()
    async with stage(disk) as (term, one, two):
        two.hangs = protocol.STAGE
        pid = await procedure(term, snapshots.MAKE, SNAPSHOT_TASK.encode(SnapshotTask("s", "t")))
        await until(lambda: works(protocol.STAGE, one))
        disk.bodies = {at: codec.sealed(as_before(codec.unsealed(at, body))) for at, body in disk.bodies.items()}
    async with running(disk) as term:
        one, two = once_more(term)
        async with serving(one, two):
            assert (await term.engine.result(pid)).state is State.SUCCESS
            assert {data for _, data in works(protocol.STAGE, one, two)} == {b"s"}
            assert known_as(term) == b"s"


@pytest.mark.parametrize("lacks", [protocol.STAGE, protocol.UNSTAGE])
@virtual
async def test_an_operator_reads_the_whole_refusal_which_names_the_servers(lacks: str) -> None:
    async with stage(RegionDisk()) as (term, _, _two):
        term.env.model.servers["b", 1].features = frozenset(FEATURES) - {lacks}
        view = SnapshotView(cast("RegionsDomain", SimpleNamespace(term=term)))
        with pytest.raises(ViewRefused) as refused:
            await view.make(SnapshotCreation(name="s", table="t"), "root")
        assert refused.value.message == (
            f"servers b,1 do no work {lacks!r}: start versions of them that name it among their features"
        )
        assert not refused.value.remedy, "the message has it"
        await at_rest(term)


@virtual
async def test_each_refusal_about_a_copy_names_what_lets_that_one_begin() -> None:
    async with stage(RegionDisk()) as (term, _, _two):
        view = SnapshotView(cast("RegionsDomain", SimpleNamespace(term=term)))

        async def refusal(work: Awaitable[object], code: type[ViewError]) -> str:
            with pytest.raises(code) as refused:
                await work
            return f"{refused.value.message} | {refused.value.remedy}"

        def clones(to: str, **of: str) -> Awaitable[object]:
            return view.clone(to, Clone(**of), "root")

        assert "'regent tables disable t --wait'" in (text := await refusal(clones("u", source="t"), ViewRefused))
        assert "| 'regent tables snapshot t NAME', then 'regent tables clone u --snapshot NAME'" in text
        assert "| give another name" in await refusal(clones("t", source="t"), ViewRefused)
        for work, why in (
            (clones("no:u", source="t"), "namespace 'no' does not exist | 'regent namespaces create no'"),
            (clones("u", source="w"), "table 'w' does not exist | see 'regent tables list'"),
            (clones("u", snapshot="w"), "snapshot 'w' does not exist | see 'regent snapshots list'"),
            (view.restore("t", Restore(snapshot="w"), "root"), "snapshot 'w' does not exist |"),
        ):
            assert why in await refusal(work, NotFound)
        await ended(term, changes(term, "disable"))
        making = view.make(SnapshotCreation(name="s", table="t"), "root")
        assert "must be enabled | 'regent tables enable t' opens its regions" in await refusal(making, ViewRefused)


def test_a_server_gets_no_bound_that_the_copy_of_a_snapshot_may_not_reach() -> None:
    """Also for regions whose sources were stored by a release that bounded them by a later open."""
    model = Regions()
    table = Table("t", TableKind.USER, TableState.ENABLED, {}, [])
    region = Region(9, table, b"", b"", RegionState.OFFLINE)
    model.sources[9] = tuple(Source(one, b"", b"", token, 7, "s 40-1") for one, token in ((1, 40), (2, 41)))
    sent = opening(cast("RegionsEnv", SimpleNamespace(model=model)), 50, region, 50)
    assert [one.sequence for one in sent.sources] == [7, 0]
