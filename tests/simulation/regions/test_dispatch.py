"""Operations, results and lost responses: no operation is lost, and none is done after its procedure went on."""

from __future__ import annotations

import asyncio

import pytest

from controller.regions.dispatcher import Dispatcher, Limits
from regent_agent import protocol
from regent_agent.protocol import BUSY, FAILED_OPEN, OPENED, Open, Operations, Result
from state_machines.regions import model
from state_machines.regions.states import ServerState
from testing.memory.region_store import RegionDisk
from tests.simulation.regions.kit import Server, creates, ended, regions_of, running, serving, until, virtual


@pytest.mark.seed("S1-83")
@pytest.mark.parametrize("outcome", [FAILED_OPEN, BUSY])
def test_a_failure_is_not_accepted_while_the_operation_is_on_its_way(outcome: str) -> None:
    """The daemon before sent it; this one has sent it again, and the server will do it if it forgets its result."""

    @virtual
    async def test() -> None:
        disk = RegionDisk()
        async with running(disk) as term:
            server = Server(term, "s1")
            await server.register()
            await creates(term)
            one = await server.operation()
        async with running(disk) as term:
            server.term = term
            await server.register()
            async with serving(Server(term, "s2")):
                assert await server.poll(takes=False) == [one]  # on its way
                assert await server.report(Result(one.pid, outcome)) == [one.pid]
                [region] = regions_of(term)
                assert str(region.server) == "s1,1"
                assert await server.poll() == [one]
                assert await server.report(Result(one.pid, outcome), taken=0) == [one.pid]  # made before it arrived
                assert await server.report(Result(one.pid, outcome)) == []
                await until(lambda: str(region.server) == "s2,1")

    test()


@virtual
async def test_a_success_is_accepted_at_once_and_the_operation_not_sent() -> None:
    disk = RegionDisk()
    async with running(disk) as term:
        server = Server(term, "s1")
        await server.register()
        await creates(term)
        one = await server.operation()
    async with running(disk) as term:
        server.term = term
        await server.register()
        await until(lambda: term.env.dispatcher.expects(one.pid))
        assert await server.report(Result(one.pid, OPENED)) == []
        assert await server.poll() == []


@virtual
async def test_a_late_poll_of_a_dead_connection_loses_no_operation() -> None:
    """It takes the batch that the held poll waits for; the response to the held one must not confirm it."""
    async with running(RegionDisk(), delay_ms=200) as term:
        server = Server(term, "s1")
        await server.register()
        held = asyncio.ensure_future(server.poll())
        await asyncio.sleep(0.1)
        made = asyncio.ensure_future(ended(term, creates(term)))
        await until(lambda: term.env.dispatcher._queues["s1", 1].waiting)
        term.env.dispatcher._queues["s1", 1].first_s -= 1.0
        late = await server.ask(protocol.Poll("s1", 1, server.epoch, 0))
        assert isinstance(late, Operations)
        assert len(late.operations) == 1
        assert await held == []
        again = await server.operation()
        assert isinstance(again, Open)
        assert again in late.operations
        await server.report(Result(again.pid, OPENED, 1))
        await made


@virtual
async def test_operations_that_come_one_after_the_other_do_not_put_off_the_first() -> None:
    dispatcher = Dispatcher(1, Limits(delay_ms=100), asyncio.get_running_loop().time, lambda *_: None)
    server = model.Server("s1", 1, "", "", ServerState.ONLINE, {})
    held = asyncio.ensure_future(dispatcher.poll(server, 0, 10.0))
    for pid in range(1, 6):
        dispatcher.send(server, protocol.Close(pid, pid, 1))
        await asyncio.sleep(0.06)
    assert held.done(), "each operation made those before it wait"
    assert [one.pid for one in held.result().operations] == [1, 2]
