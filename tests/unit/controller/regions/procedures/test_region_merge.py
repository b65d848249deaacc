"""Merges: what each step writes and sends, and what an owner's death or an abort leaves."""

from __future__ import annotations

from functools import partial

import pytest

from metadata_store.catalog.rows import HeirRow, Owner, ParentRow, RegionRow, Reshape, Source
from regent_agent.protocol import Close, Open
from state_machines.procedures.states import State
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.noting import Noting, Transaction
from tests.kit.regions.shapes import Inheriting, merges, one_inheriting
from tests.kit.regions.world import (
    at_rest,
    changes,
    creates,
    done,
    ended,
    known,
    regions_of,
    running,
    serving,
    transits,
    until,
    virtual,
)

S = RegionState


@pytest.mark.seed("S1-10", "S1-64", "S3-6")
@virtual
async def test_a_merge_moves_neighbours_together_closes_them_and_swaps_rows_in_one_write() -> None:
    noted: list[Transaction] = []
    async with running(RegionDisk(), store=partial(Noting, noted)) as term:
        one, other = servers = Inheriting(term, "a"), Inheriting(term, "b")
        async with serving(*servers):
            await ended(term, creates(term, regions=3))
            first, second, third = before = list(regions_of(term))
            assert len({region.server for region in before}) == 2
            await ended(term, merges(term, [second, first]))
            heir, rest = regions_of(term)
            await at_rest(term)
    (swap,) = [row for write in noted for row in write.rows if isinstance(row, Reshape)]
    sources = tuple(Source(one.id, one.start, one.end, one.token, one.sequence) for one in (first, second))
    token, sequence = max(one.token for one in sources), max(one.sequence for one in sources)
    assert swap == Reshape(
        tuple(
            ParentRow(one.id, "t", one.start, one.end, S.MERGED, (heir.id,), one.token, one.sequence)
            for one in (first, second)
        ),
        (RegionRow(heir.id, "t", first.start, second.end, S.CLOSED, token=token, sequence=sequence),),
        (HeirRow(heir.id, sources),),
    )
    assert (rest, heir.start, heir.end) == (third, b"", third.start)
    after = [row for write in noted for row in write.rows]
    assert after[after.index(swap) + 1 :] == [Owner(heir.id, S.OPEN, str(heir.server)[0], 1, heir.token, heir.sequence)]
    at = one if one.told[-1].pid > other.told[-1].pid else other
    closes, opened = at.told[-3:-1], at.told[-1]
    assert isinstance(opened, Open)
    assert [type(close) for close in closes] == [Close, Close], "both were at one server"
    assert (opened.region, len(opened.sources)) == (heir.id, 2)


@virtual
async def test_a_merge_whose_regions_lose_their_server_goes_on_at_another_one() -> None:
    async with one_inheriting(RegionDisk(), 2, lease_ms=3_000) as (term, server, before):
        pid = await merges(term, before)
        assert [type(one) for one in await server.operations(2)] == [Close, Close]  # and then it is silent
        async with serving(other := Inheriting(term, "b")):
            await ended(term, known(pid))
            (heir,) = regions_of(term)
    assert [type(one) for one in other.told] == [Open, Open, Close, Close, Open]
    assert (str(heir.server), heir.start, heir.end) == ("b,1", b"", b"")


@virtual
async def test_an_abort_of_a_merge_leaves_moved_regions_where_they_are_and_opens_closed_ones() -> None:
    async with one_inheriting(RegionDisk(), 2) as (term, server, before):
        pid = await merges(term, before)
        closes = await server.operations(2)
        assert await term.engine.abort(pid)
        async with serving(server):
            await server.report(*map(done, closes))
            assert (await term.engine.result(pid)).state is State.ROLLEDBACK
            await until(lambda: {one.state for one in before} == {S.OPEN})
            await at_rest(term)
        assert regions_of(term) == before


@virtual
async def test_a_heir_of_a_merge_is_split_only_once_it_is_independent_and_then_like_any_other() -> None:
    async with one_inheriting(RegionDisk(), 2) as (term, server, before), serving(server):
        await ended(term, merges(term, before))
        (heir,) = regions_of(term)
        for kind in ("close", "assign"):
            await ended(term, transits(term, kind, heir))
        assert heir.state is S.OPEN
        assert len([one for one in server.told if isinstance(one, Open) and one.sources]) == 2, "each open has them"
        await ended(term, changes(term, "disable"))
        await ended(term, changes(term, "enable"))
        assert term.env.model.sources.keys() == {heir.id}


@virtual
async def test_a_merge_one_of_whose_regions_is_left_out_by_the_next_daemon_opens_the_others_again() -> None:
    disk = RegionDisk()
    async with one_inheriting(disk, 3) as (term, server, before):
        pid = await merges(term, before)
        first, *_ = closes = await server.operations(3)
        await server.report(done(first))
        await until(lambda: before[0].state is S.CLOSED)
        assert len(closes) == 3
    disk.regions[before[1].id] = disk.regions[before[1].id]._replace(state=99)
    async with running(disk) as term, serving(Inheriting(term, "b")):
        record = await term.engine.result(pid)
        assert (record.state, "is gone" in record.error) == (State.ROLLEDBACK, True)
        await until(lambda: {one.state for one in regions_of(term)} == {S.OPEN})
        await at_rest(term)
        assert [one.id for one in regions_of(term)] == [before[0].id, before[2].id]
