"""Work on a region and on all regions of a table: who does it, what waits for it, and what ends it."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from msgspec.structs import replace

from controller.procedures.requests import ProcedureRefused
from controller.regions.operator.explain import explained
from controller.regions.operator.progress import progress_of
from controller.regions.operator.records import detail_of
from controller.regions.operator.region_changes import region_problem
from controller.regions.procedures import close, move, region_work
from controller.regions.procedures.messages import MOVE, REGION_WORK, Move, RegionWork
from regent_agent import protocol
from regent_agent.protocol import BUSY, FAILED, NOT_RUNNING, Result
from state_machines.procedures.states import State
from state_machines.regions.entities import Region
from state_machines.regions.states import RegionState, ServerState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.working import COMPACT, Worker, at_work, failed, free, works, works_on_all
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    at_rest,
    changes,
    creates,
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


@pytest.mark.seed("S2-40", "S2-41", "S2-56")
@virtual
async def test_the_owner_does_it_with_its_token_and_what_it_returns_is_the_result() -> None:
    async with running(RegionDisk()) as term:
        a = Worker(term, "a")
        async with serving(a):
            await ended(term, creates(term, regions=2))
            region = regions_of(term)[1]
            assert await ended(term, works(term, region)) == b"ba"
            [work] = a.works
            assert (work.what, work.region, work.token, work.table, work.data) == (
                COMPACT,
                region.id,
                region.token,
                "t",
                b"ab",
            )
            free(term, region)


@pytest.mark.seed("S2-54")
@virtual
async def test_a_move_waits_for_it_and_a_region_at_work_is_not_in_transition() -> None:
    async with running(RegionDisk()) as term:
        a, b = Worker(term, "a"), Worker(term, "b")
        async with serving(a):
            await ended(term, creates(term))
        a.hangs = True
        async with serving(a, b):
            region = regions_of(term)[0]
            pid = await works(term, region)
            await until(lambda: a.works)
            assert (region.state, region.pid, term.env.model.transit) == (RegionState.OPEN, pid, {})
            assert region_problem(term.env, region, "move", "b", force=True) is None
            moving = await procedure(term, move.NAME, MOVE.encode(Move(region.id, "t", "b")))
            await asyncio.sleep(5)
            assert region.server is not None
            assert region.server.name == "a"
            assert f"procedure {pid} (region_work)" in progress_of(term.engine.records[moving], term.env, term.engine)
            told = explained(region, term.env, term.engine)
            assert f"procedure {pid} (region_work, step work) has work '{COMPACT}' done on it" in told.procedure_because
            assert any(f"'regent regions procedures abort {pid}' ends the wait" in one for one in told.would_change)
            assert (
                progress_of(term.engine.records[pid], term.env, term.engine)
                == f"it waits until a,1 has done '{COMPACT}'"
            )
            await a.report(a.do(a.works[0]))
            assert await ended(term, known(pid)) == b"ba"
            assert await ended(term, known(moving)) == b"open"
            assert region.server.name == "b"
            free(term, region)


@pytest.mark.seed("S2-42")
@virtual
async def test_where_the_owner_crashes_it_has_the_region_opened_elsewhere_and_worked_on_there() -> None:
    """The crash waits for no lock: it leaves the region to the work, and ends once that has moved it."""
    async with running(RegionDisk()) as term:
        a, b = Worker(term, "a"), Worker(term, "b")
        async with serving(a):
            await ended(term, creates(term))
            a.hangs = True
            region = regions_of(term)[0]
            before = region.token
            pid = await works(term, region)
            await until(lambda: a.works)
        async with serving(b):
            assert await ended(term, known(pid)) == b"ba"
            assert [one.token for one in b.works] == [region.token]
            assert region.token > before
            assert region.server is not None
            assert region.server.name == "b"
            await at_rest(term)
            free(term, region)


@virtual
async def test_a_server_that_dies_again_and_again_has_it_follow_the_region() -> None:
    async with running(RegionDisk()) as term:
        first = Worker(term, "a")
        async with serving(first):
            await ended(term, creates(term))
            first.hangs = True
            pid = await works(term, regions_of(term)[0])
            await until(lambda: first.works)
        for name in ("b", "c"):
            server = Worker(term, name)
            server.hangs = True
            async with serving(server):
                await until(partial(bool, server.works))
        async with serving(Worker(term, "d")):
            assert await ended(term, known(pid)) == b"ba"
            await at_rest(term)


@pytest.mark.seed("S2-37", "S2-38")
@virtual
async def test_after_a_failover_it_is_sent_again_with_its_pid_and_the_region_stays_with_it() -> None:
    disk = RegionDisk()
    async with running(disk) as term:
        a = Worker(term, "a")
        async with serving(a):
            _, pid = await at_work(term, a)
    async with running(disk) as term:
        region = regions_of(term)[0]
        assert region.pid == pid
        again = Worker(term, "a")
        again.has = a.has
        registered = await again.register(*(protocol.Owned(*one) for one in a.has.items()))
        assert isinstance(registered, protocol.Registered)
        serves = asyncio.ensure_future(again.serve())
        assert await ended(term, known(pid)) == b"ba"
        assert [one.pid for one in (*a.works, *again.works)] == [pid, pid]
        free(term, region)
        serves.cancel()


@virtual
async def test_it_fails_with_the_words_of_the_server_after_so_many_failures_and_never_for_a_busy_one() -> None:
    async with running(RegionDisk()) as term:
        a = Worker(term, "a")
        async with serving(a):
            await ended(term, creates(term))
            region = regions_of(term)[0]
            a.says = [BUSY, FAILED, NOT_RUNNING, FAILED]
            pid = await works(term, region, tries_max=2)
            await until(lambda: not a.says)
            assert await failed(term, pid) == (
                f"work '{COMPACT}' on region t#{region.id} failed 2 times: a,1 said failed: no room"
            )
            free(term, region)
            a.says = [FAILED]
            assert await ended(term, works(term, region, tries_max=2)) == b"ba"
            a.says = [FAILED] * 20
            pid = await works(term, region)
            await until(lambda: len(a.says) < 17)
            assert "attempts failed; a,1 said failed: no room" in detail_of(term.engine.records[pid])
            a.says = []
            assert await ended(term, known(pid)) == b"ba"


@virtual
async def test_an_abort_a_time_out_and_a_bypass_end_it_and_a_result_that_comes_then_changes_nothing() -> None:
    async with running(RegionDisk()) as term:
        a = Worker(term, "a")
        async with serving(a):
            region, pid = await at_work(term, a)
            assert await term.engine.abort(pid)
            assert await failed(term, pid) == "aborted"
            free(term, region)
            assert await a.report(Result(pid, protocol.DONE, data=b"late")) == []

            pid = await works(term, region, expires_ms=term.env.wall_ms() + 5_000)
            assert await failed(term, pid) == "timed out"
            free(term, region)

            pid = await works(term, region)
            await until(lambda: a.works[2:])
            assert await term.engine.bypass(pid)
            assert (await term.engine.result(pid)).state is State.SUCCESS
            await at_rest(term)
            free(term, region)


@virtual
async def test_an_abort_while_the_region_is_opened_elsewhere_ends_it_once_that_has_ended() -> None:
    async with running(RegionDisk()) as term:
        a = Worker(term, "a")
        async with serving(a):
            region, pid = await at_work(term, a)
        await until(lambda: any(one.kind == "assign" for one in term.engine.live()))
        assert await term.engine.abort(pid)
        await asyncio.sleep(1)
        assert not term.engine.records[pid].state.is_final
        async with serving(Worker(term, "b")):
            assert await failed(term, pid) == "aborted"
            await at_rest(term)
            assert region.state is RegionState.OPEN
            free(term, region)


@virtual
async def test_a_disable_waits_for_it_and_work_without_an_owner_gives_way_to_it() -> None:
    async with running(RegionDisk()) as term:
        a = Worker(term, "a")
        async with serving(a):
            region, pid = await at_work(term, a)
            disabling = await changes(term, "disable")
            await asyncio.sleep(2)
            assert region.state.name == "OPEN"
        async with serving(Worker(term, "b")):
            assert "work needs an open region" in await failed(term, pid)
            await ended(term, known(disabling))
            await at_rest(term)
            assert region.state.name == "CLOSED"


@virtual
async def test_a_region_that_is_closed_or_gone_and_a_server_that_lacks_the_work_are_named() -> None:
    async with running(RegionDisk()) as term:
        a = Worker(term, "a")
        async with serving(a, Server(term, "old")):
            await ended(term, creates(term))
            region = regions_of(term)[0]
            owner = region.server
            assert owner is not None
            if owner.name == "old":
                await ended(term, procedure(term, move.NAME, MOVE.encode(Move(region.id, "t", "a"))))
            await ended(term, works(term, region))
            await ended(term, procedure(term, move.NAME, MOVE.encode(Move(region.id, "t", "old"))))
            assert await failed(term, await works(term, region)) == (
                f"old,1 does no work '{COMPACT}': start a version that names it among its features"
            )
            assert [one.name for one in term.env.lacking(COMPACT)] == ["old"]
            await ended(term, transits(term, close.NAME, region))
            assert await failed(term, await works(term, region)) == (
                f"region t#{region.id} is CLOSED: 'regent regions assign {region.id}' opens it"
            )
            free(term, region)
            gone = replace_id(region)
            assert "is gone: see 'regent regions list --table t'" in await failed(term, await works(term, gone))


def replace_id(region: Region) -> Region:
    return Region(region.id + 1_000, region.table, b"", b"", region.state)


@pytest.mark.seed("S2-39", "S2-41")
@virtual
async def test_work_on_a_table_is_done_on_each_of_its_regions_by_their_owners() -> None:
    async with running(RegionDisk(), replace(OPTIONS, lease_ms=60_000)) as term:
        a, b = Worker(term, "a"), Worker(term, "b")
        async with serving(a, b):
            await ended(term, creates(term, regions=900))
            await ended(term, transits(term, close.NAME, regions_of(term)[7]))
            assert await ended(term, works_on_all(term)) == b"899"
            done = sorted(one.region for one in (*a.works, *b.works))
            assert done == [one.id for one in regions_of(term) if one.state is RegionState.OPEN]
            for server in (a, b):
                assert {one.region for one in server.works} <= server.has.keys()
            assert term.engine.locks() == []


@pytest.mark.seed("S2-43")
@virtual
async def test_work_on_a_table_that_fails_on_one_region_is_not_awaited_on_the_others() -> None:
    async with running(RegionDisk()) as term:
        a, b = Worker(term, "a"), Worker(term, "b")
        async with serving(a, b):
            await ended(term, creates(term, regions=6))
            a.says, b.hangs = [FAILED], True
            pid = await works_on_all(term, tries_max=1)
            assert "failed 1 times: a,1 said failed: no room" in await failed(term, pid)
            await at_rest(term)
            assert not term.env.dispatcher._expected
            assert all(one.pid == 0 for one in regions_of(term))


@virtual
async def test_work_on_a_table_that_is_disabled_or_gone_is_refused() -> None:
    async with running(RegionDisk()) as term, serving(Worker(term, "a")):
        assert "table t does not exist" in await failed(term, await works_on_all(term))
        await ended(term, creates(term))
        await ended(term, changes(term, "disable"))
        assert "table t is disabled: 'regent tables enable t' first" in await failed(term, await works_on_all(term))


@virtual
async def test_a_message_that_is_too_large_is_refused() -> None:
    async with running(RegionDisk()) as term, serving(Worker(term, "a")):
        await ended(term, creates(term))
        huge = RegionWork(regions_of(term)[0].id, "t", COMPACT, bytes(1 << 20))
        with pytest.raises(ProcedureRefused, match="bytes, at most"):
            await procedure(term, region_work.NAME, REGION_WORK.encode(huge))


@pytest.mark.parametrize("fails", [True, False])
@virtual
async def test_a_server_without_a_region_whose_work_fails_there_counts_as_crashed(fails: bool) -> None:
    """The store may have been restored from a copy: without the crash the work would hold the region for ever."""
    async with running(RegionDisk()) as term:
        a = Worker(term, "a")
        async with serving(a):
            await ended(term, creates(term))
            [region] = regions_of(term)
            a.hangs = not fails
            del a.has[region.id]
            pid = await works(term, region)
            await until(lambda: bool(term.env.causes.of(pid)) if fails else a.works)
            server = term.env.model.servers[a.name, a.incarnation]
            region.changed_ms -= 10_000
            await term.manager.comparison.take(server, [])
            assert (server.state is ServerState.ONLINE) is not fails, "work that is under way says nothing"
