"""A region whose row is lost is stored again under its id: with its data, and once no process can serve it."""

from __future__ import annotations

import asyncio

import pytest

from controller.http.documents import Invalid, NotFound, ViewRefused
from controller.procedures.kinds import Effect
from controller.regions.operator.progress import progress_of
from controller.regions.operator.records import message_of, procedure_item
from controller.regions.procedures import adopting
from controller.regions.procedures.messages import Shape
from controller.regions.procedures.repair import REPAIR, Repair
from metadata_store.catalog.rows import HeirRow, ParentRow, Source
from regent_agent import protocol
from state_machines.procedures.outcome import Next, Wait
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.adopted_keys import said
from state_machines.regions.references import source_problem
from state_machines.regions.states import RegionState, TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.repairs import (
    COUNT,
    LONG,
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
    without,
)
from tests.kit.regions.shapes import splits
from tests.kit.regions.world import (
    Server,
    at_rest,
    changes,
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


@pytest.mark.seed("S1-96")
@pytest.mark.parametrize("at", range(COUNT))
def test_what_was_written_before_a_row_was_lost_is_served_again(at: int) -> None:
    @virtual
    async def story() -> None:
        data: Data = {}
        disk = RegionDisk()
        async with running(disk, LONG) as term:
            before = Keeping(term, "a", data)
            async with serving(before):
                await ended(term, creates(term, regions=COUNT))
                owned = lists(regions_of(term))
                keys = [(one.start, one.end) for one in regions_of(term)]
                lost = owned[at].region
                before.write(lost, b"k", b"v")
        del disk.regions[lost]
        async with running(disk, LONG) as term:
            server = Keeping(term, "a", data)
            task = await joins(term, server, owned)
            await until(lambda: lost in term.env.claimants.had)
            [mend] = await mends_of(term)
            assert "'regent regions adopt ID --table t' stores a region again" in mend
            assert f"(a had region {lost}, without a row)" in mend
            planned = await adopts(term, lost, dry_run=True, reason="")
            assert (planned.pid, len(regions_of(term))) == (0, COUNT - 1)
            assert f"region t#{lost} with the keys" in planned.detail
            record = await result_of(term, await adopts(term, lost))
            assert (record.state, record.result) == (State.SUCCESS, b"0")
            stored = f"region t#{lost} stored with the keys {said(keys[at])}; 'regent regions explain {lost}' shows"
            assert procedure_item(record).result.startswith(stored)
            await at_rest(term)
            assert [(one.start, one.end) for one in regions_of(term)] == keys
            region = term.env.model.regions[lost]
            assert (region.state, server.read(lost, b"k")) == (S.OPEN, b"v")
            assert region.token > record.pid > max(one.token for one in owned)
            assert (await counts_of(term), term.env.model.damages.gaps) == ({}, [])
            routes = await Server(term, "c").ask(protocol.Locate("t", keys[at][0]))
            assert isinstance(routes, protocol.Routes), routes
            assert disk.regions[lost].token == region.token
            task.cancel()

    story()


@virtual
async def test_a_process_that_serves_the_lost_region_closes_it_before_it_is_stored() -> None:
    async with changed(RegionDisk(), without(2)) as (term, owned):
        lost = owned[2].region
        pid = (await adopts(term, lost)).pid
        await asyncio.sleep(2)
        assert (lost in term.env.model.regions, term.engine.records[pid].step) == (False, adopting.FIND)
        told = progress_of(term.engine.records[pid], term.env, term.engine)
        assert "it waits: a,1 did not list their regions since the daemon started" in told
        server = Server(term, "a")
        await server.register(*owned)
        close = await server.operation()
        assert isinstance(close, protocol.Close)
        assert (close.region, lost in term.env.model.regions) == (lost, False)
        told = progress_of(term.engine.records[pid], term.env, term.engine)
        assert f"it waits: a,1 has region {lost}, of which no row tells, and is to close it" in told
        await server.report(server.do(close))
        opened = await server.operation()
        assert isinstance(opened, protocol.Open)
        assert (opened.region, opened.token > owned[2].token) == (lost, True)
        await server.report(server.do(opened))
        assert (await term.engine.result(pid)).state is State.SUCCESS
        await at_rest(term)


@pytest.mark.parametrize("crashes", [False, True])
def test_a_process_that_has_a_region_whose_row_is_damaged_closes_it_before_that_is_replaced(crashes: bool) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with changed(disk, damaging(2, state=99)) as (term, owned):
            bad = owned[2].region
            other = Server(term, "b")
            await other.register()
            server = Server(term, "a")
            await server.register(*owned)
            await asyncio.sleep(2)
            assert term.env.claimants.keepers(bad) == {("a", 1): owned[2].token}
            assert term.env.model.damages.count.total() == 1
            pid = (await adopts(term, bad)).pid
            close = await server.operation()
            assert isinstance(close, protocol.Close), "nothing closes it but the repair"
            assert (close.region, bad in term.env.model.regions) == (bad, False)
            told = progress_of(term.engine.records[pid], term.env, term.engine)
            assert f"it waits: a,1 has region {bad}, and is to close it" in told
            if crashes:
                task = asyncio.ensure_future(other.serve())
                term.manager.expire(term.env.model.servers["a", 1], "a test")
                await asyncio.sleep(2)
                assert bad not in term.env.model.regions, "it is not fenced"
            else:
                await server.report(server.do(close))
                task = asyncio.ensure_future(server.serve())
            assert (await term.engine.result(pid)).state is State.SUCCESS
            await at_rest(term)
            assert term.env.model.regions[bad].state is S.OPEN
            damages = term.env.model.damages
            assert (damages.count.total(), damages.rows, damages.regions, damages.tables) == (0, [], set(), {})
            assert (await counts_of(term), disk.regions[bad].state) == ({}, int(S.OPEN))
            task.cancel()

    story()


@virtual
async def test_an_adopted_region_begins_again_as_the_data_of_its_sources() -> None:
    disk = RegionDisk()

    def change(disk: RegionDisk, ids: list[int]) -> None:
        lost = disk.regions.pop(ids[1])
        del disk.regions[ids[2]]  # a hole of two regions: what the first one refers to says which keys are its own
        sources = (Source(ids[0] * 1000, lost.start, lost.end, 1, 1, "s 1"),)
        disk.small[HeirRow, (lost.id,)] = HeirRow(lost.id, sources)

    async with changed(disk, change) as (term, owned):
        lost = owned[1].region
        server = Keeping(term, "a", {})
        task = await joins(term, server, owned)
        assert f"'regent regions adopt {lost} --table TABLE'" in "".join(await mends_of(term))
        assert (await result_of(term, await adopts(term, lost))).result == b"0"
        assert [one.region for one in term.env.model.sources[lost]] == [owned[0].region * 1000]
        assert (HeirRow, (lost,)) in disk.small
        bounds = term.env.model.regions[owned[0].region].end, term.env.model.regions[lost].end
        assert (term.env.model.regions[lost].start, bounds[1]) == (bounds[0], b"66666666")
        opened = [one for one in server.told if isinstance(one, protocol.Open) and one.region == lost]
        assert [one.region for one in opened[-1].sources] == [owned[0].region * 1000]
        task.cancel()


@virtual
async def test_a_region_of_a_disabled_table_is_stored_closed_and_is_no_source_of_a_clone_before_it_was_open() -> None:
    disk = RegionDisk()
    async with changed(disk, without(2)) as (term, owned):
        task = await joins(term, Server(term, "a"), owned)
        await ended(term, changes(term, "disable"))
        lost, table = owned[2].region, term.env.model.tables["t"]
        record = await result_of(term, await adopts(term, lost))
        assert (record.state, record.result) == (State.SUCCESS, b"0")
        region = term.env.model.regions[lost]
        assert (region.state, region.token, region.clean) == (S.CLOSED, record.pid, False)
        assert (disk.regions[lost].token, disk.regions[lost].clean) == (record.pid, 0)
        assert f"region t#{lost} was not closed by its server" in str(source_problem(term.env.model, table))
        await ended(term, changes(term, "enable"))
        await ended(term, changes(term, "disable"))
        assert source_problem(term.env.model, table) is None
        task.cancel()


@virtual
async def test_of_several_holes_the_keys_say_which_one_is_the_regions() -> None:
    async with changed(RegionDisk(), without(0, 2, 3)) as (term, owned):
        task = await joins(term, Server(term, "a"), owned)
        first, second, third = (owned[at].region for at in (0, 2, 3))
        with pytest.raises(
            ViewRefused, match="has 2 key ranges without a region: from the first key to 33333333; from"
        ) as refused:
            await adopts(term, first)
        assert "--start and --end" in refused.value.remedy
        with pytest.raises(ViewRefused, match="are not wholly without a region"):
            await adopts(term, first, start="", end="4")
        with pytest.raises(ViewRefused, match="are not wholly without a region"):
            await adopts(term, first, start="2", end="1")
        for id_, start, end in ((first, "", None), (third, "99999999", None), (second, None, None)):
            assert (await result_of(term, await adopts(term, id_, start=start, end=end))).result == b"0"
        await at_rest(term)
        assert [one.id for one in regions_of(term)] == [one.region for one in owned]
        assert (await counts_of(term), term.env.model.damages.gaps) == ({}, [])
        task.cancel()


@virtual
async def test_of_two_repairs_of_one_region_or_of_its_keys_one_is_made() -> None:
    async with changed(RegionDisk(), without(1, 3)) as (term, owned):
        lost, other = owned[1].region, owned[3].region
        begun = [await adopts(term, one, start="33333333", end="66666666") for one in (lost, lost, other)]
        task = await joins(term, Server(term, "a"), owned)
        records = [await result_of(term, one) for one in begun]
        assert [one.state for one in records] == [State.SUCCESS, State.ROLLEDBACK, State.ROLLEDBACK]
        assert f"adopt: region t#{lost} is there" in records[1].error
        assert "adopt: a region has some of the keys from 33333333 to 66666666" in records[2].error
        assert await counts_of(term) == {"hole": 1}
        [mend] = await mends_of(term)
        assert (f"a had region {other}, without a row" in mend, f"region {lost}" in mend) == (True, False)
        task.cancel()


@virtual
async def test_a_process_that_comes_before_the_write_is_awaited_as_one_before() -> None:
    async with changed(RegionDisk(), without(2)) as (term, owned):
        task, env = await joins(term, Server(term, "a"), owned), term.env
        await until(lambda: not adopting.waits_for(env, owned[2].region))
        data = REPAIR.encode(Repair(owned[2].region, "t", "lost", b"66666666", b"99999999"))
        pid = await env.number(0)
        record = Record(pid, adopting.NAME, State.RUNNABLE, adopting.STORE, 0, 0, data=data)
        assert await adopting.find(env, record) == Next(adopting.STORE, data)
        env.claimants.processes.add(("late", 1))
        assert isinstance(await adopting.store(env, record), Wait)
        env.claimants.processes.clear()
        assert isinstance(await adopting.store(env, record), Effect)
        task.cancel()


@virtual
async def test_an_adoption_that_may_be_wrong_is_refused_with_what_lets_it_succeed() -> None:
    disk = RegionDisk()
    async with running(disk, LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=COUNT))
        ids = [one.id for one in regions_of(term)]
        keys = regions_of(term)[1]
        parent = ParentRow(1, "t", keys.start, keys.end, int(S.SPLIT), (ids[1],), 1, 1)
        term.env.model.parents[1] = parent
        term.env.parents_ms[1] = 0
        for id_, table, what, remedy in (
            (ids[0], "t", f"region t#{ids[0]} is there: it is OPEN", "regions explain"),
            (1, "t", f"region 1 is SPLIT: its heirs #{ids[1]} got its keys", "adopt the heir"),
            (10**9, "t", "never was: this store has not given out that id", "regent events show --table t"),
            (0, "t", "region 0 never was", "regent events show --table t"),
            (2, "t", "each key of table 't' has a region", "regent regions report --table t"),
        ):
            with pytest.raises(ViewRefused, match=what) as refused:
                await adopts(term, id_, table)
            assert remedy in refused.value.remedy
        with pytest.raises(ViewRefused, match="never was"):  # the next table gets it
            await adopts(term, ids[-1] + 1)
        with pytest.raises(NotFound, match="table 'w' does not exist"):
            await adopts(term, 2, "w")
        with pytest.raises(Invalid, match="reason is empty: a repair of the catalog needs one"):
            await adopts(term, 2, reason=" ")
        with pytest.raises(Invalid, match="a backslash begins"):
            await adopts(term, 2, start="\\y")
        term.env.model.tables["t"].state = TableState.ENABLING
        with pytest.raises(ViewRefused, match="table 't' is enabling, and must be enabled or disabled"):
            await adopts(term, 2)
        record = await term.engine.result(await procedure(term, adopting.NAME, REPAIR.encode(Repair(2, "w"))))
        assert (record.state, record.error) == (State.ROLLEDBACK, "adopt: table 'w' does not exist")


@virtual
async def test_a_row_whose_keys_are_not_known_keeps_other_regions_from_theirs_and_not_its_own() -> None:
    disk = RegionDisk()

    def change(disk: RegionDisk, ids: list[int]) -> None:
        damaging(1, state=99, start="no key", end="no key")(disk, ids)
        without(3)(disk, ids)

    async with changed(disk, change) as (term, owned):
        bad, lost = owned[1].region, owned[3].region
        task = await joins(term, Server(term, "a"), owned)
        with pytest.raises(ViewRefused, match=f"may have a region for its keys: region {bad}: start is") as refused:
            await adopts(term, lost, start="99999999")
        assert f"'regent regions adopt {bad} --table t' comes first" in refused.value.remedy
        assert (await result_of(term, await adopts(term, bad, end="66666666"))).result == b"0"
        assert (await result_of(term, await adopts(term, lost))).result == b"0"
        assert await counts_of(term) == {}
        task.cancel()


@virtual
async def test_rows_that_tell_keys_apart_are_stored_again_in_any_order() -> None:
    async with changed(RegionDisk(), damaging(1, 3, state=99)) as (term, owned):
        first, second = owned[1].region, owned[3].region
        task = await joins(term, Server(term, "a"), owned)
        with pytest.raises(ViewRefused, match="may have a region for its keys") as refused:
            await adopts(term, first, start="99999999", end="cccccccc")
        assert refused.value.remedy
        planned = await adopts(term, second, start="9999999a", dry_run=True, reason="")
        assert "its row had other keys, from 99999999 to cccccccc: make sure" in planned.detail
        for one in (second, first):
            assert "its row" not in (await adopts(term, one, dry_run=True, reason="")).detail
            assert (await result_of(term, await adopts(term, one))).result == b"0"
        assert [one.id for one in regions_of(term)] == [one.region for one in owned]
        assert await counts_of(term) == {}
        task.cancel()


@virtual
async def test_rows_of_which_neither_tells_its_keys_are_stored_again_once_one_is_forgotten() -> None:
    async with changed(RegionDisk(), damaging(1, 3, start="no key", end="no key")) as (term, owned):
        first, second = owned[1].region, owned[3].region
        task = await joins(term, Server(term, "a"), owned)
        with pytest.raises(ViewRefused, match="may have a region for its keys") as refused:
            await adopts(term, first, start="33333333", end="66666666")
        way = refused.value.remedy
        assert f"'regent regions forget {second}' removes the row" in way
        assert f"; then adopt region {first}, and then 'regent regions adopt {second} --table t' stores" in way
        assert (await result_of(term, await forgets(term, second))).state is State.SUCCESS
        assert (await result_of(term, await adopts(term, first, start="33333333", end="66666666"))).result == b"0"
        assert (await result_of(term, await adopts(term, second))).result == b"0"
        assert await counts_of(term) == {}
        task.cancel()


@virtual
async def test_a_row_that_does_not_tell_all_of_its_keys_comes_first() -> None:
    disk = RegionDisk()

    def change(disk: RegionDisk, ids: list[int]) -> None:
        damaging(1, state=99)(disk, ids)
        damaging(3, start=b"0" * 2_000)(disk, ids)

    async with changed(disk, change) as (term, owned):
        whole, vague = owned[1].region, owned[3].region
        task = await joins(term, Server(term, "a"), owned)
        with pytest.raises(ViewRefused, match=f"may have a region for its keys: region {vague}") as refused:
            await adopts(term, whole)
        assert f"'regent regions adopt {vague} --table t' comes first, with its keys as" in refused.value.remedy
        with pytest.raises(ViewRefused, match=f"may have a region for its keys: region {whole}") as refused:
            await adopts(term, vague, start="33333333", end="66666666")
        apart = f"give keys apart from those of region {whole}, from 33333333 to 66666666; or forget {whole}"
        assert apart in refused.value.remedy
        for one in (vague, whole):
            assert (await result_of(term, await adopts(term, one))).result == b"0"
        assert [one.id for one in regions_of(term)] == [one.region for one in owned]
        assert await counts_of(term) == {}
        task.cancel()


@virtual
async def test_a_row_that_tells_its_table_or_its_keys_is_stored_nowhere_else() -> None:
    disk = RegionDisk()

    def change(disk: RegionDisk, ids: list[int]) -> None:
        damaging(1, state=99)(disk, ids)
        damaging(3, table="")(disk, ids)
        [row] = [one for one in disk.tables.values() if one.name == "t"]
        disk.tables["u"] = row._replace(name="u")
        disk.regions[900] = disk.regions[ids[0]]._replace(id=900, table="u", start=b"", end=b"a")

    async with changed(disk, change) as (term, owned):
        bad, nameless = owned[1].region, owned[3].region
        with pytest.raises(ViewRefused, match=f"region {bad} is one of table t, and not of u") as refused:
            await adopts(term, bad, "u")
        assert refused.value.remedy == f"'regent regions adopt {bad} --table t' stores it there"
        with pytest.raises(
            ViewRefused, match="had the keys from 99999999 to cccccccc by its row, and no hole"
        ) as refused:
            await adopts(term, nameless, "u", start="b", end="c")
        assert "'regent regions report --kind hole'" in refused.value.remedy
        assert "its row tells no table that is there" in (await adopts(term, nameless, dry_run=True, reason="")).detail


@virtual
async def test_a_region_whose_owner_or_whose_sources_cannot_be_read_is_not_adopted() -> None:
    disk = RegionDisk()

    def change(disk: RegionDisk, ids: list[int]) -> None:
        disk.small[HeirRow, (ids[0],)] = HeirRow(ids[0], ())
        disk.small[ParentRow, (1,)] = ParentRow(1, "t", b"", b"", 99, (ids[1],), 1, 1)
        [server] = disk.servers
        disk.servers[server] = disk.servers[server]._replace(address=7)  # type: ignore[arg-type]
        disk.servers["", 0] = disk.servers[server]._replace(name="", incarnation=0)
        del disk.servers[server]

    async with changed(disk, change) as (term, owned):
        with pytest.raises(ViewRefused, match=f"what region {owned[0].region} refers to cannot be read") as refused:
            await adopts(term, owned[0].region)
        assert f"'regent regions forget {owned[0].region}' comes first" in refused.value.remedy
        with pytest.raises(ViewRefused, match="region 1 was split, merged or truncated, and that row is left out"):
            await adopts(term, 1)
        with pytest.raises(ViewRefused, match=f"server a,1 may have region {owned[2].region}") as refused:
            await adopts(term, owned[2].region)
        assert "regent servers recover a,1" in refused.value.remedy
        with pytest.raises(ViewRefused, match=f"server a,1 may have region {owned[2].region}"):
            await forgets(term, owned[2].region)


@virtual
async def test_a_repair_that_a_copy_of_the_store_had_under_way_is_begun_again() -> None:
    async with changed(RegionDisk(), without(2)) as (term, owned):
        begun = await adopts(term, owned[2].region)
        term.env.copied_number = begun.pid
        task = await joins(term, Server(term, "a"), owned)
        record = await result_of(term, begun)
        assert (record.state, adopting.COPIED in record.error) == (State.ROLLEDBACK, True)
        assert (await result_of(term, await adopts(term, owned[2].region))).result == b"0"
        task.cancel()


@virtual
async def test_an_id_that_a_procedure_is_to_give_to_its_region_is_not_adopted() -> None:
    async with changed(RegionDisk(), without(4)) as (term, owned):
        server = Keeping(term, "a", {})
        await server.register(*owned)
        await until(lambda: not term.env.claimants.processes)
        region = regions_of(term)[0]
        await splits(term, region, b"1")
        [heir] = [one.heirs[0] for record in term.engine.live() if isinstance(one := message_of(record), Shape)]
        with pytest.raises(ViewRefused, match=f"region {heir} is to be made by procedure"):
            await adopts(term, heir)
