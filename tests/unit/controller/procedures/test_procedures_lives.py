"""What the engine of procedures keeps over many lives, over a slow store, and over a term that ends in a write."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Iterable, Sized
from itertools import count

import pytest
from msgspec.structs import replace

from controller.procedures import requests, waiting
from controller.procedures.broadcast import CAUSE_CHARS_MAX, Resending, Responses, Unreachable
from controller.procedures.intake import REQUESTS_MAX
from controller.procedures.kinds import Kind
from controller.procedures.requests import ProcedureRefused, Results
from controller.procedures.waiting import Waiting
from controller.procedures.writes import Decided, Group
from metadata_store.records.port import Fenced, StoreFailed, Unstorable
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import CLUSTER, Demand, Resource, Scope
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.scheduler import Scheduler
from state_machines.procedures.states import State
from testing.memory.region_store import Disk, MemoryRecords
from tests.contracts.records import record
from tests.kills.harness import Clock, Daemon, Notes, last, onwards, pauses, step, topic
from tests.unit.controller.procedures.test_procedures_engine import Host, submitted


class NaiveWaits:
    """Looks at all waits each time."""

    def __init__(self) -> None:
        self.deadlines: dict[int, int] = {}
        self.last_ms = 0

    def due(self, now_ms: int) -> list[int]:
        back_ms, self.last_ms = max(0, self.last_ms - now_ms), now_ms
        if back_ms:
            self.deadlines = {pid: max(1, at_ms - back_ms) if at_ms else 0 for pid, at_ms in self.deadlines.items()}
        return [
            pid for at_ms, pid in sorted((at_ms, pid) for pid, at_ms in self.deadlines.items()) if 0 < at_ms <= now_ms
        ]


@pytest.mark.parametrize("seed", range(5))
def test_waits_end_as_those_of_a_naive_list_whatever_is_woken_and_however_the_clock_is_set(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "STALE_MAX", 4)
    draw, naive, now_ms, pids = random.Random(seed), NaiveWaits(), 1_000, count(1)
    found = Waiting(lambda: now_ms, lambda: None)
    for _ in range(1_500):
        match draw.choice(("add", "add", "add", "wake", "wake", "late", "forget", "clock", "due")):
            case "add":
                pid, deadline_ms = next(pids), draw.choice((0, now_ms + draw.randrange(1, 900)))
                assert found.add(pid, deadline_ms)
                naive.deadlines[pid] = deadline_ms
            case "wake" if naive.deadlines:
                pid = draw.choice(sorted(naive.deadlines))
                assert found.wake(pid)
                del naive.deadlines[pid]
            case "forget" if naive.deadlines:
                pid = draw.choice(sorted(naive.deadlines))
                found.forget(pid)
                del naive.deadlines[pid]
            case "clock":
                now_ms = max(1, now_ms + draw.choice((10, 50, 200, -100, -700)))
            case "due":
                ended = naive.due(now_ms)
                assert found.due() == ended
                for pid in ended:
                    assert found.take(pid)
                    del naive.deadlines[pid]
            case "late" if naive.deadlines:  # it is woken while it runs, and ends without a wait
                pid = next(pids)
                assert not found.wake(pid)
                found.forget(pid)
        assert len(found) == len(naive.deadlines)
    for pid in naive.deadlines:
        found.forget(pid)
    found.due()
    assert not held(found), "what has ended leaves nothing"


def held(one: object) -> dict[str, int]:
    """Returns the sizes of the containers of an object that hold something."""
    return {name: len(value) for name, value in vars(one).items() if isinstance(value, Sized) and len(value)}


def test_of_too_many_results_the_oldest_go_and_the_newest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "RESULTS_MAX", 5)
    kept = Results()
    for pid in range(1, 9):
        ended = replace(record(pid), state=State.SUCCESS, caller=Caller("User:ops", nonce=str(pid)))
        kept.begun(ended)
        kept.ended(ended, age_ms=pid)
    kept.fetched(6, age_ms=9)
    assert kept.take_due(age_ms=10, count_max=100) == [1, 2, 3]
    assert kept.take_due(10 + requests.FETCHED_KEPT_MS, 100) == [6]
    assert kept.take_due(4 + requests.KEPT_MS, 100) == [4]
    kept.fetched(7, age_ms=9)
    assert kept.take_due(20 + requests.KEPT_MS, 100) == [7, 5, 8]
    for pid in range(1, 9):
        kept.forget(replace(record(pid), caller=Caller("User:ops", nonce=str(pid))))
    assert not held(kept), "what was evicted leaves nothing"


def test_a_result_that_goes_takes_its_own_nonce_alone() -> None:
    """A store that was repaired by hand may hold two records with one nonce: the later one stands for it."""
    kept, caller = Results(), Caller("User:ops", nonce="n")
    first, second = (replace(record(pid), state=State.SUCCESS, caller=caller) for pid in (5, 6))
    kept.begun(first)
    kept.begun(second)
    kept.begun(replace(record(7), caller=caller, parent=6, ancestors=(6,)))
    kept.forget(first)
    assert (kept.pid_of(caller), kept.pid_of(Caller("User:other", nonce="n"))) == (6, None)
    kept.forget(second)
    assert kept.pid_of(caller) is None
    assert not held(kept)


@pytest.mark.parametrize("seed", range(20))
async def test_a_group_leaves_what_its_changes_leave_one_after_the_other(seed: int) -> None:
    """A child that begins and ends in one turn leaves nothing: the next daemon would find it without a parent."""
    draw, together, alone = random.Random(seed), MemoryRecords(Disk()), MemoryRecords(Disk())
    pids = [draw.randrange(1, 8) for _ in range(30)]
    dead: set[int] = set()
    for first in range(0, len(pids), 6):
        group = Group(together)
        for number, pid in enumerate(pids[first : first + 6]):
            if pid in dead:
                continue
            if draw.random() < 0.4:
                dead.add(pid)
                change = Change(deletes=(pid,))
            else:
                change = Change(puts=(record(pid, step=first + number),))
            group.add(Decided(change))
            await alone.write(change.puts, change.deletes)
        await together.write(group.puts, group.deletes, group.rows)
        assert not group.deletes or not {one.pid for one in group.puts}.intersection(group.deletes)
        assert (await together.load()).records == (await alone.load()).records


async def test_with_an_engine_end_all_requests_and_all_that_wait_for_a_result() -> None:
    daemon = await Host(Kind("root", (step(pauses), step(onwards)), topic)).daemon()
    pid = await submitted(daemon, "root")
    engine, over = daemon.engine, StoreFailed("the store failed: a test")
    waits = [asyncio.ensure_future(engine.result(pid)) for _ in range(3)]
    requests = [asyncio.ensure_future(engine.submit("root", b"t", Caller())) for _ in range(3)]
    requests += [asyncio.ensure_future(engine.submit("root", b"t", Caller("User:ops", nonce="n"))) for _ in range(2)]
    await asyncio.sleep(0)
    engine.close(over)
    found = await asyncio.wait_for(asyncio.gather(*waits, *requests, return_exceptions=True), 60)
    assert found == [over] * 8
    with pytest.raises(StoreFailed):
        await engine.submit("root", b"t", Caller())


async def test_the_tries_of_a_phase_count_in_that_phase_alone() -> None:
    fails, tasks = 2, list[asyncio.Task[None]]()

    def spawn(work: Coroutine[None, None, None]) -> None:
        tasks.append(asyncio.ensure_future(work))

    async def send(server: int, message: bytes) -> str:
        nonlocal fails
        fails -= 1
        if fails >= 0:
            raise Unreachable("silent")
        return "in force"

    responses = Responses(spawn)
    for phase in ((0, False), (1, False), (1, True)):
        fails = 2
        for _ in range(3):
            assert responses.take(7, phase) == []
            responses.send(7, 1, phase, b"", send, Resending(tries_max=3))
            await tasks.pop()
        assert [(one.ok, one.text) for one in responses.take(7, phase)] == [(True, "in force")]


async def test_the_cause_of_a_servers_silence_is_known_until_its_result_or_the_end_of_the_procedure() -> None:
    tasks, answers = list[asyncio.Task[None]](), list[asyncio.Future[str]]()

    async def send(server: int, message: bytes) -> str:
        answers.append(asyncio.get_running_loop().create_future())
        return await answers[-1]

    responses = Responses(lambda work: tasks.append(asyncio.ensure_future(work)))

    async def sent(pid: int, outcome: str | Exception, *, ended: bool = False) -> dict[int, str]:
        responses.send(pid, 1, (0, False), b"", send, Resending())
        await asyncio.sleep(0)
        if ended:
            responses.forget(pid)
        if isinstance(outcome, str):
            answers.pop().set_result(outcome)
        else:
            answers.pop().set_exception(outcome)
        await tasks.pop()
        return responses.causes(pid)

    assert await sent(7, Unreachable("no route")) == {1: "no route"}
    assert await sent(7, TimeoutError()) == {1: "no response within 10 s"}
    assert await sent(7, OSError("x" * 10_000)) == {1: "x" * CAUSE_CHARS_MAX}
    assert await sent(8, Unreachable("silent")) == {1: "silent"}
    assert await sent(7, "in force") == {}
    assert await sent(8, Unreachable("too late"), ended=True) == {}
    assert await sent(9, "too late", ended=True) == {}
    assert responses.take(9, (0, False)) == []


@pytest.mark.parametrize("upper", [Resource(Scope.NAMESPACE, "a"), CLUSTER], ids=str)
def test_a_lock_that_was_waited_for_keeps_nobody_out_once_it_was_had(upper: Resource) -> None:
    scheduler = Scheduler()
    table = scheduler.entry(1, Demand(Resource(Scope.TABLE, "t", "a"), exclusive=True))
    above = scheduler.entry(2, Demand(upper, exclusive=True))
    scheduler.add_back(table)
    assert scheduler.poll() is table
    scheduler.add_back(above)
    assert scheduler.poll() is None, "it waits for the table"
    scheduler.release(table)
    assert scheduler.poll() is above
    scheduler.release(above)
    elsewhere = scheduler.entry(3, Demand(Resource(Scope.NAMESPACE, "b"), exclusive=True))
    scheduler.add_back(elsewhere)
    assert scheduler.poll() is elsewhere
    scheduler.add_back(table)
    assert scheduler.poll() is table, "nobody waits for what is above it any more"


CALLER = Caller(principal="User:ops")
REQUEST, STEP = 1, 2
"""The first write has the request, the second one what the first step made."""


class Failing(MemoryRecords):
    """A store whose write with a number fails."""

    def __init__(self, at: int, error: StoreFailed | None) -> None:
        super().__init__(Disk())
        self._at = at
        self._error = error

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        """Writes, and raises where its turn has come."""
        self._at -= 1
        if not self._at and self._error is not None:
            raise self._error
        await super().write(puts, deletes, rows)


async def played(at: int, error: StoreFailed | None) -> list[int]:
    """Plays a procedure; returns what is in doubt once the term has ended by the error, or the procedure has."""
    daemon = Daemon(Notes(), (Kind("root", (step(), step(last)), topic),), Failing(at, error), Clock())
    engine = daemon.engine
    await engine.load()
    engine.submit_soon("root", b"t", CALLER)
    with pytest.raises(type(error)) if error is not None else contextlib.nullcontext():
        await daemon.until(lambda: any(one.state.is_final for one in engine.records.values()))
    return engine.unanswered


@pytest.mark.parametrize("at", [REQUEST, STEP])
async def test_a_write_without_a_response_leaves_its_procedure_in_doubt(at: int) -> None:
    assert await played(at, StoreFailed("the connection was lost")) == [1]


@pytest.mark.parametrize("at", [REQUEST, STEP])
@pytest.mark.parametrize("error", [Fenced("another daemon has the store"), Unstorable("it is too large")])
async def test_a_write_that_was_refused_leaves_nothing_in_doubt(at: int, error: StoreFailed) -> None:
    assert await played(at, error) == []


async def test_writes_that_were_stored_leave_nothing_in_doubt() -> None:
    assert await played(0, None) == []


KINDS = [Kind("root", (step(onwards), step(last)), topic)]


class SlowRecords(MemoryRecords):
    """A write is durable once ``answers`` is set. ``begun``: a write was; ``writes``: those under way."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self.begun, self.answers = asyncio.Event(), asyncio.Event()
        self.writes = 0

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        self.writes += 1
        self.begun.set()
        await self.answers.wait()
        self.writes -= 1
        await super().write(puts, deletes, rows)


@pytest.mark.seed("S2-12", "S2-21")
async def test_callers_wait_for_a_slow_store_and_each_gets_its_one_procedure() -> None:
    notes, store = Notes(), SlowRecords(Disk())
    daemon = Daemon(notes, KINDS, store, Clock())
    await daemon.engine.load()
    engine = daemon.engine
    callers = [Caller(principal="User:ops", nonce=str(number % 10)) for number in range(20)]
    first = [asyncio.ensure_future(engine.submit("root", b"t", caller)) for caller in callers]
    await asyncio.sleep(0)
    turn = asyncio.ensure_future(engine.turn())
    await store.begun.wait()
    assert not engine.records, "memory is not ahead of the store"
    assert not any(one.done() for one in first)
    assert not notes.runs, "a step runs once its record is durable"
    later = [asyncio.ensure_future(engine.submit("root", b"t", Caller())) for _ in range(REQUESTS_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(ProcedureRefused, match=f"{REQUESTS_MAX} requests wait: try again"):
        await engine.submit("root", b"t", Caller())
    assert store.writes == 1, "one write at a time"
    store.answers.set()
    await turn
    await daemon.until(lambda: all(one.done() for one in (*first, *later)))
    pids = [one.result() for one in first]
    assert (len(set(pids)), pids[:10]) == (10, pids[10:])
    await daemon.until(lambda: all(record.state.is_final for record in engine.records.values()))
    assert {record.state for record in engine.records.values()} == {State.SUCCESS}
    assert sum(notes.runs.values()) == 2 * len(engine.records)


async def test_a_daemon_that_dies_while_the_store_is_slow_has_promised_nothing() -> None:
    disk = Disk()
    store = SlowRecords(disk)
    daemon = Daemon(Notes(), KINDS, store, Clock())
    await daemon.engine.load()
    caller = Caller(principal="User:ops", nonce="one")
    response = asyncio.ensure_future(daemon.engine.submit("root", b"t", caller))
    await asyncio.sleep(0)
    turn = asyncio.ensure_future(daemon.engine.turn())
    await store.begun.wait()
    turn.cancel()
    with pytest.raises(ProcedureRefused, match="try again"):
        await response
    assert not disk.bodies
    successor = Daemon(Notes(), KINDS, MemoryRecords(disk), Clock())
    await successor.engine.load()
    pid = await successor.run(successor.engine.submit("root", b"t", caller))
    await successor.until(lambda: successor.engine.records[pid].state.is_final)
    assert successor.engine.records[pid].state is State.SUCCESS
