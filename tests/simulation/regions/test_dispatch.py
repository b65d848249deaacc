"""Operations to one process: when batches go, what they hold, and lost responses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from controller.regions import dispatcher as module
from controller.regions.dispatcher import WORKERS_MAX, Dispatcher, DispatchLimits
from regent_agent import protocol
from regent_agent.protocol import BUSY, FAILED_OPEN, OPENED, Close, Open, Operation, Operations, Result, Task
from state_machines.regions.entities import Server as ModelServer
from state_machines.regions.states import ServerState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import Server, creates, ended, regions_of, running, serving, until, virtual


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
    dispatcher = Dispatcher(1, DispatchLimits(delay_ms=100), asyncio.get_running_loop().time, lambda *_: None)
    server = ModelServer("s1", 1, "", "", ServerState.ONLINE, {})
    held = asyncio.ensure_future(dispatcher.poll(server, 0, 10.0))
    for pid in range(1, 6):
        dispatcher.send(server, protocol.Close(pid, pid, 1))
        await asyncio.sleep(0.06)
    assert held.done(), "each operation made those before it wait"
    assert [one.pid for one in held.result().operations] == [1, 2]


HOLD_S = 10.0
LIMITS = DispatchLimits(delay_ms=100, batch_max=3, in_flight_max=2)


class DispatchWorld:
    """A dispatcher, and what it told of batches that went for the first time."""

    def __init__(self, limits: DispatchLimits = LIMITS) -> None:
        self.told: list[tuple[str, int, list[int]]] = []
        self.dispatcher = Dispatcher(1, limits, asyncio.get_running_loop().time, self._tell)
        self.taken: dict[str, int] = {}

    def _tell(self, server: ModelServer, number: int, operations: Sequence[Operation]) -> None:
        self.told.append((server.name, number, [one.pid for one in operations]))

    async def poll(self, server: ModelServer, hold_s: float = HOLD_S, *, takes: bool = True) -> tuple[list[int], float]:
        """Polls; returns the pids, and how long that took."""
        found, took_s = await self.asked(server, hold_s, takes=takes)
        return [one.pid for one in found.operations], took_s

    async def asked(
        self, server: ModelServer, hold_s: float = HOLD_S, *, takes: bool = True
    ) -> tuple[Operations, float]:
        """Polls; returns the response, and how long that took."""
        clock = asyncio.get_running_loop().time
        began_s = clock()
        found = await self.dispatcher.poll(server, self.taken.get(server.name, 0), hold_s)
        if takes:
            self.taken[server.name] = found.number
        return found, round(clock() - began_s, 6)


def process(name: str) -> ModelServer:
    return ModelServer(name, 1, "", "", ServerState.ONLINE, {})


def close(pid: int) -> Operation:
    return Close(pid, pid, 1)


@virtual
async def test_a_batch_goes_after_the_delay_of_its_first_operation_or_when_it_is_full() -> None:
    world, a = DispatchWorld(), process("a")
    clock = asyncio.get_running_loop()
    held = asyncio.ensure_future(world.poll(a))
    await asyncio.sleep(1)
    for pid, at_s in ((1, 0.0), (2, 0.06)):
        clock.call_later(at_s, world.dispatcher.send, a, close(pid))
    assert await held == ([1, 2], 1.1)
    held = asyncio.ensure_future(world.poll(a))
    await asyncio.sleep(1)
    world.dispatcher.send(a, close(3))
    await asyncio.sleep(0.06)
    for pid in range(4, 8):
        world.dispatcher.send(a, close(pid))
    assert await held == ([3, 4, 5], 1.06), "three are a batch, and none waits for others"
    assert await world.poll(a) == ([6, 7], 0.1), "the delay of the rest begins with the batch before"
    assert await world.poll(a) == ([], HOLD_S)
    assert world.told == [("a", 1, [1, 2]), ("a", 2, [3, 4, 5]), ("a", 3, [6, 7])]
    assert world.dispatcher.sent == 7


@virtual
async def test_an_operation_that_is_sent_again_before_its_batch_goes_is_replaced() -> None:
    world, a = DispatchWorld(), process("a")
    world.dispatcher.send(a, Close(1, 1, 1))
    world.dispatcher.send(a, Close(1, 1, 2))
    found, _ = await world.asked(a)
    assert found.operations == [Close(1, 1, 2)]


@virtual
async def test_a_batch_is_repeated_until_a_poll_has_taken_it_and_told_of_once() -> None:
    world, a = DispatchWorld(), process("a")
    world.dispatcher.send(a, close(1))
    assert (await world.poll(a, takes=False))[0] == [1]
    world.dispatcher.send(a, close(2))
    assert await world.poll(a, takes=False) == ([1], 0.0)
    assert [world.dispatcher.has_arrived(1, taken) for taken in (0, 1)] == [False, True]
    assert world.dispatcher.has_arrived(2, 0), "it was not sent"
    assert (await world.poll(a))[0] == [1]
    assert (await world.poll(a))[0] == [2]
    assert world.told == [("a", 1, [1]), ("a", 2, [2])]


@virtual
async def test_an_operation_that_is_taken_back_is_neither_sent_nor_awaited() -> None:
    world, a = DispatchWorld(), process("a")
    for pid in (1, 2, 3):
        world.dispatcher.send(a, close(pid))
    world.dispatcher.take_back(1)
    world.dispatcher.hold_back(2)
    assert [world.dispatcher.expects(pid) for pid in (1, 2, 3)] == [None, ("a", 1), ("a", 1)]
    assert (await world.poll(a))[0] == [3]
    assert not world.dispatcher.has_arrived(3, 0)
    world.dispatcher.forget(3)
    assert world.dispatcher.has_arrived(3, 0), "the next process of this operation has a batch of its own"
    assert world.dispatcher.expects(3) is None


@virtual
async def test_work_on_a_log_counts_from_the_latest_processes_that_were_to_do_it() -> None:
    world = DispatchWorld()
    some = [process(f"s{n}") for n in range(WORKERS_MAX + 1)]
    for server in (*some[:WORKERS_MAX], some[0], some[-1]):
        world.dispatcher.send(server, Task(1, "split", "x", 1, "p"))
        world.dispatcher.take_back(1)
    assert [world.dispatcher.is_worker(1, one.key) for one in some] == [True, False, *[True] * (WORKERS_MAX - 1)]
    world.dispatcher.send(some[0], close(2))
    assert not world.dispatcher.is_worker(2, some[0].key), "an open or a close is of one process alone"
    world.dispatcher.forget(1)
    assert not any(world.dispatcher.is_worker(1, one.key) for one in some)


@virtual
async def test_of_two_polls_of_a_process_the_later_one_gets_the_operations_at_once() -> None:
    world, a = DispatchWorld(), process("a")
    early = asyncio.ensure_future(world.poll(a))
    await asyncio.sleep(1)
    late = asyncio.ensure_future(world.poll(a))
    assert await early == ([], 1.0)
    world.dispatcher.send(a, close(1))
    assert await late == ([1], 0.1)
    early = asyncio.ensure_future(world.poll(a))
    await asyncio.sleep(1)
    late = asyncio.ensure_future(world.poll(a))
    await early
    assert world.taken == {"a": 1}, "the response that holds nothing confirms what was taken"
    assert await late == ([], HOLD_S)


@virtual
async def test_a_process_that_is_dropped_gets_nothing_and_leaves_its_slot_and_its_wish() -> None:
    world, a, b = DispatchWorld(DispatchLimits(delay_ms=100, in_flight_max=1)), process("a"), process("b")
    world.dispatcher.send(a, close(1))
    await world.poll(a, takes=False)
    world.dispatcher.list_regions(a)
    world.dispatcher.send(b, close(2))
    waits = asyncio.ensure_future(world.poll(b))
    await asyncio.sleep(1)
    assert not waits.done(), "there is one slot"
    world.dispatcher.drop(a)
    assert await waits == ([2], 1.0)
    held = asyncio.ensure_future(world.asked(a))
    await asyncio.sleep(1)
    world.dispatcher.drop(a)
    assert await held == (Operations(1, 0), 1.0)
    world.dispatcher.drop(a)  # it has no queue
    assert await world.asked(a) == (Operations(1, 0), HOLD_S)


@virtual
async def test_no_more_batches_are_under_way_than_there_are_slots() -> None:
    world = DispatchWorld(DispatchLimits(delay_ms=100, batch_max=1, in_flight_max=2))
    some = [process(name) for name in "abcde"]
    for pid, server in enumerate(some, 1):
        world.dispatcher.send(server, close(pid))
    polls = [asyncio.ensure_future(world.poll(one)) for one in some]
    await asyncio.sleep(1)
    assert [one.done() for one in polls] == [True, True, False, False, False]
    confirms = [asyncio.ensure_future(world.poll(one)) for one in some[:2]]
    await asyncio.sleep(1)
    assert [one.done() for one in polls] == [True, True, True, True, False]
    assert await polls[4] == ([], HOLD_S), "its operation stays for the next poll"
    await asyncio.gather(*confirms)
    assert (await asyncio.gather(*(world.poll(one) for one in some[2:])))[2] == ([5], 0.0)
    assert world.dispatcher._blocked == [], "a process that waits no more is not woken"


@virtual
async def test_a_process_is_asked_for_its_list_once_with_operations_or_without() -> None:
    world, a, b = DispatchWorld(), process("a"), process("b")
    for operations in ([], [1]):
        world.dispatcher.list_regions(a)
        for pid in operations:
            world.dispatcher.send(a, close(pid))
        found, _ = await world.asked(a)
        assert (found.list_regions, [one.pid for one in found.operations]) == (True, operations)
        for server in (a, b):
            found, _ = await world.asked(server)
            assert not found.list_regions


@virtual
async def test_a_batch_holds_the_operations_that_fit_into_a_frame_and_one_always() -> None:
    world, a = DispatchWorld(DispatchLimits(delay_ms=100, batch_max=10)), process("a")
    most = module.BATCH_BYTES_MAX
    half = "x" * (most // 4 // 2)
    some = [
        Open(1, 1, 1, "t", b"", b"", options={"o": "x" * most}),
        Open(2, 2, 1, "t", b"", b"", options={"o": half}),
        Open(3, 3, 1, "t", b"", b"", options={half: ""}),
        Open(4, 4, 1, "t", b"a" * (most // 2), b""),
        Open(5, 5, 1, "t", b"", b"a" * (most // 2)),
        Open(6, 6, 1, "t", b"", b""),
    ]
    for one in some:
        world.dispatcher.send(a, one)
    batches = []
    while found := (await world.poll(a))[0]:
        batches.append(found)
    assert batches == [[1], [2], [3], [4], [5, 6]]
