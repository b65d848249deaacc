"""Sentences for operators and servers at 3 a.m.: each has the cause, what would change it, and what hangs is named."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from controller.regions.domain import RegionsDomain
from controller.regions.operator.explain import explained
from controller.regions.operator.progress import progress_of
from controller.regions.operator.records import detail_of
from controller.regions.operator.region_changes import region_problem
from controller.regions.operator.regions import region_item
from controller.regions.operator.status import of_term
from controller.regions.procedures import move, servers
from controller.regions.procedures.messages import CRASH, MOVE, Crash, Move
from controller.regions.procedures.servers import DRAIN
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Operation, Refused, Registered, Result, Task
from state_machines.regions.marks import MarkKind
from state_machines.regions.states import ServerState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.term import view_of
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    creates,
    ended,
    polls,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)
from tests.simulation.regions.cases import Case
from tests.simulation.regions.test_named_ways import in_situation, reading, text_of


@virtual
async def test_a_region_of_a_crashed_process_is_moved_to_the_next_one_with_its_name() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "b")):
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=2))
        [region] = [one for one in regions_of(term) if str(one.server) == "a,1"]
        async with serving(Server(term, "a", 2)):
            assert term.env.model.servers["a", 1].state is ServerState.CRASHED
            moves = procedure(term, move.NAME, MOVE.encode(Move(region.id, "t", "a")))
            assert await ended(term, moves) == b"open"
            assert str(region.server) == "a,2"


@pytest.mark.parametrize("fenced", [False, True])
def test_a_process_whose_clock_was_set_back_is_told_that_it_needs_a_higher_incarnation(fenced: bool) -> None:
    @virtual
    async def story() -> None:
        async with running(RegionDisk()) as term:
            assert isinstance(await Server(term, "a", 9).register(), Registered)
            if fenced:
                await until(lambda: not term.env.model.servers)
            refused = await Server(term, "a", 5).register()
            assert isinstance(refused, Refused)
            assert refused.code == protocol.DEAD
            assert ("9" in refused.text, "higher incarnation (was its clock set back?)" in refused.text) == (True, True)

    story()


@virtual
async def test_a_drain_without_another_server_says_that_it_waits_for_one() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a"), Server(term, "b")):
        task = servers.MARK_TASK.encode(servers.MarkTask(MarkKind.CORDON, "b"))
        await ended(term, procedure(term, servers.MARK, task))
        await ended(term, creates(term, regions=2))
        pid = await procedure(term, DRAIN, CRASH.encode(Crash("a", 1)))
        await asyncio.sleep(1)
        said = progress_of(term.engine.records[pid], term.env, term.engine)
        assert said == (
            "2 regions left, online, no server is online that may get regions; leaving until 'regent servers uncordon "
            "NAME', or a next process of it: a,1; cordoned until 'regent servers uncordon NAME': b"
        )


@virtual
async def test_a_move_to_a_drained_server_is_refused_with_what_ends_that() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a"), Server(term, "b")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        assert str(region.server) == "a,1"
        await ended(term, procedure(term, DRAIN, CRASH.encode(Crash("b", 1))))
        problem = region_problem(term.env, region, "move", "b")
        assert problem == (
            "server b,1 is leaving: its regions are moved away; 'regent servers uncordon b' ends that, "
            "and a next process of it gets regions again"
        )
        async with serving(Server(term, "b", 2)):
            assert region_problem(term.env, region, "move", "b") is None


@virtual
async def test_a_region_that_waits_while_all_servers_are_leaving_names_them() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a")):
        async with serving(Server(term, "b")):
            await ended(term, procedure(term, DRAIN, CRASH.encode(Crash("a", 1))))
            await ended(term, creates(term))
        [region] = regions_of(term)
        await until(lambda: region.pid in term.env.unplaced)
        told = explained(region, term.env, term.engine)
        assert "no server is online that may get regions; leaving until " in told.procedure_because
        assert told.procedure_because.endswith("a next process of it: a,1")


@virtual
async def test_a_server_that_has_not_come_to_the_next_daemon_is_not_said_to_poll() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
    async with running(disk) as term:
        [region] = regions_of(term)
        unheard = "has not come to this daemon yet; it counts as crashed in "
        assert explained(region, term.env, term.engine).server_because.startswith(f"a,1 {unheard}")
        view = view_of(cast("RegionsDomain", SimpleNamespace(term=term))).servers
        assert [one.note.startswith(unheard) for one in view.list_servers()] == [True]
        assert view.describe_server("a").note.endswith(" s")


class Unable(Server):
    """A server that can do nothing to the log of another one."""

    def do(self, operation: Operation) -> Result:
        if isinstance(operation, Task):
            return Result(operation.pid, protocol.FAILED, text="no such volume")
        return super().do(operation)


@virtual
async def test_a_crash_whose_log_nobody_can_fence_says_why() -> None:
    async with running(RegionDisk(), replace(OPTIONS, fence="log")) as term, serving(Unable(term, "b")):
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=2))
        [region] = [one for one in regions_of(term) if str(one.server) == "a,1"]
        await until(lambda: any(one.kind == "fence_log" for one in term.engine.live()))
        await asyncio.sleep(3)
        [work] = [one for one in term.engine.live() if one.kind == "fence_log"]
        assert detail_of(work).endswith("; b,1 said failed: no such volume")
        told = explained(region, term.env, term.engine)
        assert told.server_because.endswith(
            f"; procedure {work.pid} (fence_log) repeats the work on its log: b,1 said failed: no such volume"
        )


@pytest.mark.parametrize(
    ("name", "waits", "cause"),
    [
        ("a creation whose opens hang", "has opened it", ""),
        ("a move whose close hangs", "it waits until a,1 has closed it", ""),
        ("a creation whose opens fail", "attempts in vain", "in the last attempt"),
    ],
)
def test_the_status_names_the_first_regions_that_hang_or_fail_with_their_wait_and_last_cause(
    name: str, waits: str, cause: str
) -> None:
    @in_situation(name)
    async def story(case: Case) -> None:
        await asyncio.sleep(120)
        region = next(iter(case.term.env.model.transit.values()))
        warnings = reading(case).status.status().warnings
        assert warnings is not None
        [found] = [one for one in warnings if f"region {region}" in one]
        assert found.startswith(f"procedure {region.pid} (")
        assert "is in transition for 12" in found
        assert waits in found
        assert cause in found
        assert found.endswith(f"see 'regent regions explain {region.id}'")

    story()


@virtual
async def test_a_region_that_no_server_has_been_found_for_is_listed_with_its_wait() -> None:
    async with running(RegionDisk()) as term:
        await creates(term)
        await until(lambda: bool(term.env.unplaced))
        [region] = regions_of(term)
        assert region_item(region, term.env).waits_for == "a server comes that may get regions"


@in_situation("a region that failed to open")
async def test_the_status_says_where_regions_that_no_server_could_open_are_listed(case: Case) -> None:
    said = "2 regions could be opened by no server: see 'regent regions list --state failed_open', and"
    assert [one for one in reading(case).status.status().warnings or () if one.startswith(said)]
    await case.done("tables disable t")
    assert [one for one in reading(case).status.status().warnings or () if one.startswith(said)], (
        "the alert counts it, too"
    )
    await case.done("tables delete t")
    assert not reading(case).status.status().warnings


@in_situation("a move whose close hangs")
async def test_a_region_that_has_just_begun_to_move_is_no_warning(case: Case) -> None:
    assert not [one for one in reading(case).status.status().warnings or () if "in transition" in one]


@virtual
async def test_of_many_regions_that_hang_three_are_named_and_the_others_counted() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "a")
        await server.register()
        going = asyncio.ensure_future(polls(server))
        await creates(term, regions=20)
        await asyncio.sleep(70)
        case = Case(term.options)
        case._term = term
        found = [one for one in reading(case).status.status().warnings or () if "in transition" in one]
        assert [one.startswith("procedure ") for one in found] == [True, True, True, False]
        assert found[3] == "17 more regions in transition for over 60 s: see 'regent regions transitions'"
        going.cancel()


@virtual
async def test_a_store_that_was_restored_says_for_how_long_it_waits_before_it_places_regions() -> None:
    disk = RegionDisk()
    async with running(disk) as term:
        await term.copy.note(1)
    async with running(disk) as term:
        server = Server(term, "a")
        await server.register()
        going = asyncio.ensure_future(server.serve())
        await creates(term)
        await until(lambda: term.env.unplaced)
        [told] = of_term(term)
        for text in (told, _explained(term)):
            assert "the store was restored from a copy" in text
            assert "one lease to come or to stop" in text
        assert "servers have come" not in told
        await until(lambda: term.env.places)
        assert not of_term(term)
        going.cancel()


def _explained(term: RegionsTerm) -> str:
    region = next(iter(term.env.model.regions.values()))
    return explained(region, term.env, term.engine).procedure_because


@in_situation("a crash whose log cannot be split")
async def test_a_process_that_is_fenced_and_whose_log_is_not_split_is_not_said_to_write(case: Case) -> None:
    text = text_of(case)
    assert "it may write" not in text
    assert "is fenced, so it writes no more" in text
    assert "(crash) is in step split" in text


@in_situation("a crash whose log cannot be fenced")
async def test_a_process_whose_log_is_not_fenced_yet_may_write(case: Case) -> None:
    assert "is not fenced yet: until then it may write" in text_of(case)


@in_situation("a crash whose log cannot be split")
async def test_the_wait_for_a_crash_counts_from_the_crash_and_not_from_the_open(case: Case) -> None:
    region = case.region
    await until(lambda: case.term.env.now_ms() - region.changed_ms > 40_000)
    await case.fail_over()
    began_ms = case.live("crash")[0].submitted_ms
    since_s = (case.term.env.wall_ms() - began_ms) / 1000
    assert f"nothing serves its keys (for {since_s:.1f} s)" in text_of(case)
