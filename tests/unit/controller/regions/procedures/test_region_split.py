"""Splits: what each step writes and sends, what clients are told, and what a crash, an abort or a bypass leaves."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from msgspec.structs import astuple, replace

from controller.regions.procedures import close, many, split
from controller.regions.procedures.messages import MANY, Many
from controller.regions.routes import PAGE_S
from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import HeirRow, Owner, ParentRow, RegionRow, Reshape, Source
from regent_agent import protocol
from regent_agent.protocol import Changes, Close, ListRoutes, Locate, Open, Route, Routes, Work
from state_machines.procedures.states import State
from state_machines.regions.shapes import HEIRS_MAX
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.noting import Noting, Transaction, rows_of
from tests.kit.regions.shapes import Inheriting, one_inheriting, splits
from tests.kit.regions.world import (
    at_rest,
    changes,
    creates,
    done,
    ended,
    known,
    procedure,
    regions_of,
    running,
    serving,
    transits,
    until,
    virtual,
)

S = RegionState


@pytest.mark.seed("S1-10", "S1-64", "S3-6", "S3-16")
@virtual
async def test_a_split_closes_the_parent_then_swaps_rows_in_one_write_then_opens_the_heirs() -> None:
    noted: list[Transaction] = []
    async with running(RegionDisk(), store=partial(Noting, noted)) as term:
        server = Inheriting(term, "a")
        async with serving(server):
            await ended(term, creates(term))
            (parent,) = regions_of(term)
            token, sequence = parent.token, parent.sequence
            server.told.clear()
            noted.clear()
            result = await ended(term, splits(term, parent, b"m"))
            first, second = regions_of(term)
            assert result == b"#%d, #%d" % (first.id, second.id)
            await at_rest(term)
    source = Source(parent.id, b"", b"", token, sequence)
    assert rows_of(noted) == [
        Owner(parent.id, S.CLOSED, "", 0, token, sequence, 0, 1, "a"),
        Reshape(
            (ParentRow(parent.id, "t", b"", b"", S.SPLIT, (first.id, second.id), token, sequence),),
            (
                RegionRow(first.id, "t", b"", b"m", S.CLOSED, token=token, sequence=sequence),
                RegionRow(second.id, "t", b"m", b"", S.CLOSED, token=token, sequence=sequence),
            ),
            (HeirRow(first.id, (source,)), HeirRow(second.id, (source,))),
        ),
        Owner(first.id, S.OPEN, "a", 1, first.token, first.sequence),
        Owner(second.id, S.OPEN, "a", 1, second.token, second.sequence),
    ]
    (swap,) = [one for one in noted if any(isinstance(row, Reshape) for row in one.rows)]
    assert [(put.kind, put.step) for put in swap.puts] == [("split", split.COMMIT + 1)]
    closing, *opens = server.told
    assert isinstance(closing, Close)
    assert (closing.region, closing.token) == (parent.id, token)
    opened = [one for one in opens if isinstance(one, Open)]
    assert [(one.region, one.start, one.end) for one in opened] == [(first.id, b"", b"m"), (second.id, b"m", b"")]
    assert [[Source(*astuple(one)) for one in operation.sources] for operation in opened] == 2 * [[source]]
    assert min(first.token, second.token) > token


async def owners(term: RegionsTerm, *keys: bytes) -> list[str]:
    """Returns the owners of keys as clients locate them, and checks that a list has the same ones, without a hole."""
    await asyncio.sleep(PAGE_S)  # for so long a page is the same for all
    listed = await term.service.handle(ListRoutes("t"))
    assert isinstance(listed, Routes)
    assert [one.end for one in listed.routes] == [*[one.start for one in listed.routes[1:]], b""]
    found = []
    for key in keys:
        located = await term.service.handle(Locate("t", key))
        assert isinstance(located, Routes)
        (route,) = located.routes
        assert [one for one in listed.routes if one.start <= key and (not one.end or key < one.end)] == [route]
        found.append(f"{route.region} {route.server}".strip())
    return found


@virtual
async def test_a_key_has_one_route_at_every_moment_of_a_split_and_followers_are_told_of_all_in_one_change() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)):
        assert await owners(term, b"a", b"z") == 2 * [f"{parent.id} a"]
        pid = await splits(term, parent, b"m")
        await until(lambda: parent.state is S.CLOSING)
        before = term.env.routes.change
        assert await owners(term, b"a", b"z") == 2 * [f"{parent.id}"]
        await server.report(done(await server.operation()))
        await until(lambda: len(regions_of(term)) == 2)
        first, second = regions_of(term)
        assert {one.pid for one in (first, second)}.isdisjoint({0}), "no other procedure takes an heir"
        assert await owners(term, b"a", b"lz", b"m", b"z") == 2 * [f"{first.id}"] + 2 * [f"{second.id}"]
        told = await term.service.handle(protocol.Follow(term.service.epoch, before, ["t"]))
        assert isinstance(told, Changes)
        assert told.routes == [
            Route(parent.id, "t", b"", b"", gone=True),
            Route(first.id, "t", b"", b"m"),
            Route(second.id, "t", b"m", b""),
        ]
        async with serving(server):
            await ended(term, known(pid))
        assert await owners(term, b"a", b"z") == [f"{first.id} a", f"{second.id} a"]


@virtual
async def test_a_parent_whose_owner_crashes_is_opened_and_closed_once_more_before_its_keys_go_to_heirs() -> None:
    """Its edits may wait in the log of the owner: only an open takes them."""
    async with one_inheriting(RegionDisk(), lease_ms=3_000) as (term, server, (parent,)):
        pid = await splits(term, parent, b"m")
        assert isinstance(await server.operation(), Close)  # and then it is silent
        async with serving(other := Inheriting(term, "b")):
            await ended(term, known(pid))
            first, second = regions_of(term)
    assert [type(one) for one in other.told] == [Open, Close, Open, Open]
    opened, closed, *_ = other.told
    assert isinstance(opened, Open)
    assert isinstance(closed, Close)
    assert (opened.region, closed.region, closed.token) == (parent.id, parent.id, opened.token)
    assert {one.token for id_ in (first.id, second.id) for one in term.env.model.sources[id_]} == {opened.token}


@pytest.mark.parametrize("crashes", [False, True])
def test_an_abort_before_the_commit_has_the_parent_open_again_where_it_was(crashes: bool) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with one_inheriting(disk) as (term, server, (parent,)), serving(Inheriting(term, "b")):
            pid = await splits(term, parent, b"m")
            closing = await server.operation()
            assert await term.engine.abort(pid)
            if crashes:
                term.manager.expire(term.env.model.servers["a", 1], "it is gone")
            else:
                await server.report(done(closing))
                opening = await server.operation()
                assert isinstance(opening, Open)
                assert opening.region == parent.id
                await server.report(done(opening))
            assert (await term.engine.result(pid)).state is State.ROLLEDBACK
            await until(lambda: parent.state is S.OPEN)
            assert str(parent.server) == ("b,1" if crashes else "a,1")
            assert regions_of(term) == [parent]
            assert (term.env.model.parents, term.env.model.sources) == ({}, {})
            await until(lambda: not list(term.engine.live()))

    story()


@virtual
async def test_no_abort_takes_a_split_back_whose_heirs_have_the_keys() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)):
        pid = await splits(term, parent, b"m")
        await server.report(done(await server.operation()))
        await until(lambda: len(regions_of(term)) == 2)
        assert not await term.engine.abort(pid)
        async with serving(server):
            await ended(term, known(pid))
        assert {one.state for one in regions_of(term)} == {S.OPEN}


@virtual
async def test_a_split_that_is_bypassed_leaves_the_parent_or_its_heirs_and_never_both() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)):
        first = await splits(term, parent, b"m")
        closing = await server.operation()
        assert await term.engine.bypass(closing.pid)
        again = await server.operation()
        assert again == Close(again.pid, parent.id, parent.token)
        async with serving(server):
            await server.report(done(again))
            await at_rest(term)
            assert (regions_of(term), parent.state) == ([parent], S.OPEN)
            assert (await term.engine.result(first)).bypassed
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)):
        second = await splits(term, parent, b"m")
        await server.report(done(await server.operation()))
        await until(lambda: len(regions_of(term)) == 2)
        for opening in await server.operations(2):
            assert await term.engine.bypass(opening.pid)
        assert (await term.engine.result(second)).bypassed
        async with serving(server):
            await until(lambda: all(one.state is S.CLOSED and not one.pid for one in regions_of(term)))
            for one in regions_of(term):
                await ended(term, transits(term, "assign", one))
            assert {one.state for one in regions_of(term)} == {S.OPEN}
            assert term.env.model.sources.keys() == {one.id for one in regions_of(term)}


@virtual
async def test_a_table_that_is_to_be_disabled_ends_its_splits_before_the_commit() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)):
        pid = await splits(term, parent, b"m")
        closing = await server.operation()
        disabled = asyncio.ensure_future(ended(term, changes(term, "disable")))
        await until(lambda: term.env.endings)
        await server.report(done(closing))
        assert (await term.engine.result(pid)).state is State.ROLLEDBACK
        await disabled
        assert (regions_of(term), parent.server) == ([parent], None)
        await at_rest(term)


@virtual
async def test_a_disable_that_comes_after_the_commit_waits_for_no_open_that_never_ends() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)):
        await splits(term, parent, b"m")
        await server.report(done(await server.operation()))
        opens = await server.operations(2)
        disabled = asyncio.ensure_future(ended(term, changes(term, "disable")))
        await until(lambda: term.env.endings)
        await server.report(*(protocol.Result(one.pid, protocol.FAILED_OPEN, text="no") for one in opens))
        async with serving(server):
            await disabled
        assert [one.server for one in regions_of(term)] == [None, None]


@virtual
async def test_a_request_about_a_region_that_a_split_has_waits_for_its_lock_and_finds_it_gone() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)):
        pid = await splits(term, parent, b"m")
        closing = await server.operation()
        closed = await transits(term, close.NAME, parent)
        async with serving(server):
            await server.report(done(closing))
            await ended(term, known(pid))
            assert await ended(term, known(closed)) == b"the region is gone"


@virtual
async def test_two_splits_of_one_region_make_two_heirs_and_the_second_one_is_refused() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)), serving(server):
        first, second = [await splits(term, parent, key) for key in (b"g", b"m")]
        await ended(term, known(first))
        record = await term.engine.result(second)
        assert record.state is State.ROLLEDBACK
        assert "is gone" in record.error
        assert [one.start for one in regions_of(term)] == [b"", b"g"]
        await at_rest(term)


@virtual
async def test_an_heir_that_no_server_can_open_is_named_in_the_result_and_assigned_again_later() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)):
        term.env.options = replace(term.env.options, open_attempts_max=1)
        pid = await splits(term, parent, b"m")
        await server.report(done(await server.operation()))
        bad, good = [one for one in await server.operations(2) if isinstance(one, Open)]
        await server.report(protocol.Result(bad.pid, protocol.FAILED_OPEN, text="no"), done(good))
        assert await ended(term, known(pid)) == b"#%d failed_open, #%d" % (bad.region, good.region)
        async with serving(server):
            await ended(term, transits(term, "assign", regions_of(term)[0]))
        assert {one.state for one in regions_of(term)} == {S.OPEN}


@virtual
async def test_without_a_key_the_server_of_the_region_names_the_one_that_halves_it() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)):
        server.keys[parent.id] = b"k"
        async with serving(server):
            await ended(term, splits(term, parent))
        asked, closing, *_ = server.told
        assert isinstance(asked, Work)
        assert (asked.what, asked.region, asked.token) == ("split_key", parent.id, parent.token)
        assert isinstance(closing, Close)
        assert [one.start for one in regions_of(term)] == [b"", b"k"]


@pytest.mark.parametrize(
    ("key", "why"), [(b"", "knows no key that halves it: give one"), (b"z" * 1_025, "key: 1025 bytes, at most 1024")]
)
def test_a_region_without_a_key_that_halves_it_stays_whole_and_goes_on_serving(key: bytes, why: str) -> None:
    @virtual
    async def story() -> None:
        async with one_inheriting(RegionDisk()) as (term, server, (parent,)), serving(server):
            server.keys[parent.id] = key
            record = await term.engine.result(await splits(term, parent))
            assert record.state is State.ROLLEDBACK
            assert why in record.error
            assert (regions_of(term), parent.state, parent.pid) == ([parent], S.OPEN, 0)
            assert [type(one) for one in server.told] == [Work], "it was not closed"
            await at_rest(term)

    story()


@virtual
async def test_a_server_that_crashes_as_it_looks_for_a_key_is_followed_by_another_one() -> None:
    async with one_inheriting(RegionDisk(), lease_ms=3_000) as (term, server, (parent,)):
        pid = await splits(term, parent)
        assert isinstance(await server.operation(), Work)  # and then it is silent
        other = Inheriting(term, "b")
        other.keys[parent.id] = b"k"
        async with serving(other):
            await ended(term, known(pid))
        assert [type(one) for one in other.told] == [Open, Work, Close, Open, Open]


@virtual
async def test_a_parent_that_a_server_may_have_still_keeps_its_keys_until_that_has_closed_it() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)):
        pid = await splits(term, parent, b"m")
        closing = await server.operation()
        term.env.claimants.listed(("b", 1), [parent.id])
        async with serving(server):
            await server.report(done(closing))
            await asyncio.sleep(10)
            assert (regions_of(term), parent.state) == ([parent], S.CLOSED)
            term.env.claimants.settled(("b", 1), parent.id)
            term.env.wake_held()
            await ended(term, known(pid))
        assert [one.start for one in regions_of(term)] == [b"", b"m"]


@virtual
async def test_a_server_that_lists_a_parent_whose_heirs_have_its_keys_closes_it_and_goes_on() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)), serving(server):
        token = parent.token
        await ended(term, splits(term, parent, b"m"))
        server.told.clear()
        server.has[parent.id] = token
        listed = [protocol.Owned(*one) for one in server.has.items()]
        await server.ask(protocol.Regions("a", 1, server.epoch, listed))
        await until(lambda: parent.id not in server.has)
        assert [(type(one), one.region) for one in server.told if isinstance(one, Close)] == [(Close, parent.id)]
        await at_rest(term)
        assert {str(one.server) for one in regions_of(term)} == {"a,1"}


@virtual
async def test_the_first_heir_stays_with_the_server_of_its_parent_and_the_second_one_goes_where_there_is_room() -> None:
    async with running(RegionDisk(), placement="round_robin") as term:
        servers = [Inheriting(term, name) for name in "abc"]
        async with serving(*servers):
            await ended(term, creates(term, regions=3))
            for parent in list(regions_of(term)):
                at = parent.server
                await ended(term, splits(term, parent, parent.start + b"1"))
                assert [one.server for one in regions_of(term) if one.start == parent.start] == [at]
            assert len({one.server for one in regions_of(term)}) == 3


@virtual
async def test_a_split_whose_room_others_have_taken_is_undone_before_its_heirs_have_the_keys() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)):
        pid = await splits(term, parent, b"m")
        close = await server.operation()
        term.env.model.sources.update((id_, ()) for id_ in range(1_000_000, 1_000_000 + HEIRS_MAX - 1))
        await server.report(server.do(close))
        async with serving(server):
            record = await term.engine.result(pid)
            assert record.state is State.ROLLEDBACK
            assert record.error.endswith("wait until fewer do: 'regent regions parents' lists what waits")
            await until(lambda: parent.state is S.OPEN)
        assert regions_of(term) == [parent]


@virtual
async def test_a_batch_of_which_a_region_was_split_meanwhile_leaves_none_of_the_others_out() -> None:
    async with one_inheriting(RegionDisk(), 3) as (term, server, regions), serving(server):
        for one in regions:
            await ended(term, transits(term, "close", one))
        gone, *others = [one.id for one in regions]
        await ended(term, transits(term, "assign", regions[0]))
        await ended(term, splits(term, regions[0], b"1"))
        rest = MANY.encode(Many("t", ids=(gone, *others), begun=1))
        await ended(term, procedure(term, many.ASSIGN_MANY, rest))
        assert [one.state for one in regions_of(term)] == [S.OPEN] * 4
