"""An engine asks for each turn that its work needs: here it has no other, and time alone passes in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from controller.procedures import parking, requests
from controller.procedures import writes as group_module
from controller.procedures.engine import Engine
from controller.procedures.kinds import Kind
from controller.procedures.parking import Parking
from controller.procedures.requests import FETCHED_KEPT_MS, KEPT_MS, Abort, Bypass, Submit, loop_ms
from metadata_store.records.port import StoreFailed
from state_machines.procedures.outcome import Outcome, Wait
from state_machines.procedures.record import NO_ENDING, Ending, Record, child
from state_machines.procedures.states import State
from testing.memory.region_store import MemoryRecords
from tests.contracts.records import record
from tests.kills.harness import Notes, arrives, last, onwards, pauses, spreads, step, topic
from tests.kit.deadlines import in_exact_time
from tests.unit.controller.procedures.test_procedures_engine import NOBODY, OPS, Host

DAY_S = 86_400.0


class Consumer:
    """Gives an engine a turn where it has asked for one, and counts them."""

    def __init__(self, host: Host, parking: Parking | None = None) -> None:
        self.turns = 0
        self._asked = asyncio.Event()
        self.engine = Engine(
            host.notes,
            host.kinds,
            MemoryRecords(host.disk),
            wanted=self._asked.set,
            now_ms=lambda: host.clock.ms + loop_ms(),
            age_ms=loop_ms,
            parking=parking,
        )

    async def turns_for_ever(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self.engine.turn()
            self.turns += 1

    async def until(self, done: Callable[[], bool]) -> None:
        """Waits, two hours at most; it asks for nothing."""
        for _ in range(14_400):
            if done():
                return
            await asyncio.sleep(0.5)
        raise AssertionError(f"it does not end: {list(self.engine.records.values())}")


@asynccontextmanager
async def consuming(host: Host, parking: Parking | None = None) -> AsyncIterator[Consumer]:
    """Yields a daemon that was started just now."""
    found = Consumer(host, parking)
    await found.engine.load()
    task = asyncio.ensure_future(found.turns_for_ever())
    try:
        yield found
        if task.done():
            task.result()
    finally:
        task.cancel()


def of(found: Consumer, pid: int) -> State:
    return found.engine.records[pid].state


@in_exact_time
async def test_a_procedure_goes_its_way_from_submission_over_a_time_an_event_and_a_restart_to_its_end() -> None:
    host = Host(Kind("root", (step(pauses), step(), step(arrives), step(last)), topic))
    async with consuming(host) as first, asyncio.timeout(DAY_S):
        pid = await first.engine.submit("root", b"t", NOBODY)
        await first.until(lambda: of(first, pid) is State.WAITING_TIMEOUT)
    async with consuming(host) as second, asyncio.timeout(DAY_S):
        await second.until(lambda: host.notes.runs["root", b"t", 2] == 1)
        await second.until(lambda: of(second, pid) is State.WAITING_TIMEOUT)
        turns = second.turns
        await asyncio.sleep(400)
        assert second.turns == turns, "nothing was to do"
        host.notes.arrived = True
        second.engine.wake(pid)
        assert (await second.engine.result(pid)).result == b"made t"


@in_exact_time
async def test_what_the_daemon_starts_by_itself_and_what_was_asked_before_the_term_need_no_other_request() -> None:
    host, parking = Host(Kind("root", (step(arrives), step(last)), topic)), Parking()
    async with consuming(host) as first, asyncio.timeout(DAY_S):
        waits = await first.engine.submit("root", b"t", NOBODY)
    early = parking.ask(Abort(waits, NO_ENDING))
    async with consuming(host, parking) as second, asyncio.timeout(DAY_S):
        assert await early
        await second.until(lambda: of(second, waits) is State.ROLLEDBACK)
        second.engine.submit_soon("root", b"own", OPS)
        await second.until(lambda: second.engine.pid_of(OPS) is not None)
        second.engine.close(StoreFailed("the term ended: a test"))
        with pytest.raises(StoreFailed, match="the term ended"):
            second.engine.submit_soon("root", b"own", OPS)


@in_exact_time
async def test_what_was_asked_before_the_term_comes_first_and_in_its_order() -> None:
    host, parking = Host(Kind("root", (step(arrives), step(last)), topic)), Parking()
    async with consuming(host) as first, asyncio.timeout(DAY_S):
        waits = await first.engine.submit("root", b"t", NOBODY)
    early = [
        parking.ask(Submit("root", b"a", replace(OPS, nonce="a"), 0)),
        parking.ask(Submit("root", b"b", replace(OPS, nonce="b"), 0)),
        parking.ask(Abort(waits, Ending("abort", "User:first"))),
        parking.ask(Bypass(waits, Ending("bypass", "User:second"))),
    ]
    second = Consumer(host, parking)
    await second.engine.load()
    second.engine.submit_soon("root", b"own", OPS)
    await second.engine.turn()
    a, b, *ends = [one.result() for one in early]
    own = second.engine.pid_of(OPS)
    assert own is not None
    assert (waits < a < b < own, ends) == (True, [waits, waits])
    found = second.engine.records[waits]
    assert (found.aborted, found.bypassed, found.ending.principal) == (True, True, "User:second")


@in_exact_time
async def test_requests_beyond_one_write_are_carried_out_in_the_next_although_no_step_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_module, "RECORDS_MAX", 3)
    host = Host(Kind("root", (step(arrives), step(last)), topic))
    async with consuming(host) as found, asyncio.timeout(DAY_S):
        pid = await found.engine.submit("root", b"t", OPS)
        await found.until(lambda: of(found, pid) is State.WAITING_TIMEOUT)
        again = [found.engine.submit("root", b"t", OPS) for _ in range(8)]
        assert await asyncio.gather(*again) == [pid] * 8


@in_exact_time
async def test_a_family_that_is_removed_in_parts_goes_although_no_step_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "TOGETHER", 2)
    host = Host(Kind("root", (step(spreads("part", 6)), step(last)), topic), Kind("part", (step(arrives),), topic))
    async with consuming(host) as first, asyncio.timeout(DAY_S):
        pid = await first.engine.submit("root", b"t", NOBODY)
        await first.until(lambda: len(first.engine.records) == 7)
    host.disk.bodies[pid] = b"{"
    async with consuming(host) as second, asyncio.timeout(DAY_S):
        assert await second.engine.remove(pid, Ending("remove", "uid 7", "broken")) == [*range(pid, pid + 7)]
        assert not host.disk.bodies


@in_exact_time
async def test_a_result_goes_at_its_time_and_a_wait_ends_at_its_own_whichever_comes_first() -> None:
    def waits_long(notes: Notes, record: Record) -> Outcome:
        return onwards(notes, record) if record.deadline_ms else Wait(record.updated_ms + 540_000, record.data)

    host = Host(Kind("root", (step(last),), topic), Kind("long", (step(waits_long), step(last)), topic))
    async with consuming(host) as found, asyncio.timeout(DAY_S):
        long = await found.engine.submit("long", b"l", NOBODY)
        pid = await found.engine.submit("root", b"t", NOBODY)
        await found.engine.result(pid)
        began_ms = loop_ms()
        await found.engine.submit("root", b"u", NOBODY)
        await found.until(lambda: pid not in found.engine.records)
        assert FETCHED_KEPT_MS <= loop_ms() - began_ms <= FETCHED_KEPT_MS + 1_000
        assert not host.disk.bodies.keys() & {pid}
        await found.until(lambda: of(found, long).is_final)
        assert 540_000 <= loop_ms() - began_ms <= 542_000
        later = await found.engine.submit("long", b"l", NOBODY)
        began_ms = loop_ms()
        await found.until(lambda: of(found, later).is_final)
        assert 540_000 <= loop_ms() - began_ms <= 542_000, "although an older result goes after it"


@in_exact_time
async def test_calls_that_are_recorded_go_by_their_age_and_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "RESULTS_MAX", 3)
    monkeypatch.setattr(requests, "EVICTED_TOGETHER", 2)
    host = Host(Kind("root", (step(last),), topic))
    async with consuming(host) as found, asyncio.timeout(DAY_S):

        async def recorded() -> int:
            call = await found.engine.named(replace(record(1), state=State.SUCCESS))
            await found.engine._store.write((call,))
            found.engine.recorded(call)
            return call.pid

        await found.until(lambda: found.turns == 1)
        await recorded()
        await asyncio.sleep(KEPT_MS / 1_000 + 1)
        assert (sorted(found.engine.records), host.disk.bodies) == ([], {}), "its age alone removes it"
        pids = [await recorded() for _ in range(4)]
        await asyncio.sleep(KEPT_MS / 2_000)
        assert sorted(found.engine.records) == pids, "one more than are kept: it is not worth a write"
        pids.append(await recorded())
        await asyncio.sleep(1)
        assert sorted(found.engine.records) == pids[2:]
        await asyncio.sleep(KEPT_MS / 2_000 + 1)
        assert sorted(found.engine.records) == pids[4:]


@in_exact_time
async def test_an_engine_that_is_closed_asks_for_nothing_any_more() -> None:
    host = Host(Kind("root", (step(pauses), step(last)), lambda _: topic(child("root", b"t"))))
    asked: list[None] = []
    engine = Engine(
        host.notes,
        host.kinds,
        MemoryRecords(host.disk),
        wanted=lambda: asked.append(None),
        now_ms=lambda: loop_ms() + 1,
    )
    await engine.load()
    for number in range(3):
        call = asyncio.ensure_future(engine.submit("root", b"%d" % number, NOBODY))
        await asyncio.sleep(0)
        await engine.turn()
        await engine.turn()
        await call
    engine.close(StoreFailed("the term ended: a test"))
    del asked[:]
    await asyncio.sleep(DAY_S)
    assert not asked, "its timers went with it"
