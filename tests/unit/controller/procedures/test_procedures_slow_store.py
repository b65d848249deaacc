"""A store that takes its time: callers wait, memory stays behind it, and requests that are too many are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from controller.procedures.intake import REQUESTS_MAX
from controller.procedures.kinds import Kind
from controller.procedures.requests import Refused
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from testing.memory.records import Disk, MemoryRecords
from tests.kills.harness import Clock, Daemon
from tests.kills.kinds import Notes, last, onwards, step, topic

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
    with pytest.raises(Refused, match=f"{REQUESTS_MAX} requests wait: try again"):
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
    with pytest.raises(Refused, match="try again"):
        await response
    assert not disk.bodies
    successor = Daemon(Notes(), KINDS, MemoryRecords(disk), Clock())
    await successor.engine.load()
    pid = await successor.run(successor.engine.submit("root", b"t", caller))
    await successor.until(lambda: successor.engine.records[pid].state.is_final)
    assert successor.engine.records[pid].state is State.SUCCESS
