"""What the catalog has of a region, and what cannot be right, is forgotten: never the only row with some keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from controller.http.documents import Invalid, ViewRefused
from controller.procedures.kinds import Effect
from controller.regions.operator.explain import ExplanationView
from controller.regions.operator.progress import progress_of
from controller.regions.operator.records import procedure_item
from controller.regions.procedures import adopting, fixing, forgetting
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from controller.regions.procedures.repair import REPAIR, Repair
from metadata_store.catalog.judging import STATES
from metadata_store.catalog.rows import HeirRow, ParentRow, RegionRow, Source
from regent_agent import protocol
from state_machines.procedures.kernel import Change
from state_machines.procedures.outcome import Next, Wait
from state_machines.procedures.record import child
from state_machines.procedures.states import State
from state_machines.regions.findings import COPY
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.repairs import (
    COUNT,
    Data,
    Keeping,
    adopts,
    changed,
    counts_of,
    damaging,
    forgets,
    joins,
    mends_of,
    result_of,
    view_on,
)
from tests.kit.regions.shapes import splits
from tests.kit.regions.world import (
    Server,
    at_rest,
    changes,
    ended,
    procedure,
    regions_of,
    running,
    transits,
    until,
    virtual,
)

S = RegionState
EXTRA = 900
"""Id of a region that another tool has written."""
KEYS = [b"", b"33333333", b"66666666", b"99999999", b"cccccccc", b""]


def adding(start: bytes, end: bytes, state: int = int(S.CLOSED)) -> Callable[[RegionDisk, list[int]], None]:
    """Adds the row of a region that has keys of others."""

    def change(disk: RegionDisk, ids: list[int]) -> None:
        disk.regions[EXTRA] = RegionRow(EXTRA, "t", start, end, state)

    return change


@pytest.mark.seed("S1-96")
@pytest.mark.parametrize(
    ("start", "end"), [(KEYS[1], KEYS[2]), (b"", b""), (b"4", b"5"), (b"4", b"a"), (KEYS[1], b"a"), (b"d", b"")]
)
@pytest.mark.parametrize("is_open", [False, True])
def test_a_region_whose_keys_others_have_is_closed_and_forgotten(start: bytes, end: bytes, is_open: bool) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with changed(disk, adding(start, end)) as (term, owned):
            server = Server(term, "a")
            task = await joins(term, server, owned)
            await until(lambda: not term.env.claimants.processes)
            if is_open:
                await ended(term, transits(term, "assign", term.env.model.regions[EXTRA]))
                assert EXTRA in server.has
            client = Server(term, "c")
            assert isinstance(await client.ask(protocol.Locate("t", start)), protocol.Refused)
            before = term.env.routes.change
            assert set(await counts_of(term)) <= {"overlap", "not_open"}
            planned = await forgets(term, EXTRA, dry_run=True, reason="")
            assert (planned.pid, EXTRA in term.env.model.regions) == (0, True)
            record = await result_of(term, await forgets(term, EXTRA))
            assert record.state is State.SUCCESS, record.error
            assert procedure_item(record).result.startswith(f"the catalog has forgotten region t#{EXTRA}; 'regent")
            await at_rest(term)
            assert (EXTRA in server.has, EXTRA in disk.regions, EXTRA in term.env.model.regions) == (False,) * 3
            assert [one.region for one in owned] == [one.id for one in regions_of(term)]
            assert (await counts_of(term), term.env.model.damages.gaps) == ({}, [])
            assert term.env.model.damages.overlapping == set()
            for key in KEYS[:-1]:
                found = await client.ask(protocol.Locate("t", key))
                assert isinstance(found, protocol.Routes), found
                assert found.routes[0].server == "a"
            assert term.env.routes.change > before, "clients are told"
            task.cancel()

    story()


@virtual
async def test_of_two_regions_with_the_same_keys_either_may_go_and_not_both() -> None:
    disk = RegionDisk()
    async with changed(disk, adding(KEYS[1], KEYS[2])) as (term, owned):
        task = await joins(term, Server(term, "a"), owned)
        await until(lambda: not term.env.claimants.processes)
        first = owned[1].region
        mend = (await mends_of(term))[0]
        assert mend.startswith(f"{COPY}'regent regions forget {EXTRA}' removes the row of {EXTRA}, CLOSED"), (
            "without data"
        )
        assert f"{first}, OPEN with sequence" in mend
        assert f"what was written to {EXTRA} is not served then; else 'regent regions forget {first}'" in mend
        begun = [await forgets(term, one) for one in (first, EXTRA)]
        records = [await result_of(term, one) for one in begun]
        assert [one.state for one in records] == [State.SUCCESS, State.ROLLEDBACK]
        assert f"region t#{EXTRA} is the only one with the keys from 33333333 to 66666666" in records[1].error
        await ended(term, transits(term, "assign", term.env.model.regions[EXTRA]))
        assert await counts_of(term) == {}
        task.cancel()


@virtual
async def test_an_overlap_that_is_a_part_of_each_region_is_mended_by_a_split() -> None:
    disk = RegionDisk()

    def change(disk: RegionDisk, ids: list[int]) -> None:
        disk.regions[ids[2]] = disk.regions[ids[2]]._replace(start=b"5")

    async with changed(disk, change) as (term, owned):
        task = await joins(term, Keeping(term, "a", {}), owned)
        await until(lambda: not term.env.claimants.processes)
        first, second = owned[1].region, owned[2].region
        [mend] = await mends_of(term)
        assert mend.startswith(f"{COPY}'regent regions split {first} --key 5' parts a region")
        only = f"region t#{first} is the only one with the keys from 33333333 to 5"
        with pytest.raises(ViewRefused, match=only) as refused:
            await forgets(term, first)
        assert f"'regent regions split {first} --key 5'" in refused.value.remedy
        with pytest.raises(
            ViewRefused, match=f"region t#{second} is the only one with the keys from 66666666 to 99999999"
        ):
            await forgets(term, second)
        await ended(term, splits(term, term.env.model.regions[first], b"5"))
        part = next(one for one in regions_of(term) if one.start == b"5" and one.id != second)
        assert (await result_of(term, await forgets(term, part.id))).state is State.SUCCESS
        await at_rest(term)
        assert await counts_of(term) == {}
        task.cancel()


@virtual
async def test_a_region_that_another_one_needs_or_whose_keys_no_other_has_is_not_forgotten() -> None:
    disk = RegionDisk()

    def change(disk: RegionDisk, ids: list[int]) -> None:
        adding(b"4", b"5")(disk, ids)
        disk.small[HeirRow, (ids[0],)] = HeirRow(ids[0], (Source(EXTRA, b"", b"33333333", 1, 1),))

    async with changed(disk, change) as (term, owned):
        with pytest.raises(ViewRefused, match=f"the data of region {owned[0].region} begins as that of region {EXTRA}"):
            await forgets(term, EXTRA)
        only = owned[3].region
        with pytest.raises(ViewRefused, match=f"region t#{only} is the only one with the keys") as refused:
            await forgets(term, only)
        assert f"'regent regions unassign {only}'" in refused.value.remedy
        with pytest.raises(ViewRefused, match="the catalog has nothing of region 77"):
            await forgets(term, 77)
        with pytest.raises(Invalid, match="reason is empty"):
            await forgets(term, only, reason="")
        record = await term.engine.result(
            await procedure(term, forgetting.NAME, REPAIR.encode(Repair(only, "t", what="region")))
        )
        assert (record.state, "is the only one" in record.error) == (State.ROLLEDBACK, True)


@virtual
async def test_a_region_that_has_grown_over_all_others_is_parted_and_they_keep_their_data() -> None:
    data: Data = {}
    disk = RegionDisk()

    def change(disk: RegionDisk, ids: list[int]) -> None:
        disk.regions[ids[0]] = disk.regions[ids[0]]._replace(end=b"")

    async with changed(disk, change) as (term, owned):
        server = Keeping(term, "a", data)
        task = await joins(term, server, owned)
        await until(lambda: not term.env.claimants.processes)
        ids = [one.region for one in owned]
        for one in ids:
            server.write(one, b"k", b"%d" % one)
        mends = await mends_of(term)
        assert len(mends) == COUNT - 1
        for mend, other in zip(mends, ids[1:], strict=True):
            assert mend.startswith(f"{COPY}'regent regions split {ids[0]} --key 33333333' parts a region")
            assert f"; else 'regent regions forget {other}'" in mend
        await ended(term, splits(term, term.env.model.regions[ids[0]], KEYS[1]))
        kept, part = (one.id for one in regions_of(term) if one.id not in ids)
        for mend in await mends_of(term):
            assert mend.startswith(f"{COPY}'regent regions forget {part}' removes the row of {part}, OPEN")
        assert (await result_of(term, await forgets(term, part))).state is State.SUCCESS
        await at_rest(term)
        assert (await counts_of(term), [one.id for one in regions_of(term)]) == ({}, [kept, *ids[1:]])
        assert [server.read(one, b"k") for one in ids[1:]] == [b"%d" % one for one in ids[1:]]
        task.cancel()


@virtual
async def test_an_overlap_that_is_gone_by_the_time_of_the_write_keeps_its_region() -> None:
    disk = RegionDisk()
    async with changed(disk, adding(KEYS[1], KEYS[2])) as (term, owned):
        begun = await forgets(term, EXTRA)
        await asyncio.sleep(1)
        assert not term.engine.records[begun.pid].state.is_final, "no process has listed its regions"
        told = progress_of(term.engine.records[begun.pid], term.env, term.engine)
        assert f"region t#{EXTRA} is CLOSED, it waits: a,1 may have it" in told
        other = term.env.model.regions[owned[1].region]
        other.start = b"4"  # as no procedure can: it waits for the lock of the table
        task = await joins(term, Server(term, "a"), owned)
        record = await result_of(term, begun)
        assert (record.state, "is the only one with the keys from 33333333 to 4" in record.error) == (
            State.ROLLEDBACK,
            True,
        )
        task.cancel()


@virtual
async def test_a_parent_whose_heirs_are_lost_is_forgotten_and_no_other() -> None:
    disk = RegionDisk()

    def change(disk: RegionDisk, ids: list[int]) -> None:
        del disk.regions[ids[1]]
        disk.small[ParentRow, (5,)] = ParentRow(5, "t", KEYS[1], KEYS[2], int(S.SPLIT), (ids[1],), 1, 1)
        disk.small[ParentRow, (6,)] = ParentRow(6, "t", KEYS[2], KEYS[3], int(S.SPLIT), (ids[2],), 1, 1)
        disk.small[ParentRow, (7,)] = ParentRow(7, "w", b"", b"", int(S.SPLIT), (8,), 1, 1)
        disk.small[ParentRow, (8,)] = ParentRow(8, "w", b"", b"", 99, (9,), 1, 1)  # so that nothing is discarded
        disk.small[HeirRow, (ids[2],)] = HeirRow(ids[2], (Source(6, KEYS[2], KEYS[3], 1, 1),))
        disk.small[HeirRow, (ids[1],)] = HeirRow(ids[1], (Source(5, KEYS[1], KEYS[2], 1, 1),))

    async with changed(disk, change) as (term, owned):
        task = await joins(term, Server(term, "a"), owned)
        lost = owned[1].region
        assert (await counts_of(term))["no_heirs"] == 2
        mends = "".join(await mends_of(term))
        assert f"'regent regions adopt {lost} --table t' stores an heir again, or 'regent regions forget 5'" in mends
        with pytest.raises(ViewRefused, match="region 6 is SPLIT, and regions have its keys"):
            await forgets(term, 6)
        with pytest.raises(ViewRefused, match=f"the data of region {lost} begins as that of region 5") as refused:
            await forgets(term, 5)
        assert f"or forget {lost} first" in refused.value.remedy
        for id_ in (lost, 5, 7):
            assert (await result_of(term, await forgets(term, id_))).state is State.SUCCESS
        assert set(disk.small) == {(ParentRow, (6,)), (ParentRow, (8,)), (HeirRow, (owned[2].region,))}
        assert (set(term.env.model.parents), set(term.env.model.sources)) == ({6}, {owned[2].region})
        assert await counts_of(term) == {"hole": 1, "damaged": 1}
        task.cancel()


@virtual
async def test_a_damaged_row_is_forgotten_once_no_process_has_its_region_and_the_keys_may_be_given_away() -> None:
    disk = RegionDisk()
    async with changed(disk, damaging(2, state=99)) as (term, owned):
        bad = owned[2].region
        server = Server(term, "a")
        await server.register(*owned)
        fix = TABLE_TASK.encode(TableTask("t"))
        assert (await term.engine.result(await procedure(term, fixing.NAME, fix))).state is State.ROLLEDBACK
        pid = (await forgets(term, bad)).pid
        close = await server.operation()
        assert isinstance(close, protocol.Close)
        assert (close.region, bad in disk.regions) == (bad, True), "a process has it"
        await server.report(server.do(close))
        assert (await term.engine.result(pid)).state is State.SUCCESS
        damages = term.env.model.damages
        assert (damages.count.total(), damages.regions, damages.tables, bad in disk.regions) == (0, set(), {}, False)
        task = asyncio.ensure_future(server.serve())
        assert (await term.engine.result(await procedure(term, fixing.NAME, fix))).result == b"0"
        await at_rest(term)
        assert await counts_of(term) == {}
        task.cancel()


@virtual
async def test_a_list_that_comes_before_the_write_keeps_a_row_until_its_region_is_closed() -> None:
    async with changed(RegionDisk(), damaging(2, state=99)) as (term, owned):
        bad, env = owned[2].region, term.env
        task = await joins(term, Server(term, "a"), [one for one in owned if one is not owned[2]])
        await until(lambda: not env.claimants.processes)
        forget = replace(child(forgetting.NAME, REPAIR.encode(Repair(bad, "t", what="damaged"))), pid=10**6)
        adopt = replace(child(adopting.NAME, REPAIR.encode(Repair(bad, "t", "", KEYS[2], KEYS[3]))), pid=10**6)
        assert isinstance(await forgetting.remove(env, forget), Effect)
        assert isinstance(await adopting.store(env, adopt), Effect)
        env.claimants.listed(("a", 1), (), {bad: owned[2].token})
        assert await forgetting.remove(env, forget) == Next(forgetting.FREE, forget.data)
        assert isinstance(await adopting.store(env, adopt), Wait)
        task.cancel()


@virtual
async def test_damaged_rows_of_a_parent_and_of_sources_are_forgotten() -> None:
    disk = RegionDisk()

    def change(disk: RegionDisk, ids: list[int]) -> None:
        disk.small[ParentRow, (5,)] = ParentRow(5, "t", b"", b"", 99, (ids[1],), 1, 1)
        disk.small[ParentRow, (6,)] = ParentRow(6, "t", b"", b"", 99, (ids[3],), 1, 1)
        disk.small[HeirRow, (ids[2],)] = HeirRow(ids[2], ())
        disk.small[HeirRow, (ids[3],)] = HeirRow(ids[3], (Source(6, KEYS[3], KEYS[4], 1, 1),))

    async with changed(disk, change) as (term, owned):
        heir = owned[2].region
        task = await joins(term, Server(term, "a"), owned)
        assert await counts_of(term) == {"damaged": 4, "hole": 1}
        with pytest.raises(ViewRefused, match=f"the data of region {owned[3].region} begins as that of region 6"):
            await forgets(term, 6)
        for id_ in (5, heir):
            assert (await result_of(term, await forgets(term, id_))).state is State.SUCCESS
        assert set(disk.small) == {(ParentRow, (6,)), (HeirRow, (owned[3].region,))}
        assert (heir in disk.regions, await counts_of(term)) == (False, {"damaged": 1, "hole": 1})
        assert (await result_of(term, await adopts(term, heir))).result == b"0", "the service has all of its data"
        assert await counts_of(term) == {"damaged": 1}
        task.cancel()


@virtual
async def test_a_region_is_not_forgotten_with_a_table_that_is_left_out() -> None:
    disk = RegionDisk()

    def change(disk: RegionDisk, ids: list[int]) -> None:
        disk.tables["t"] = disk.tables["t"]._replace(kind=99)

    async with changed(disk, change) as (term, owned):
        with pytest.raises(ViewRefused, match="is left out because its table is"):
            await forgets(term, owned[0].region)


@pytest.mark.parametrize("state", [S(one) for one in sorted(STATES)])
def test_each_state_that_a_row_can_have_is_left_by_a_command(state: RegionState) -> None:
    """So no command writes states of regions."""

    @virtual
    async def story() -> None:
        disk = RegionDisk()

        def change(disk: RegionDisk, ids: list[int]) -> None:
            disk.regions[ids[2]] = disk.regions[ids[2]]._replace(state=int(state), server="", incarnation=0)

        async with changed(disk, change) as (term, owned):
            task = await joins(term, Server(term, "a"), [one for one in owned if one is not owned[2]])
            await at_rest(term)
            region = term.env.model.regions[owned[2].region]
            if region.state is not S.OPEN:
                assert f"'regent regions assign {region.id}' opens it" in "".join(await mends_of(term))
                await ended(term, transits(term, "assign", region))
            assert (region.state, await counts_of(term)) == (S.OPEN, {})
            await ended(term, transits(term, "close", region))
            assert region.state is S.CLOSED
            await ended(term, changes(term, "disable"))
            await ended(term, changes(term, "enable"))
            assert {one.state for one in regions_of(term)} == {S.OPEN}
            task.cancel()

    story()


@virtual
async def test_an_explanation_names_the_report_where_other_regions_have_some_of_the_keys() -> None:
    disk = RegionDisk()
    async with changed(disk, adding(b"34", b"35")) as (term, owned):
        explain = ExplanationView(view_on(term)).explain
        says = "'regent regions report --table t --kind overlap' names what parts them"
        assert any(says in one for one in explain(EXTRA).would_change)
        assert any(says in one for one in explain(owned[1].region).would_change)
        assert not any(says in one for one in explain(owned[0].region).would_change)


@virtual
async def test_a_row_under_a_wrong_id_goes_to_the_heirs_without_one_and_no_data_is_discarded() -> None:
    """A row of sources has another id than its region: were it removed alone, the parent's data would be discarded."""
    disk = RegionDisk()

    def change(disk: RegionDisk, ids: list[int]) -> None:
        sources = (Source(5, KEYS[1], KEYS[3], 1, 1),)
        disk.small[ParentRow, (5,)] = ParentRow(5, "t", KEYS[1], KEYS[3], int(S.SPLIT), (ids[1], ids[2]), 1, 1)
        disk.small[HeirRow, (ids[1],)] = HeirRow(ids[1], sources)
        disk.small[HeirRow, (EXTRA,)] = HeirRow(EXTRA, sources)

    data: Data = {5: {b"4": b"an edit"}}
    async with changed(disk, change) as (term, owned):
        mine, other = owned[1].region, owned[2].region
        keeping = Keeping(term, "a", data)
        task = await joins(term, keeping, owned)
        planned = await forgets(term, EXTRA, dry_run=True)
        assert f"; regions #{other} get it, which are heirs of the same regions" in planned.detail
        env = term.env
        env.model.attach(env.model.regions[other], 999_999)
        record = await result_of(term, await forgets(term, EXTRA))
        assert (record.state, (HeirRow, (EXTRA,)) in disk.small) == (State.ROLLEDBACK, True)
        assert "procedure 999999 has region" in record.error
        env.model.detach(env.model.regions[other], 999_999)
        begun = replace(child(forgetting.NAME, REPAIR.encode(Repair(EXTRA, "", what="sources"))), pid=10**6)
        assert isinstance(await forgetting.remove(env, begun), Effect)
        assert env.model.regions[other].pid == begun.pid
        undone = await forgetting.leave(env, begun)  # its write was refused for good
        assert isinstance(undone, Effect)
        assert undone.entered is not None
        undone.entered(Change())
        assert env.model.regions[other].pid == 0, "the heir is let go"
        assert (await result_of(term, await forgets(term, EXTRA))).state is State.SUCCESS
        assert disk.small[HeirRow, (other,)] == HeirRow(other, (Source(5, KEYS[1], KEYS[3], 1, 1),))
        assert set(env.model.sources) == {mine, other}
        await asyncio.sleep(10)
        assert (HeirRow, (EXTRA,)) not in disk.small
        assert (5 in env.model.parents, data[5]) == (True, {b"4": b"an edit"}), "its data stays"
        assert env.model.regions[other].pid == 0
        task.cancel()
    async with running(disk) as term:
        assert set(term.env.model.sources) == {mine, other}


@virtual
async def test_a_region_under_a_wrong_id_leaves_its_keys_to_the_one_with_the_data() -> None:
    """Another tool has changed the id of a row. The region opens without data, or never."""
    disk = RegionDisk()
    data: Data = {}

    def change(disk: RegionDisk, ids: list[int]) -> None:
        disk.regions[EXTRA] = disk.regions.pop(ids[1])._replace(id=EXTRA)
        data[ids[1]] = {b"4": b"an edit"}

    async with changed(disk, change) as (term, owned):
        lost, keeping = owned[1].region, Keeping(term, "a", data)
        task = await joins(term, keeping, owned)
        await ended(term, transits(term, "assign", region := term.env.model.regions[EXTRA]))
        with pytest.raises(ViewRefused, match="is the only one with the keys") as refused:
            await forgets(term, EXTRA)
        assert f"'regent regions forget {EXTRA} --leave-hole'" in refused.value.remedy
        with pytest.raises(ViewRefused, match="is open, and the only one with some of its keys") as refused:
            await forgets(term, EXTRA, leave_hole=True)
        assert refused.value.remedy == f"'regent regions unassign {EXTRA}' closes it first"
        await ended(term, transits(term, "close", region))
        planned = await forgets(term, EXTRA, leave_hole=True, dry_run=True)
        assert planned.detail.endswith("no region until 'regent regions adopt' or 'regent tables fix-keys'")
        assert (await result_of(term, await forgets(term, EXTRA, leave_hole=True))).state is State.SUCCESS
        assert (EXTRA in disk.regions, await counts_of(term)) == (False, {"hole": 1})
        assert (await result_of(term, await adopts(term, lost))).state is State.SUCCESS
        assert (await counts_of(term), keeping.read(lost, b"4")) == ({}, b"an edit")
        task.cancel()


@virtual
async def test_the_last_region_of_a_disabled_table_leaves_no_hole() -> None:
    disk = RegionDisk()
    async with changed(disk, lambda *_: None) as (term, owned):
        task = await joins(term, Server(term, "a"), owned)
        await ended(term, changes(term, "disable"))
        with pytest.raises(ViewRefused, match="table 't' is disabled") as refused:
            await forgets(term, owned[-1].region, leave_hole=True)
        assert refused.value.remedy == "'regent tables enable t' comes first"
        task.cancel()
