"""Agents over many turns: a second registration, some of several results, a slow daemon, and the end of everything."""

from __future__ import annotations

import asyncio

import pytest

from regent_agent.agent import Agent, Died
from regent_agent.protocol import (
    CLOSED,
    DEAD,
    DONE,
    FAILED_OPEN,
    FIGURES_MAX,
    NAME_CHARS_MAX,
    NOT_ACTIVE,
    REGISTER,
    Accepted,
    Hello,
    Leave,
    Left,
    Poll,
    Refused,
    Regions,
    Register,
    Registered,
    Report,
    Request,
    Response,
)
from regent_agent.service import OpenedRegion
from tests.kit.deadlines import eventually
from tests.unit.regent_agent.kit import Clock, Recorded, StandIn, closes, opens, options, started, task


async def unknown(_: Request) -> Response:
    return Refused(REGISTER, "the test says so")


async def fenced(_: Request) -> Response:
    return Refused(DEAD, "the test says so", above=2_000_000_000_000_000)


async def test_a_process_that_was_a_member_once_takes_no_next_incarnation_when_it_is_fenced() -> None:
    """It would come back as another process, with the regions that others have by now."""
    async with StandIn(hold_ms=20).running() as daemon, started(Recorded(), daemon, incarnation=0) as agent:
        daemon.responses = {Poll: unknown, Register: fenced}
        async with asyncio.timeout(60):
            await agent.died.wait()
        with pytest.raises(Died):
            await agent.registered()
        daemon.responses = {}
        assert len({request.incarnation for request in daemon.seen(Register)}) == 1
    assert agent.above == 2_000_000_000_000_000


async def test_a_server_that_must_register_anew_waits_for_it_before_it_counts_as_registered_and_leaves() -> None:
    async with StandIn(hold_ms=20).running() as daemon, started(Recorded(), daemon) as agent:

        async def standby(_: Request) -> Response:
            return Refused(NOT_ACTIVE, "a standby")

        async def left(_: Request) -> Response:
            return Left(0)

        daemon.responses = {Poll: unknown, Register: standby, Leave: left}
        await daemon.arrived(Register, 2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(agent.registered(), 0.05)
        leaving = asyncio.ensure_future(agent.leave(60))
        await daemon.arrived(Register, len(daemon.seen(Register)) + 1)
        assert not daemon.seen(Leave)
        del daemon.responses[Register]
        assert await leaving


async def test_a_lease_counts_from_the_poll_and_not_from_the_attempts_to_connect_before_it() -> None:
    """A server that reaches a daemon after seconds serves at once with the first poll that is acknowledged."""
    clock, served = Clock(), list[bool]()
    async with StandIn(lease_ms=10_000, hold_ms=20).running() as daemon:

        async def slow(request: Request) -> Response:
            clock.now_s += 9.0
            return await daemon.respond(request)

        async def noted(request: Request) -> Response:
            served.append(agent.serving)
            return await daemon.respond(request)

        daemon.responses = {Hello: slow, Poll: noted}
        async with started(Recorded(), daemon, clock=clock) as agent:
            await daemon.arrived(Poll)
            daemon.cut()
            polls = len(daemon.seen(Poll))
            await daemon.arrived(Poll, polls + 3)
    assert served[0], "after the registration"
    assert served[-1], "after the poll behind the lost connection"


async def test_a_poll_is_waited_for_as_long_as_the_daemon_may_hold_it() -> None:
    async with StandIn(hold_ms=150).running() as daemon:

        async def registered(_: Request) -> Response:
            return Registered(1, 100, 2_000)

        daemon.responses[Register] = registered
        async with started(Recorded(), daemon, clock=Clock()):
            await daemon.arrived(Poll, 3)
    assert len(daemon.seen(Hello)) <= 2, "one connection for polls, and one for reports at most"


async def test_a_poll_has_as_many_figures_and_characters_as_the_daemon_reads() -> None:
    async with StandIn(hold_ms=20).running() as daemon, started(Recorded(), daemon) as agent:
        agent.load = lambda: {f"{number:300}": number for number in range(FIGURES_MAX)}
        await eventually(lambda: [poll for poll in daemon.seen(Poll) if poll.load])
        assert all(len(name) <= NAME_CHARS_MAX for name in daemon.seen(Poll)[-1].load)
        agent.load = lambda: {str(number): number for number in range(FIGURES_MAX + 1)}
        load = await eventually(lambda: [poll.load for poll in daemon.seen(Poll) if len(poll.load) > 1])
        assert list(load[0].values()) == list(range(FIGURES_MAX))


async def test_a_list_and_results_are_sent_side_by_side_and_each_refused_result_comes_again() -> None:
    """A report is on its way while two more results and a request for the list arrive."""
    async with StandIn(hold_ms=20).running() as daemon, started(Recorded(), daemon):
        accepts = asyncio.Event()

        async def held(request: Request) -> Response:
            await accepts.wait()
            assert isinstance(request, Report)
            return Accepted([one.pid for one in request.results if one.pid in daemon.again])

        daemon.responses[Report] = held
        daemon.send(opens(7, 1))
        await daemon.arrived(Report)
        daemon.send(opens(8, 2), opens(9, 3), opens(10, 4), list_regions=True)
        daemon.again = {8, 10}
        await daemon.arrived(Poll, len(daemon.seen(Poll)) + 2)
        accepts.set()
        await daemon.arrived(Regions)
        for pid in (8, 10):
            await daemon.result(pid, 2)
        assert [one.pid for one in daemon.seen(Report)[1].results] == [8, 9, 10]
        assert [one.pid for one in daemon.results()].count(9) == 1


async def test_a_daemon_is_requested_to_let_a_server_leave_a_few_times_a_second() -> None:
    async with StandIn(hold_ms=20).running() as daemon, started(Recorded(), daemon) as agent:

        async def one_left(_: Request) -> Response:
            return Left(1)

        daemon.responses[Leave] = one_left
        assert not await agent.leave(0.3)
        assert 1 <= len(daemon.seen(Leave)) <= 2


async def test_a_failed_open_and_a_task_that_was_done_are_answered_again_and_not_done_again() -> None:
    """The daemon may have given the region to another server, by the first result."""
    service = Recorded()
    service.failures["open"] = [OSError("disk")]
    async with StandIn(hold_ms=20).running() as daemon, started(service, daemon, clock=Clock()) as agent:
        daemon.again = {7, 8}
        operations = opens(7, 1), task(8, "split", "s9/1")
        for count in (1, 2):
            daemon.send(*operations)
            assert (await daemon.result(7, count)).outcome == FAILED_OPEN
            assert (await daemon.result(8, count)).outcome == DONE
        assert not agent.owned
    assert sorted(call[0] for call in service.calls) == ["open", "split", "suspend"]


async def test_an_operation_that_came_twice_while_it_ran_leaves_its_region_to_the_next_one() -> None:
    service = Recorded()
    service.hold[1] = asyncio.Event()
    async with StandIn(hold_ms=20).running() as daemon, started(service, daemon):
        for _ in range(2):
            daemon.send(opens(7, 1))
            await daemon.arrived(Poll, len(daemon.seen(Poll)) + 2)
        daemon.send(closes(8, 1, 7))
        service.hold[1].set()
        assert (await daemon.result(8)).outcome == CLOSED
    assert service.calls == [("open", 1, 7), ("close", 1, 7), ("suspend",)]


class Careful(Recorded):
    """A service that needs a few turns of the loop to take back an open that is cancelled."""

    async def open(self, region: OpenedRegion) -> int:
        self.inside += 1
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            self.inside -= 1
        return 1


async def test_an_agent_that_was_started_twice_leaves_nothing_behind_when_it_stops() -> None:
    """Neither a loop, nor an operation in progress, nor a connection."""
    service = Careful()
    async with StandIn(hold_ms=20).running() as daemon:
        agent = Agent(service, options(daemon), jitter=lambda: 0.0)
        for _ in range(2):
            await agent.start()
        daemon.send(closes(6, 9, 1), opens(7, 1))
        await daemon.result(6)
        await eventually(lambda: service.inside)
        async with asyncio.timeout(60):
            await agent.stop()
        assert service.inside == 0
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert not [name for name in names if name.startswith(("regent_agent", "pid="))]
        await eventually(lambda: not daemon.connections)
