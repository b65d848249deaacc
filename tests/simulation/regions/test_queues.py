"""Queues: of tables, where procedures wait for locks, and of servers, where operations wait for a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

import pytest

from controller.regions.environment import Options
from controller.regions.procedures import messages
from controller.regions.procedures.messages import MOVE, TABLE_TASK, TRANSIT, Move, TableTask, Transit
from controller.regions.procedures.namespaces import NAMESPACE_TASK, NamespaceTask
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import NOT_RUNNING, Close, Open, Operation, Owned, Refused, Result
from state_machines.procedures.record import Record
from state_machines.regions.states import RegionState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.world import (
    Server,
    creates,
    done,
    ended,
    polls,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

WAITS_S = 60.0
"""Time for which a server may start before its regions go to another one (row S3-43)."""


class NotingEnds(MemoryRegionStore):
    """A store that notes the pids of procedures that ended, in their order."""

    def __init__(self, ends: list[int], disk: RegionDisk) -> None:
        super().__init__(disk)
        self._ends = ends

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        some = list(puts)
        await super().write(some, deletes, rows)
        self._ends.extend(put.pid for put in some if put.state.is_final)


class Counting(Server):
    """A server that counts the kinds of operations that it was sent."""

    def __init__(self, term: RegionsTerm, name: str, incarnation: int = 1) -> None:
        super().__init__(term, name, incarnation)
        self.sent: list[type[Operation]] = []

    def do(self, operation: Operation) -> Result:
        self.sent.append(type(operation))
        return super().do(operation)


class Starting(Server):
    """A server that registers before it runs."""

    runs = False

    def do(self, operation: Operation) -> Result:
        return super().do(operation) if self.runs else Result(operation.pid, NOT_RUNNING)


def transit(term: RegionsTerm, kind: str, region: int, table: str = "t") -> asyncio.Future[int]:
    return asyncio.ensure_future(procedure(term, kind, TRANSIT.encode(Transit(region, table))))


def waiting(term: RegionsTerm) -> set[int]:
    """Returns the procedures that wait in the queue of table t for a lock."""
    return {one.pid for one in term.engine.locks() if one.waiting and one.resource == str(messages.resource_of("t"))}


# -- queues of tables


@pytest.mark.seed("S1-41", "S3-3")
@virtual
async def test_an_assignment_waits_in_the_queue_of_its_table_while_the_table_changes() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "a")
        async with serving(server):
            await ended(term, creates(term, "u"))
        made = asyncio.ensure_future(ended(term, creates(term)))
        one = await server.operation()
        [region], [other] = regions_of(term), regions_of(term, "u")
        data = TRANSIT.encode(Transit(region.id, "t"))
        late = [await procedure(term, kind, data) for kind in ("assign", "close")]
        late.append(await procedure(term, "disable_table", TABLE_TASK.encode(TableTask("t"))))
        another = await transit(term, "close", other.id, "u")
        two = await server.operation()
        assert two.pid == another, "another table has a queue of its own"
        await server.report(done(two))
        assert waiting(term) == set(late)
        await server.report(done(one))
        await made
        await until(lambda: not waiting(term) & set(late[:2]))


@pytest.mark.seed("S1-58", "S1-93", "S3-3")
@virtual
async def test_procedures_of_one_region_run_one_after_the_other_and_keep_their_order_over_a_restart() -> None:
    disk, ends = RegionDisk(), list[int]()
    async with running(disk) as term:
        server = Server(term, "a")
        async with serving(server):
            await ended(term, creates(term, regions=2))
        region, neighbour = regions_of(term)
        pids = [await transit(term, "close", region.id)]
        one = await server.operation()
        assert isinstance(one, Close)
        pids += [await transit(term, kind, region.id) for kind in ("assign", "close", "assign", "close", "assign")]
        assert waiting(term) == set(pids[1:]), "the lock of a region has one owner"
        beside = await transit(term, "close", neighbour.id)
        two = await server.operation()
        assert two.pid == beside, "another region of the table has a lock of its own"
        assert await server.poll() == []
        server.do(two)
        await server.report(done(two))
    async with running(disk, store=partial(NotingEnds, ends)) as term:
        server.term = term
        await server.register(*(Owned(id_, token) for id_, token in server.has.items()))
        task = asyncio.ensure_future(server.serve())
        await until(lambda: not list(term.engine.live()))
        task.cancel()
        assert ends == pids
        opened = term.env.model.regions[region.id]
        assert server.has == {region.id: opened.token}
        assert opened.token > pids[-1], "it waited in an earlier term, so its pid may have been a token"


@pytest.mark.seed("S3-26")
@virtual
async def test_a_procedure_that_waits_for_a_server_is_an_entry_and_no_task() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "a")
        await server.register()
        going = asyncio.ensure_future(polls(server))
        await asyncio.sleep(2.0)  # the wait for servers after the start is over
        tasks = len(asyncio.all_tasks())
        await creates(term, regions=300)
        await until(lambda: len(term.env.model.transit) == 300)
        await asyncio.sleep(1.0)
        assert len(list(term.engine.live())) > 300
        assert len(asyncio.all_tasks()) == tasks
        await ended(term, procedure(term, "create_namespace", NAMESPACE_TASK.encode(NamespaceTask("n"))))
        going.cancel()


# -- queues of servers


@pytest.mark.seed("S1-42", "S1-43", "S1-44", "S1-77")
@virtual
async def test_the_operations_for_a_server_are_taken_from_its_queue_in_few_batches() -> None:
    """Two tables are created; each server has the operations of both in as few responses as their bound allows."""
    async with running(RegionDisk(), delay_ms=200) as term:
        servers = [Server(term, name) for name in ("a", "b")]
        for server in servers:
            await server.register()
        await asyncio.gather(creates(term, regions=40), creates(term, "u", regions=40))
        for server in servers:
            first, second = [await batch(server), await batch(server)]
            assert (len(first), len(second)) == (32, 8)
            opens = [one for one in first + second if isinstance(one, Open)]
            assert len({one.region for one in opens}) == 40, "no region twice"
            assert {one.table for one in opens} == {"t", "u"}
            assert not term.env.dispatcher._queues[server.name, 1].waiting
            assert await server.poll() == []


async def batch(server: Server) -> list[Operation]:
    """Polls until there are operations."""
    while not (found := await server.poll()):
        pass
    return found


@pytest.mark.seed("S1-59")
@virtual
async def test_a_change_of_a_table_has_locks_and_sending_to_servers_needs_none() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "a")
        await server.register()
        pid = await creates(term, regions=5)
        await until(lambda: len(term.env.model.transit) == 5)
        before = term.engine.locks()
        assert any(one.pid == pid and one.exclusive for one in before), "nobody else gets a lock of this table"
        sent = await server.poll(takes=False)
        assert len(sent) == 5
        assert await server.poll(takes=False) == sent, "its response was lost"
        assert term.engine.locks() == before
        await server.report(*map(done, await server.poll()))
        await until(lambda: not list(term.engine.live()))
        assert term.engine.locks() == []


@pytest.mark.seed("S1-67")
@virtual
async def test_all_that_servers_are_told_went_through_the_dispatcher() -> None:
    options = Options(lease_ms=3_000, startup_wait_ms=1_000, fence="log")
    async with running(RegionDisk(), options) as term, serving(stays := Counting(term, "b")):
        async with serving(dies := Counting(term, "a")):
            await ended(term, creates(term, regions=6))
            region = next(one for one in regions_of(term) if str(one.server) == "a,1")
            await ended(term, procedure(term, "move", MOVE.encode(Move(region.id, "t", "b"))))
            await asyncio.sleep(1.5)
            await dies.ask(protocol.Regions("a", 1, dies.epoch, [*having(dies), Owned(999, 1)]))
            await until(lambda: dies.sent.count(Close) == 2)
        await until(lambda: ("a", 1) not in term.env.model.servers)
        assert {*dies.sent, *stays.sent} == {Open, Close, protocol.Task}
        assert len(dies.sent) + len(stays.sent) == term.env.dispatcher.sent


def having(server: Server) -> list[Owned]:
    return [Owned(id_, token) for id_, token in server.has.items()]


@pytest.mark.seed("S0-56", "S1-89", "S1-90")
@virtual
async def test_a_crash_removes_the_queue_of_the_server_and_its_regions_are_opened_elsewhere() -> None:
    async with running(RegionDisk()) as term:
        dies, stays = Server(term, "a"), Server(term, "b")
        await dies.register()
        made = asyncio.ensure_future(ended(term, creates(term, regions=10)))
        queues = term.env.dispatcher._queues
        await until(lambda: ("a", 1) in queues and len(queues["a", 1].waiting) == 10)
        term.manager.expire(term.env.model.servers["a", 1], "a test")
        assert ("a", 1) not in queues
        refused = await dies.ask(protocol.Poll("a", 1, dies.epoch, dies.taken))
        assert isinstance(refused, Refused)
        assert refused.code == protocol.DEAD
        async with serving(stays):
            assert await made == b"0"
        assert ("a", 1) not in queues
        assert stays.has == {one.id: one.token for one in regions_of(term)}


@pytest.mark.seed("S3-43")
@virtual
async def test_a_server_that_does_not_run_yet_is_tried_for_a_minute_before_another_one() -> None:
    async with running(RegionDisk()) as term, serving(Starting(term, "a")):
        made = asyncio.ensure_future(ended(term, creates(term)))
        await until(lambda: term.env.model.transit)
        async with serving(other := Server(term, "b")):
            await asyncio.sleep(WAITS_S - 1.0)
            [region] = regions_of(term)
            assert (str(region.server), region.state, other.has) == ("a,1", RegionState.OPENING, {})
            await asyncio.sleep(2.0)
            assert str(region.server) == "b,1"
            await made


@pytest.mark.seed("S3-43")
@virtual
async def test_a_server_that_runs_in_time_opens_what_it_could_not_open_yet() -> None:
    async with running(RegionDisk()) as term, serving(server := Starting(term, "a")):
        made = asyncio.ensure_future(ended(term, creates(term)))
        await until(lambda: term.env.model.transit)
        async with serving(Server(term, "b")):
            await asyncio.sleep(WAITS_S / 2)
            server.runs = True
            await made
            assert {str(one.server) for one in regions_of(term)} == {"a,1"}
