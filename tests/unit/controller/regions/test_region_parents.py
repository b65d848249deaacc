"""Regions that were split or merged: they are remembered until no region needs their data, and then discarded."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple, cast

import pytest
from msgspec.structs import replace

from controller.http.documents import NotFound
from controller.regions.domain import RegionsDomain
from controller.regions.independence import UNDER_WAY_MAX, take
from controller.regions.operator.explain import explained
from controller.regions.operator.regions import RegionView, region_item
from controller.regions.operator.shapes import ShapeView
from controller.regions.procedures import discard
from controller.regions.term import RegionsTerm
from metadata_store.records.port import StoreFailed
from regent_agent import protocol
from regent_agent.protocol import Open, Owned, Work
from state_machines.regions.damage import Damage, RowKind
from state_machines.regions.shapes import ParentRow
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.shapes import Inheriting, merges, one_inheriting, splits
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    at_rest,
    changes,
    creates,
    ended,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

S = RegionState


class Domain(NamedTuple):
    """What the views need of a domain."""

    term: RegionsTerm


def parents(term: RegionsTerm) -> list[tuple[int, str, list[int], str]]:
    """Returns what operators see of regions that were split or merged: id, state, dependents, and the wait."""
    found, _ = ShapeView(cast("RegionsDomain", Domain(term))).list_parents(100)
    return [(one.id, one.state, one.dependent, one.waits_for) for one in found]


def works(server: Inheriting) -> list[tuple[str, bytes]]:
    return [(one.what, one.data) for one in server.told if isinstance(one, Work)]


@virtual
async def test_a_parent_is_discarded_once_the_last_heir_is_independent_and_not_before() -> None:
    disk = RegionDisk()
    async with one_inheriting(disk) as (term, server, (parent,)), serving(server):
        await ended(term, splits(term, parent, b"m"))
        first, second = regions_of(term)
        assert parents(term) == [
            (parent.id, "SPLIT", [first.id, second.id], f"heirs #{first.id}, #{second.id} are independent of it")
        ]
        await server.independent(first)
        await asyncio.sleep(60)
        assert parents(term) == [(parent.id, "SPLIT", [second.id], f"heirs #{second.id} are independent of it")]
        assert works(server) == []
        await server.independent(second)
        await until(lambda: not term.env.model.parents)
        await at_rest(term)
        assert works(server) == [("discard", b"%d" % parent.id)]
        assert (parents(term), disk.small, term.env.model.sources) == ([], {}, {})
        await ended(term, splits(term, first, b"c"))
        assert [one.start for one in regions_of(term)] == [b"", b"c", b"m"]


@virtual
async def test_a_word_that_may_be_stored_is_in_the_journal_once_the_term_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "regent.regions")
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)), serving(server):
        await ended(term, splits(term, parent, b"m"))
        first, second = regions_of(term)
        await server.independent(first)
        owner = second.server
        assert owner is not None
        word = asyncio.ensure_future(take(term.env, _never, owner, [Owned(second.id, second.token)]))
        await asyncio.sleep(1)
        term.close(StoreFailed("the claim is lost"))
        word.cancel()
    told = [one for one in caplog.messages if "has data of its own" in one]
    assert [one.endswith("; the term ends before that is known to be stored") for one in told] == [False, True]
    assert [f"region {one} has" in line for one, line in zip((first, second), told, strict=True)] == [True, True]


async def _never(_: object) -> None:
    """Writes without a response."""
    await asyncio.Event().wait()


@virtual
async def test_the_word_of_a_former_owner_or_of_another_open_counts_nothing() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)), serving(server):
        await ended(term, splits(term, parent, b"m"))
        first, second = regions_of(term)
        for one in (first, second):
            for token in (one.token - 1, one.token + 1, parent.token):
                await server.ask(protocol.Independent("a", 1, server.epoch, [Owned(one.id, token)]))
        assert term.env.model.sources.keys() == {first.id, second.id}


@virtual
async def test_parents_of_a_merge_go_one_by_one_with_their_own_discard() -> None:
    async with one_inheriting(RegionDisk(), 3) as (term, server, before), serving(server):
        await ended(term, merges(term, before))
        (heir,) = regions_of(term)
        assert [one[:2] for one in parents(term)] == [(one.id, "MERGED") for one in before]
        await server.independent(heir)
        await until(lambda: not term.env.model.parents)
        assert sorted(works(server)) == [("discard", b"%d" % one.id) for one in before]


@virtual
async def test_a_discard_is_found_again_by_the_next_daemon_and_by_any_server() -> None:
    disk = RegionDisk()
    async with one_inheriting(disk, lease_ms=3_000) as (term, server, (parent,)):
        async with serving(server):
            await ended(term, splits(term, parent, b"m"))
        await server.independent(*regions_of(term))
        assert isinstance(await server.operation(), Work)  # and then the daemon dies
    async with running(disk) as term:
        owner, other = Inheriting(term, "a"), Inheriting(term, "b")
        owner.has = {one.id: one.token for one in regions_of(term)}
        await owner.register(*(Owned(*one) for one in owner.has.items()))
        async with serving(other):
            await until(lambda: not term.env.model.parents)
            assert works(other) == [("discard", b"%d" % parent.id)], "the other one says nothing"
            assert not disk.small


@virtual
async def test_a_server_that_cannot_discard_is_asked_again_and_the_operator_sees_why() -> None:
    class Fails(Inheriting):
        fails = 2

        def do(self, operation: protocol.Operation) -> protocol.Result:
            if isinstance(operation, Work) and self.fails:
                self.fails -= 1
                return protocol.Result(operation.pid, protocol.FAILED, text="the disk is read-only")
            return super().do(operation)

    async with running(RegionDisk()) as term, serving(server := Fails(term, "a")):
        await ended(term, creates(term))
        (parent,) = regions_of(term)
        await ended(term, splits(term, parent, b"m"))
        await server.independent(*regions_of(term))
        await until(lambda: server.fails == 0)
        (record,) = [one for one in term.engine.live() if one.kind == discard.NAME]
        assert "a,1 said failed: the disk is read-only" in record.error
        await until(lambda: not term.env.model.parents)


@virtual
async def test_where_no_server_discards_the_parent_is_forgotten_all_the_same() -> None:
    class Keeps(Inheriting):
        features = (protocol.INHERIT,)

    async with running(RegionDisk()) as term, serving(server := Keeps(term, "a")):
        await ended(term, creates(term))
        await ended(term, splits(term, regions_of(term)[0], b"m"))
        await server.independent(*regions_of(term))
        await until(lambda: not term.env.model.parents)
        assert works(server) == []


@virtual
async def test_a_parent_is_kept_while_a_server_that_may_discard_it_has_not_come_to_the_next_daemon() -> None:
    class Keeps(Inheriting):
        features = (protocol.INHERIT,)

    disk = RegionDisk()
    async with one_inheriting(disk, lease_ms=30_000) as (term, server, (parent,)):
        async with serving(server):
            await ended(term, splits(term, parent, b"m"))
        await server.independent(*regions_of(term))
    async with running(disk, replace(OPTIONS, lease_ms=30_000)) as term, serving(other := Keeps(term, "b")):
        await asyncio.sleep(20)
        assert list(term.env.model.parents) == [parent.id]
        owner = Inheriting(term, "a")
        owner.has = {one.id: one.token for one in regions_of(term)}
        await owner.register(*(Owned(*one) for one in owner.has.items()))
        await until(lambda: term.env.model.servers["a", 1].here)
        tasks = asyncio.ensure_future(owner.serve())
        await until(lambda: not term.env.model.parents)
        assert (works(owner), works(other)) == ([("discard", b"%d" % parent.id)], [])
        tasks.cancel()


@virtual
async def test_so_many_discards_go_on_at_a_time_as_are_bearable_and_the_others_follow() -> None:
    async with one_inheriting(RegionDisk(), lease_ms=20_000) as (term, server, _):
        env = term.env
        for id_ in range(5_000, 5_000 + UNDER_WAY_MAX + 300):
            env.model.parents[id_] = ParentRow(id_, "t", b"", b"", S.MERGED, (1,), 1, 1)
            env.parents_ms[id_] = 0
        taken: list[protocol.Operation] = []

        async def takes() -> None:
            while True:
                taken.extend(await server.poll())

        silent = asyncio.ensure_future(takes())
        await until(lambda: len(taken) == UNDER_WAY_MAX)
        await asyncio.sleep(30)
        assert (len(taken), sum(1 for _ in term.engine.live())) == (UNDER_WAY_MAX, UNDER_WAY_MAX)
        silent.cancel()
        serves = asyncio.ensure_future(server.serve())
        await server.report(*map(server.do, taken))
        await until(lambda: not env.model.parents)
        serves.cancel()


@virtual
async def test_without_data_by_region_any_server_will_do_and_no_heir_has_sources() -> None:
    class Plain(Server):
        told: tuple[protocol.Operation, ...] = ()

        def do(self, operation: protocol.Operation) -> protocol.Result:
            self.told = (*self.told, operation)
            return super().do(operation)

    async with running(RegionDisk(), replace(OPTIONS, split="metadata")) as term, serving(server := Plain(term, "a")):
        await ended(term, creates(term))
        (parent,) = regions_of(term)
        await ended(term, splits(term, parent, b"m"))
        await until(lambda: not term.env.model.parents)
        first, second = regions_of(term)
        opens = [one for one in server.told if isinstance(one, Open)]
        assert [(one.region, list(one.sources)) for one in opens] == [(parent.id, []), (first.id, []), (second.id, [])]
        await ended(term, merges(term, [first, second]))
        assert [(one.start, one.end, one.state) for one in regions_of(term)] == [(b"", b"", S.OPEN)]


@virtual
async def test_a_table_whose_heirs_never_become_independent_is_disabled_and_deleted_like_any_other() -> None:
    disk = RegionDisk()
    async with one_inheriting(disk) as (term, server, (parent,)), serving(server):
        await ended(term, splits(term, parent, b"m"))
        await ended(term, changes(term, "disable"))
        assert len(parents(term)) == 1
        await ended(term, changes(term, "delete"))
        assert (parents(term), disk.small, term.env.model.sources) == ([], {}, {})
        await at_rest(term)
        await until(lambda: not term.env.parents_ms)


@virtual
async def test_a_discard_that_no_server_does_keeps_no_table_from_being_deleted() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)):
        async with serving(server):
            await ended(term, splits(term, parent, b"m"))
            await ended(term, changes(term, "disable"))
        term.env.model.sources.clear()
        assert isinstance(await server.operation(), Work)  # and nobody does it
        await ended(term, changes(term, "delete"))
        await until(lambda: not list(term.engine.live()))
        assert not term.env.model.parents


@virtual
async def test_nothing_is_discarded_while_a_stored_row_is_left_out() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)), serving(server):
        await ended(term, splits(term, parent, b"m"))
        term.env.model.damages.add(Damage(RowKind.HEIR, "row 9999", "sources", "", "it is torn"))
        await server.independent(*regions_of(term))
        await asyncio.sleep(60)
        assert [one[3] for one in parents(term)] == ["stored rows that are left out are restored"]
        assert works(server) == []


@virtual
async def test_operators_see_what_an_heir_came_from_and_what_became_of_a_parent() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)), serving(server):
        await ended(term, splits(term, parent, b"m"))
        first, second = regions_of(term)
        assert region_item(first, term.env).sources == [parent.id]
        (change,) = [one for one in explained(first, term.env, term.engine).would_change if "copies" in one]
        assert f"#{parent.id}" in change
        with pytest.raises(NotFound) as gone:
            RegionView(cast("RegionsDomain", Domain(term))).describe_region(parent.id)
        assert gone.value.message == f"region {parent.id} was split: #{first.id}, #{second.id} got its keys"


class Keeping(Inheriting):
    """A server that cannot discard anything."""

    def do(self, operation: protocol.Operation) -> protocol.Result:
        if isinstance(operation, Work) and operation.what == protocol.DISCARD:
            return protocol.Result(operation.pid, protocol.FAILED, text="the disk is read-only")
        return super().do(operation)


@virtual
async def test_the_age_of_what_a_truncation_replaced_is_shown_and_forgotten_with_the_table() -> None:
    async with running(RegionDisk(), OPTIONS) as term, serving(Keeping(term, "a")):
        await ended(term, creates(term))
        await ended(term, changes(term, "disable"))
        await ended(term, changes(term, "truncate"))
        [(gone, state, dependent, _)] = parents(term)
        assert (state, dependent) == ("TRUNCATED", [])
        assert list(term.env.parents_ms) == [gone]
        await until(lambda: "discard_parent" in {one.kind for one in term.engine.live()})
        await ended(term, changes(term, "delete"))
        await until(lambda: not term.env.parents_ms)


@virtual
async def test_a_truncation_after_a_failover_knows_once_servers_have_come_whether_they_discard_data() -> None:
    disk = RegionDisk()
    async with one_inheriting(disk, lease_ms=30_000) as (term, server, (gone,)), serving(server):
        await ended(term, changes(term, "disable"))
    async with running(disk, replace(OPTIONS, lease_ms=30_000)) as term:
        pid = await changes(term, "truncate")
        await asyncio.sleep(5)
        async with serving(server := Inheriting(term, "a")):
            await ended(term, asyncio.sleep(0, pid))
            await until(lambda: works(server))
        assert works(server) == [("discard", b"%d" % gone.id)]
